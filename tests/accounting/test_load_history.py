"""The load that is kept for longer than a journal: nothing twice, nothing made up."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.load_history import KEEP_UNITS, dump_load, joined, latest, read_load, start_of
from mark.domain.demand import Demand


def demand(first: int, last: int) -> Demand:
    """Minutes `first` to `last`, minute n with n requests and a largest window of n."""
    minutes = range(first, last)
    return Demand(
        end_at=60.0 * last,
        mean_rps=tuple(minute / 60 for minute in minutes),
        max_rps=tuple(minute / 5 for minute in minutes),
    )


@given(start=st.integers(0, 50), length=st.integers(1, 50), overlap=st.integers(0, 60), more=st.integers(1, 50))
def test_stretches_that_touch_become_one(start: int, length: int, overlap: int, more: int) -> None:
    middle = start + length
    later = demand(max(start, middle - overlap), middle + more)
    assert joined(demand(start, middle), later) == demand(start, middle + more)


def test_a_gap_drops_what_lies_before_it() -> None:
    assert joined(demand(0, 10), demand(11, 20)) == demand(11, 20)
    assert joined(None, demand(3, 5)) == demand(3, 5)


def test_forty_days_are_kept() -> None:
    found = joined(demand(0, KEEP_UNITS), demand(KEEP_UNITS - 5, KEEP_UNITS + 5))
    assert found == demand(5, KEEP_UNITS + 5)


def test_only_the_units_since_an_instant_count() -> None:
    assert latest(demand(0, 10), 240.3) == demand(4, 10)
    assert len(latest(demand(0, 10), 900.0)) == 0
    assert start_of(demand(4, 10)) == 240.0


def test_what_is_kept_is_read_back() -> None:
    kept = read_load(dump_load(demand(0, 3000)))
    assert kept == demand(0, 3000)
    assert read_load(None) is None
    assert replace(demand(0, 2), end_at=3.0) == read_load({"end_at": 3.0, "counts": [0, 1], "peaks": [0, 1]})
