"""One controller acts: whatever two holders do, nothing of a stale epoch is written."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mark.domain.errors import RetryLater
from mark.domain.fleet.lease import Lease, LeaseLost
from mark.store.connect import Link
from mark.store.journal import StoreJournal
from mark.store.scripts import APPEND, OPEN
from mark.store.service import ServiceStore
from tests.store.links import ForgetfulLink

HOLDERS = ("left", "right")
_runs = itertools.count()


def test_one_holder_at_a_time(store: ServiceStore) -> None:
    assert store.leases.held_by() is None
    left = store.leases.acquire("left", 5.0)
    assert left is not None
    assert store.leases.acquire("right", 5.0) is None
    assert store.leases.held_by() == "left"
    store.leases.renew(left)
    store.leases.release(left)
    right = store.leases.acquire("right", 5.0)
    assert right is not None
    assert right.epoch > left.epoch
    with pytest.raises(LeaseLost, match="left no longer holds the lease"):
        store.leases.renew(left)
    store.leases.release(left)  # too late to take it from the other
    assert store.leases.held_by() == "right"


def test_a_lease_that_is_not_renewed_runs_out(store: ServiceStore, link: Link, service: str) -> None:
    left = store.leases.acquire("left", 0.05)
    assert left is not None
    deadline = time.monotonic() + 60.0
    while (right := store.leases.acquire("right", 5.0)) is None:
        assert time.monotonic() < deadline, "it never ran out"
        time.sleep(0.01)
    with pytest.raises(LeaseLost):
        store.leases.renew(left)
    assert 0 < link.call("PTTL", f"{{mark:{service}}}:lease") <= 5000
    store.leases.renew(right)


def test_a_lease_that_ran_out_and_that_nobody_took_is_renewed(
    store: ServiceStore, link: Link, service: str
) -> None:
    lease = store.leases.acquire("left", 5.0)
    assert lease is not None
    link.call("DEL", f"{{mark:{service}}}:lease")
    store.leases.renew(lease)
    assert store.leases.acquire("right", 5.0) is None


class TwoHolders(RuleBasedStateMachine):
    """Two controllers take, lose, renew and write in any order; some answers are lost on the way."""

    shared: Link

    @initialize()
    def begin(self) -> None:
        self.link = ForgetfulLink(self.shared)
        self.store = ServiceStore(self.link, f"two-{next(_runs)}")
        self.leases: dict[str, Lease] = {}
        self.journals: dict[str, StoreJournal] = {}
        self.newest = 0
        self.written: list[bytes] = []
        self.unsure: bytes | None = None
        self.numbers = itertools.count()

    def acts(self, who: str) -> bool:
        return self.leases[who].epoch == self.newest

    @rule(who=st.sampled_from(HOLDERS), other_is_gone=st.booleans())
    def take(self, who: str, other_is_gone: bool) -> None:
        if other_is_gone:
            self.shared.call("DEL", f"{{mark:{self.store._keys.service}}}:lease")
        lease = self.store.leases.acquire(who, 60.0)
        if lease is None:
            assert not other_is_gone
            return
        assert lease.epoch > self.newest
        self.newest, self.leases[who] = lease.epoch, lease
        self.journals[who] = self.store.open_journal("m", b"header", lease)
        lines = list(self.store.journal_lines("m"))
        assert lines[: len(self.written)] == self.written or not self.written
        self.written, self.unsure = lines, None

    @precondition(lambda self: self.journals)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        who = data.draw(st.sampled_from(sorted(self.journals)))
        if self.acts(who):
            self.newest += 1
        self.store.leases.release(self.leases[who])

    @precondition(lambda self: self.journals)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        who = data.draw(st.sampled_from(sorted(self.journals)))
        if self.acts(who):
            self.store.leases.renew(self.leases[who])
        else:
            with pytest.raises(LeaseLost):
                self.store.leases.renew(self.leases[who])

    @precondition(lambda self: self.journals)
    @rule(data=st.data(), answer_is_lost=st.booleans(), again=st.booleans())
    def write(self, data: st.DataObject, answer_is_lost: bool, again: bool) -> None:
        who = data.draw(st.sampled_from(sorted(self.journals)))
        line = f"{self.leases[who].epoch} {next(self.numbers)}".encode()
        if not self.acts(who):
            with pytest.raises(LeaseLost):
                self.journals[who].write(line)
            return
        line = self.unsure if again and self.unsure is not None else line
        if answer_is_lost:
            self.link.loses_answer_of = APPEND
            with pytest.raises(RetryLater):
                self.journals[who].write(line)
            self.unsure = line
        else:
            self.journals[who].write(line)
            self.written.append(line)
            self.unsure = None

    @precondition(lambda self: self.journals)
    @rule(data=st.data(), answer_is_lost=st.booleans(), writes_on=st.booleans())
    def rotate(self, data: st.DataObject, answer_is_lost: bool, writes_on: bool) -> None:
        who = data.draw(st.sampled_from(sorted(self.journals)))
        header = f"header {next(self.numbers)}".encode()
        if not self.acts(who):
            with pytest.raises(LeaseLost):
                self.journals[who].rotate(header)
            return
        if answer_is_lost:
            self.link.loses_answer_of = OPEN
            with pytest.raises(RetryLater):
                self.journals[who].rotate(header)
        if not (answer_is_lost and writes_on):
            header = header if not answer_is_lost else header + b" at last"
            self.journals[who].rotate(header)
        self.written, self.unsure = [header], None

    @invariant()
    def the_journal_is_what_the_holders_wrote(self) -> None:
        if self.written:
            unsure = [] if self.unsure is None else [self.unsure]
            assert list(self.store.journal_lines("m")) == self.written + unsure
            size = self.store._link.call("HGET", self.store._keys.of("journal", "m"), "bytes")
            assert int(size) == sum(map(len, self.written + unsure))


def test_no_interleaving_lets_a_stale_holder_write(link: Link) -> None:
    class Shared(TwoHolders):
        shared = link

    limits = settings(
        max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    run_state_machine_as_test(Shared, settings=limits)
