"""When schedules are due: examples of AWS's guide, and what holds for all."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.emulator.errors import ApiError
from mark.emulator.events.schedule_times import due_of

NOW = datetime(2026, 11, 21, 10, 0, 30, tzinfo=UTC).timestamp()  # a Saturday
INSTANTS = st.floats(1.6e9, 2.2e9)


def due(expression: str, after: float = NOW, timezone: str = "UTC") -> str:
    at = due_of(expression, timezone=timezone, begins_at=NOW)(after)
    return "never" if math.isinf(at) else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("cron(0 7 * * ? *)", "2026-11-22T07:00:00"),
        ("cron(0/15 * * * ? *)", "2026-11-21T10:15:00"),
        ("cron(5-10 10 ? * MON-FRI *)", "2026-11-23T10:05:00"),
        ("cron(0 18 ? * SAT,SUN *)", "2026-11-21T18:00:00"),
        ("cron(0 8 1 * ? *)", "2026-12-01T08:00:00"),
        ("cron(0 8 L * ? *)", "2026-11-30T08:00:00"),
        ("cron(0 8 29 2 ? *)", "2028-02-29T08:00:00"),
        ("cron(0 8 1 JAN ? 2030/2)", "2030-01-01T08:00:00"),
        ("cron(0 8 1 1 ? 2025)", "never"),
        ("cron(15 10 ? * 7 *)", "2026-11-21T10:15:00"),
        ("rate(1 hour)", "2026-11-21T11:00:30"),
        ("rate(5 minutes)", "2026-11-21T10:05:30"),
        ("at(2026-11-21T12:00:00)", "2026-11-21T12:00:00"),
        ("at(2026-11-21T10:00:00)", "never"),
    ],
)
def test_what_is_due_next(expression: str, expected: str) -> None:
    assert due(expression) == expected


def test_a_rate_begins_at_once() -> None:
    assert due("rate(5 minutes)", NOW - 0.001) == "2026-11-21T10:00:30"


def test_a_zone_moves_with_its_clock() -> None:
    """In Berlin the clock skips 02:30 on 2027-03-28, and shows it twice on 2027-10-31: an hour apart, once."""
    assert due("cron(0 7 * * ? *)", timezone="Europe/Berlin") == "2026-11-22T06:00:00"
    before = datetime(2027, 3, 27, 12, tzinfo=UTC).timestamp()
    assert due("cron(30 2 * * ? *)", before, "Europe/Berlin") == "2027-03-29T00:30:00"
    before = datetime(2027, 10, 30, 12, tzinfo=UTC).timestamp()
    assert due("cron(30 2 * * ? *)", before, "Europe/Berlin") == "2027-10-31T00:30:00"
    once = datetime(2027, 10, 31, 0, 30, tzinfo=UTC).timestamp()
    assert due("cron(30 2 * * ? *)", once, "Europe/Berlin") == "2027-11-01T01:30:00"


@pytest.mark.parametrize(
    "expression",
    [
        "", "7:00", "cron()", "cron(0 7 * * *)", "cron(0 7 * * * *)", "cron(0 7 ? * ? *)", "cron(60 7 * * ? *)",
        "cron(0 24 * * ? *)", "cron(0 7 * 13 ? *)", "cron(0 7 ? * 0 *)", "cron(9-5 7 * * ? *)",
        "cron(0 7 * * ? * *)", "cron(0 7 * * XYZ *)", "cron(0/0 7 * * ? *)", "rate(0 minutes)", "rate(-1 hours)",
        "rate(1 week)",
        "at(2026-02-30T00:00:00)", "at(tomorrow)", "cron(0 7 1W * ? *)", "cron(0 7 ? * 6#3 *)",
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused(expression: str) -> None:
    with pytest.raises(ApiError):
        due_of(expression, begins_at=NOW)


def test_a_zone_that_is_none_is_refused() -> None:
    for zone in ("Nowhere/Land", "../etc/passwd", ""):
        with pytest.raises(ApiError, match="Timezone"):
            due_of("rate(1 day)", timezone=zone, begins_at=NOW)


@given(INSTANTS, st.integers(0, 59), st.integers(0, 23), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]))
def test_a_daily_time_comes_later_within_two_days_and_shows_on_the_wall(
    after: float, minute: int, hour: int, zone: str
) -> None:
    at = due_of(f"cron({minute} {hour} * * ? *)", timezone=zone, begins_at=0.0)(after)
    assert after < at <= after + 2 * 86400 + 3600
    shown = datetime.fromtimestamp(at, ZoneInfo(zone))
    assert (shown.hour, shown.minute, shown.second) == (hour, minute, 0)


@given(INSTANTS, st.floats(0, 1e7), st.integers(1, 500))
def test_a_rate_is_never_far(begins_at: float, later_s: float, minutes: int) -> None:
    after = begins_at + later_s
    at = due_of(f"rate({minutes} minutes)", begins_at=begins_at)(after)
    assert after < at <= after + minutes * 60 + 1e-6
