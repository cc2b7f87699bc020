"""The journal: lines in order, segments, a header first, and the format of `mark.controller.journal`."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from mark.controller.journal import Header, header_line, read_journal
from mark.controller.state import Decision, Observation, State
from mark.domain.demand import Demand
from mark.domain.errors import Misconfigured, RetryLater
from mark.domain.fleet.instances import FleetView, Instance, InstanceState
from mark.domain.fleet.lease import Lease, LeaseLost
from mark.store.connect import Link
from mark.store.journal import KEEP_SEGMENTS, PAGE
from mark.store.service import ServiceStore
from tests.controller.builders import POLICY
from tests.store.links import ForgetfulLink

HISTORY = Demand(end_at=0.0, mean_rps=(1.0,), max_rps=(2.0,))
HEADER = header_line(Header(policy=POLICY, catalogue="test", seed=1, history=HISTORY))


def taken(store: ServiceStore, holder: str = "left") -> Lease:
    lease = store.leases.acquire(holder, 60.0)
    assert lease is not None
    return lease


def test_there_is_none_before_the_first(store: ServiceStore) -> None:
    assert not store.journal_segments("m")
    with pytest.raises(Misconfigured, match=r"no journal of m$"):
        next(store.journal_lines("m"))
    with pytest.raises(Misconfigured, match="no journal of m numbered 3"):
        next(store.journal_lines("m", 3))


def test_lines_come_back_in_order_whatever_bytes_they_hold(store: ServiceStore) -> None:
    journal = store.open_journal("m", b"header", taken(store))
    lines = [f"line {number}".encode() for number in range(2 * PAGE + 1)] + [
        b"",
        b"\x00\r\n\xff",
        b"",
        b"x" * 100_000,
    ]
    for line in lines:
        journal.write(line)

    assert not journal.resumed
    assert list(store.journal_lines("m")) == [b"header", *lines]
    assert journal.size_bytes == len(b"header") + sum(map(len, lines))


def test_the_next_holder_goes_on_where_the_last_one_stopped(store: ServiceStore) -> None:
    first = taken(store)
    journal = store.open_journal("m", b"header", first)
    journal.write(b"one")
    store.leases.release(first)

    resumed = store.open_journal("m", b"another header", taken(store, "right"))
    resumed.write(b"two")

    assert resumed.resumed
    assert list(store.journal_lines("m")) == [b"header", b"one", b"two"]
    with pytest.raises(LeaseLost, match="left may no longer write the journal of m"):
        journal.write(b"three")


def test_a_stale_lease_opens_nothing(store: ServiceStore) -> None:
    stale = taken(store)
    store.leases.release(stale)
    with pytest.raises(LeaseLost):
        store.open_journal("m", b"header", stale)
    assert not store.journal_segments("m")


def test_old_segments_are_dropped(store: ServiceStore) -> None:
    journal = store.open_journal("m", b"header 1", taken(store))
    for number in range(2, KEEP_SEGMENTS + 3):
        journal.write(b"line")
        journal.rotate(f"header {number}".encode())

    kept = store.journal_segments("m")
    assert list(kept) == list(range(3, KEEP_SEGMENTS + 3))
    assert list(store.journal_lines("m", kept[0])) == [b"header 3", b"line"]
    assert list(store.journal_lines("m")) == [f"header {kept[-1]}".encode()]
    with pytest.raises(Misconfigured, match="numbered 2"):
        next(store.journal_lines("m", 2))


def test_a_segment_that_may_not_be_dropped_is_kept_with_all_after_it(
    store: ServiceStore, link: Link, service: str
) -> None:
    copied: set[int] = {1}
    journal = store.open_journal("m", b"header", taken(store), may_drop=copied.__contains__)
    for number in range(2, KEEP_SEGMENTS + 4):
        journal.rotate(f"header {number}".encode())
    assert list(store.journal_segments("m")) == list(range(2, KEEP_SEGMENTS + 4))
    assert journal.is_waiting

    copied.update((2, 4))
    journal.rotate(b"another")
    assert list(store.journal_segments("m")) == list(range(3, KEEP_SEGMENTS + 5))
    copied.add(3)
    journal.rotate(b"one more")
    assert list(store.journal_segments("m")) == list(range(5, KEEP_SEGMENTS + 6))
    streams = [f"{{mark:{service}}}:journal:m:{number}" for number in range(1, 6)]
    assert [link.call("EXISTS", stream) for stream in streams] == [0, 0, 0, 0, 1]

    journal.rotate(b"the last", unkept=True)
    assert len(store.journal_segments("m")) == KEEP_SEGMENTS


def test_an_entry_without_a_line_is_read_as_an_empty_one(store: ServiceStore, link: Link, service: str) -> None:
    store.open_journal("a", b"header", taken(store))
    link.call("XADD", f"{{mark:{service}}}:journal:a:1", "*", "other", "x")
    assert list(store.journal_lines("a")) == [b"header", b""]


def test_a_segment_whose_opening_failed_is_opened_before_the_next_line(link: Link, service: str) -> None:
    forgetful = ForgetfulLink(link)
    store = ServiceStore(forgetful, service)
    journal = store.open_journal("m", b"header", taken(store))
    forgetful.is_down = True
    with pytest.raises(RetryLater):
        journal.rotate(b"header 2")
    with pytest.raises(RetryLater):
        journal.write(b"line")
    forgetful.is_down = False
    journal.write(b"line")
    assert [list(store.journal_lines("m", number)) for number in (1, 2)] == [[b"header"], [b"header 2", b"line"]]


def test_only_the_last_segment_is_written(store: ServiceStore) -> None:
    lease = taken(store)
    journal, elder = (store.open_journal("m", b"header", lease) for _ in range(2))
    journal.rotate(b"header 2")
    with pytest.raises(LeaseLost):
        elder.write(b"line")
    assert list(store.journal_lines("m", 1)) == [b"header"]


def test_ticks_are_read_back_as_they_were_seen(store: ServiceStore) -> None:
    one = Instance(id="i-1", offering="c5.large", state=InstanceState.PENDING)
    fleets = [
        FleetView(),
        FleetView(instances=(one,)),
        FleetView(instances=(replace(one, state=InstanceState.READY),)),
    ]
    journal = store.open_journal("m", HEADER, taken(store))
    for number, (before, fleet) in enumerate(pairwise(fleets)):
        journal.append(before, Observation(now=float(number), fleet=fleet), Decision(state=State(), orders=()))

    _, ticks = read_journal(store.journal_lines("m"))

    assert [tick.seen.fleet for tick in ticks] == fleets[1:]
