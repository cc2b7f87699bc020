"""Bounds by the clock: over midnight, by days, on the days on which clocks change, and ahead of a launch."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.plans.capacity_schedule import (
    DAY_S,
    NO_BOUNDS,
    CapacityBounds,
    CapacityWindow,
    bounds_ahead,
    bounds_at,
    next_bounds,
)

BERLIN = "Europe/Berlin"
OFFICE = CapacityWindow(start_s=8 * 3600, end_s=20 * 3600, days=(0, 1, 2, 3, 4), timezone=BERLIN, min_rps=50.0)
NIGHT = CapacityWindow(start_s=22 * 3600, end_s=6 * 3600, days=(4,), timezone=BERLIN, max_rps=10.0)
ZONES = st.sampled_from(("UTC", BERLIN, "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"))
INSTANTS = st.floats(min_value=0.0, max_value=2_000_000_000.0)


def instant(text: str, zone: str = BERLIN, *, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


@st.composite
def windows(draw: st.DrawFn) -> CapacityWindow:
    start, end = draw(
        st.tuples(st.integers(0, 1439), st.integers(1, 1440)).filter(lambda pair: pair[0] != pair[1])
    )
    low = draw(st.none() | st.floats(min_value=0.1, max_value=1e4))
    high = draw(st.none() | st.floats(min_value=0.1, max_value=1e4))
    days = draw(st.sets(st.integers(0, 6), min_size=1))
    return CapacityWindow(
        start_s=60 * start,
        end_s=60 * end,
        days=tuple(sorted(days)),
        timezone=draw(ZONES),
        min_rps=low,
        max_rps=high,
    )


@pytest.mark.parametrize(
    ("when", "least"),
    [
        ("2026-12-01T07:59", 0.0),
        ("2026-12-01T08:00", 50.0),
        ("2026-12-01T19:59", 50.0),
        ("2026-12-01T20:00", 0.0),
        ("2026-12-05T12:00", 0.0),  # a Saturday
        ("2026-07-01T08:00", 50.0),  # summer time
    ],
)
def test_a_window_holds_from_its_start_until_its_end_on_its_days(when: str, least: float) -> None:
    assert bounds_at((OFFICE,), instant(when)).min_rps == least


@pytest.mark.parametrize(
    ("when", "most"),
    [
        ("2026-12-04T21:59", None),
        ("2026-12-04T22:00", 10.0),  # Friday
        ("2026-12-05T05:59", 10.0),
        ("2026-12-05T06:00", None),
        ("2026-12-05T23:00", None),  # Saturday's night is not Friday's
        ("2026-12-04T05:00", None),
    ],
)
def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins(when: str, most: float | None) -> None:
    assert bounds_at((NIGHT,), instant(when)).max_rps == most


def test_an_hour_that_comes_twice_is_twice_in_force_and_one_that_is_skipped_never() -> None:
    doubled = CapacityWindow(start_s=2 * 3600, end_s=3 * 3600, timezone=BERLIN, min_rps=5.0)
    autumn = [instant("2026-10-25T01:00") + 60 * minute for minute in range(240)]
    spring = [instant("2026-03-29T00:00") + 60 * minute for minute in range(240)]
    assert sum(doubled.is_in_force(at) for at in autumn) == 120
    assert sum(doubled.is_in_force(at) for at in spring) == 0


@given(windows(), INSTANTS)
def test_a_window_and_the_rest_of_its_day_fill_the_time_without_overlap(window: CapacityWindow, at: float) -> None:
    every_day = CapacityWindow(start_s=window.start_s, end_s=window.end_s, timezone=window.timezone)
    # one that ends at midnight has its rest from midnight on
    rest = CapacityWindow(start_s=window.end_s % DAY_S, end_s=window.start_s or DAY_S, timezone=window.timezone)
    whole = rest.start_s == 0 and rest.end_s == DAY_S  # the window was all day
    assert every_day.is_in_force(at) != rest.is_in_force(at) or whole
    assert every_day.is_in_force(at) or not window.is_in_force(at)


@given(st.lists(windows(), max_size=5), INSTANTS)
def test_bounds_are_the_highest_minimum_and_the_lowest_maximum_in_force(
    schedule: list[CapacityWindow], at: float
) -> None:
    found = bounds_at(schedule, at)
    held = [window for window in schedule if window.is_in_force(at)]
    least = max((w.min_rps for w in held if w.min_rps is not None), default=0.0)
    most = min((w.max_rps for w in held if w.max_rps is not None), default=None)
    assert found == CapacityBounds(min_rps=least if most is None else min(least, most), max_rps=most)
    assert found == bounds_at(schedule[::-1], at)


@given(st.lists(windows(), max_size=4), INSTANTS, st.integers(0, 20), st.floats(min_value=0.0, max_value=1.0))
def test_the_bounds_ahead_ask_for_whatever_holds_before_launches_serve(
    schedule: list[CapacityWindow], now: float, minutes: int, share: float
) -> None:
    ahead, here = bounds_ahead(schedule, now, 60.0 * minutes), bounds_at(schedule, now)
    assert ahead.min_rps >= bounds_at(schedule, now + 60.0 * round(minutes * share)).min_rps
    assert ahead.max_rps == (None if here.max_rps is None else max(here.max_rps, ahead.min_rps))


def test_what_holds_from_eight_on_is_planned_for_before_eight_and_what_held_until_then_stays() -> None:
    before = CapacityWindow(start_s=0, end_s=8 * 3600, timezone=BERLIN, max_rps=20.0)
    at = instant("2026-12-01T07:55")
    assert bounds_ahead((OFFICE, before), at - 600.0, 360.0) == CapacityBounds(max_rps=20.0)
    assert bounds_ahead((OFFICE, before), at, 360.0) == CapacityBounds(min_rps=50.0, max_rps=50.0)
    assert bounds_ahead((OFFICE, before), at + 300.0, 360.0) == CapacityBounds(min_rps=50.0)
    assert bounds_ahead((OFFICE, before), instant("2026-12-01T19:59"), 360.0).min_rps == 50.0


def test_without_windows_nothing_is_bounded() -> None:
    assert bounds_ahead((), 0.0, 300.0) == NO_BOUNDS


@settings(max_examples=25)
@given(
    schedule=st.lists(windows(), max_size=3),
    now=st.one_of(
        INSTANTS.map(round), st.integers(-200, 200).map(lambda m: round(instant("2026-03-29T01:00")) + 60 * m)
    ),
)
def test_the_next_bounds_are_the_first_that_differ(schedule: list[CapacityWindow], now: int) -> None:
    minute = now - now % 60
    here, found = bounds_at(schedule, now), next_bounds(schedule, now)
    changes = (at for at in range(minute + 60, now + 2 * DAY_S, 60) if bounds_at(schedule, at) != here)
    expected = next(changes, None)

    if expected is None:
        assert found is None or found[0] >= now + 2 * DAY_S - 60
    else:
        assert found == (expected, bounds_at(schedule, expected))


def test_bounds_that_never_change_have_no_next() -> None:
    assert next_bounds((), 0.0) is None
    assert next_bounds((CapacityWindow(max_rps=5.0),), 1e9) is None
    at = instant("2026-03-27T19:00")  # a Friday; the clocks change on Sunday
    assert next_bounds((OFFICE,), at) == (instant("2026-03-27T20:00"), NO_BOUNDS)
    assert next_bounds((OFFICE,), at + 3600.0) == (instant("2026-03-30T08:00"), CapacityBounds(min_rps=50.0))
