"""The lease as an item of a table that swaps it where it is still what was read: never two holders."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mark.domain.fleet.lease import LeaseItem, LeaseWatch, given_back, renewed, taken

TTL_S = 10.0
CANDIDATES = 3
WHO = st.integers(0, CANDIDATES - 1)


@dataclass
class Candidate:
    """A controller. Between its read, its write and the answer any time may pass."""

    offset_s: float
    watch: LeaseWatch = field(default_factory=LeaseWatch)
    read: LeaseItem | None = None
    has_read: bool = False
    #: Of the lease that it holds.
    item: LeaseItem | None = None
    #: When it began the write that gave it the lease, or renewed it; the world's time.
    since: float = 0.0
    begun_at: float | None = None


class OneHolder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.table: LeaseItem | None = None
        self.epochs: list[int] = []
        self.candidates = [Candidate(offset_s=1000.0 * number) for number in range(CANDIDATES)]

    def holds(self, candidate: Candidate) -> bool:
        return candidate.item is not None and self.now < candidate.since + TTL_S

    def swap(self, item: LeaseItem, before: LeaseItem | None) -> bool:
        if self.table != before:
            return False
        self.table = item
        return True

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.5, 4.0, 9.9, 10.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(who=WHO)
    def it_reads(self, who: int) -> None:
        self.candidates[who].read, self.candidates[who].has_read = self.table, True

    @rule(who=WHO)
    def it_tries_to_take_what_it_read(self, who: int) -> None:
        me = self.candidates[who]
        if not me.has_read or me.item is not None:
            return
        if me.watch.may_take(me.read, self.now + me.offset_s):
            item = taken(me.read, f"c{who}", TTL_S, f"10.0.0.{who}")
            if self.swap(item, me.read):
                me.item, me.since = item, self.now
                self.epochs.append(item.epoch)
        me.has_read = False

    @rule(who=WHO)
    def it_begins_a_renewal(self, who: int) -> None:
        self.candidates[who].begun_at = self.now

    @rule(who=WHO)
    def its_renewal_arrives(self, who: int) -> None:
        me = self.candidates[who]
        if me.item is None or me.begun_at is None:
            return
        after = renewed(me.item)
        if self.swap(after, me.item):
            me.item, me.since = after, me.begun_at
        else:
            me.item = None
        me.begun_at = None

    @rule(who=WHO)
    def it_gives_the_lease_back(self, who: int) -> None:
        me = self.candidates[who]
        if me.item is not None:
            self.swap(given_back(me.item), me.item)
            me.item = None

    @rule(who=WHO)
    def it_crashes(self, who: int) -> None:
        self.candidates[who] = Candidate(offset_s=self.candidates[who].offset_s + 1.0)

    @invariant()
    def never_two_hold_it(self) -> None:
        assert sum(map(self.holds, self.candidates)) <= 1

    @invariant()
    def each_holder_has_a_later_epoch(self) -> None:
        assert self.epochs == sorted(set(self.epochs))


TestOneHolder = OneHolder.TestCase
TestOneHolder.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_a_lease_whose_holder_is_silent_can_be_had_after_its_time() -> None:
    item, watch = taken(None, "left", TTL_S, "a"), LeaseWatch()
    assert not watch.may_take(item, 100.0)
    assert not watch.may_take(item, 109.9)
    assert watch.may_take(item, 110.0)


def test_a_renewal_starts_its_time_anew() -> None:
    item, watch = taken(None, "left", TTL_S, "a"), LeaseWatch()
    assert not watch.may_take(item, 100.0)
    assert not watch.may_take(renewed(item), 109.9)
    assert not watch.may_take(renewed(item), 115.0)
    assert watch.may_take(renewed(item), 120.0)


def test_a_lease_that_was_given_back_can_be_had_at_once() -> None:
    item = given_back(taken(None, "left", TTL_S, "a"))
    assert LeaseWatch().may_take(item, 0.0)
    assert taken(item, "right", TTL_S, "b").epoch == 3
