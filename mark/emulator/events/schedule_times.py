"""Due times of EventBridge Scheduler's expressions: `at(...)`, `rate(...)` and `cron(...)` in a time zone (pure).

As AWS documents it: a rate without a start begins at once; a rate's days have 24 hours; a cron time that a clock
skips in spring is skipped, one that comes twice in autumn counts once. Of cron's wildcards W and # are not done.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from mark.emulator.errors import ApiError, not_emulated

UNIT_S = {"minute": 60.0, "hour": 3600.0, "day": 86400.0}
RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
AT = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
CRON = re.compile(r"cron\(([^()]+)\)")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
FIELDS = (("minutes", 0, 59), ("hours", 0, 23), ("days", 1, 31), ("months", 1, 12), ("weekdays", 1, 7))
YEARS = ("years", 1970, 2199)
LOOK_AHEAD_DAYS = 366 * 8
"""A leap day comes within eight years."""

Due = Callable[[float], float]
"""An instant (s since the epoch) -> the next one at which the schedule is due, inf where there is none."""


def due_of(expression: str, *, timezone: str = "UTC", begins_at: float) -> Due:
    """Function that gives the next due time after an instant; ApiError where the expression or the zone is none.

    `begins_at`: when the schedule was made, or its StartDate.
    """
    zone = _zone(timezone)
    if found := RATE.fullmatch(expression):
        return _rate(int(found[1]) * UNIT_S[found[2]], begins_at)
    if found := AT.fullmatch(expression):
        try:
            once_at = datetime.fromisoformat(found[1]).replace(tzinfo=zone).timestamp()
        except ValueError as error:
            raise _wrong(expression) from error
        return lambda after: once_at if once_at > after else math.inf
    if (found := CRON.fullmatch(expression)) and len(found[1].split()) == 6:
        return _cron(found[1].upper().split(), zone, expression, begins_at)
    raise _wrong(expression)


def _rate(every_s: float, begins_at: float) -> Due:
    if not every_s:
        raise _wrong("rate(0 ...)")

    def due(after: float) -> float:
        return begins_at + every_s * max(0, math.floor((after - begins_at) / every_s) + 1)

    return due


def _cron(parts: list[str], zone: ZoneInfo, expression: str, begins_at: float) -> Due:
    if (parts[2] == "?") == (parts[4] == "?"):
        raise _wrong(expression)
    months = [MONTHS.index(name) + 1 if name in MONTHS else name for name in re.split(r"([^A-Z]+)", parts[3])]
    days = [DAYS.index(name) + 1 if name in DAYS else name for name in re.split(r"([^A-Z]+)", parts[4])]
    last_day = parts[2] == "L"
    texts = [
        parts[0],
        parts[1],
        "?" if last_day else parts[2],
        *("".join(map(str, p)) for p in (months, days)),
        parts[5],
    ]
    minutes, hours, monthdays, in_months, weekdays, years = (
        _values(text, *field, expression) for text, field in zip(texts, (*FIELDS, YEARS), strict=True)
    )

    def falls_on(day: date) -> bool:
        if day.year not in years or day.month not in in_months or day.isoweekday() % 7 + 1 not in weekdays:
            return False
        return (day + timedelta(days=1)).day == 1 if last_day else day.day in monthdays

    def due(after: float) -> float:
        since = max(after, begins_at - 1)
        first = datetime.fromtimestamp(since, zone).date()
        for ahead in range(LOOK_AHEAD_DAYS):
            day = first + timedelta(days=ahead)
            if falls_on(day):
                times = (_instant(day, hour, minute, zone) for hour in sorted(hours) for minute in sorted(minutes))
                if found := [at for at in times if at is not None and at > since]:
                    return min(found)
        return math.inf

    return due


def _values(text: str, name: str, low: int, high: int, expression: str) -> frozenset[int]:
    """All values that a field of the expression means."""
    if re.search(r"[LW#]", text):
        raise not_emulated(f"{text} as {name} of {expression}")
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(?:([*?])|(\d+)(?:-(\d+))?)(?:/(\d+))?", part)
        if not match:
            raise _wrong(expression)
        start = low if match[1] else int(match[2])
        end = int(match[3]) if match[3] else (high if match[1] or match[4] else start)
        every = int(match[4] or 1)
        if not low <= start <= end <= high or every == 0:
            raise _wrong(expression)
        found.update(range(start, end + 1, every))
    return frozenset(found)


def _instant(day: date, hour: int, minute: int, zone: ZoneInfo) -> float | None:
    """The wall's time there as an instant, the first of two; None where the clock skips it."""
    due_local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
    at = due_local.timestamp()
    shown = datetime.fromtimestamp(at, UTC).astimezone(zone)
    return at if (shown.hour, shown.minute) == (hour, minute) else None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ApiError("ValidationException", f"Invalid Schedule Expression Timezone {name}.") from error


def _wrong(expression: str) -> ApiError:
    return ApiError("ValidationException", f"Invalid Schedule Expression {expression}.")
