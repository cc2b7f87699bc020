"""Instants as files write them: epoch seconds to nanoseconds, ISO 8601 and its variants, dates of logs and sheets.

An instant that names no zone is UTC's until `localised` moves it to where the file was written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from enum import StrEnum
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAX_TIME_S = 1e11
"""The year 5138 in epoch seconds, 1973 in milliseconds: a time beyond it is in other units."""
UNITS = ((MAX_TIME_S, 1.0), (1e14, 1e3), (1e17, 1e6), (1e20, 1e9))
"""Up to which size a number is in seconds, milliseconds, microseconds, nanoseconds; and how many make a second."""
ISO = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)"
    r"(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s?(?:(Z|UTC|GMT)|([+-])(\d\d):?(\d\d)?)?)?"
)
"""A day, its time to the second or finer, and a zone; UTC where none is given."""
LOGGED = re.compile(
    r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?: ?([+-])(\d\d)(\d\d))?"
)
"""`10/Oct/2000:13:55:36 -0700`, as Apache, nginx, API Gateway and HAProxy write it."""
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SPREADSHEET = re.compile(
    r"(\d{1,2})([./])(\d{1,2})\2(\d{4})"
    r"(?:,?[T ](\d{1,2}):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(?: ?([AaPp])\.?[Mm]\.?)?)?"
)
"""`31.12.2026 15:04`, `12/31/2026 3:04 PM`: with dots the day comes first, with slashes the file must tell."""
PLAIN = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?Z?")
"""Instants that numpy reads by itself, but for the Z."""


HOUR_S, QUARTER_S = 3600.0, 900.0
MOST_STEP_S = 900.0
"""A file of longer steps does not show an hour that repeats or is missing."""
CHANGING = ("Europe/Berlin", "America/New_York", "Australia/Sydney")
"""One zone of each rule by which most clocks change."""


class DayOrder(StrEnum):
    """Order of a date with slashes."""

    DAY_FIRST = "dmy"
    MONTH_FIRST = "mdy"


class AmbiguousDates(ValueError):
    """Every date could be read either way."""


def is_instant(field: str) -> bool:
    """True for a date and time, or a day, in any of the ways."""
    return any(pattern.fullmatch(field) is not None for pattern in (ISO, LOGGED, SPREADSHEET))


def names_zone(field: str) -> bool:
    """True where the instant says its zone, or is a number of epoch seconds."""
    iso, logged = ISO.fullmatch(field), LOGGED.fullmatch(field)
    if iso is not None:
        return iso[8] is not None or iso[9] is not None
    return logged[8] is not None if logged is not None else SPREADSHEET.fullmatch(field) is None


def day_order(fields: Sequence[str]) -> DayOrder:
    """Order of the file's dates with slashes, any where it has none. AmbiguousDates where each could be either."""
    found = [parts for parts in map(SPREADSHEET.fullmatch, fields) if parts is not None and parts[2] == "/"]
    if any(int(parts[1]) > 12 for parts in found):
        return DayOrder.DAY_FIRST
    if not found or any(int(parts[3]) > 12 for parts in found):
        return DayOrder.MONTH_FIRST
    raise AmbiguousDates(fields[0])


def moment(at: float) -> str:
    """An epoch second as notes name it, to the minute."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def is_number(field: str) -> bool:
    """True for whatever `float` reads."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def seconds_of(fields: Sequence[str], order: DayOrder = DayOrder.MONTH_FIRST) -> Floats:
    """Epoch seconds of instants, shape (fields,). ValueError, with the field's index, where one is none.

    Plain ones, such as a log's, go through numpy at once.
    """
    plain = [field.removesuffix("Z") for field in fields if PLAIN.fullmatch(field)]
    if len(plain) == len(fields):
        try:
            instants = np.array(plain, dtype="datetime64[us]")
        except ValueError:
            pass  # a 30th of February: found below
        else:
            return instants.astype(np.int64) / 1e6
    found = np.empty(len(fields))
    for at, field in enumerate(fields):
        try:
            found[at] = _second(field, order)
        except ValueError:
            raise ValueError(at) from None
    return found


def unit_of(times: Floats) -> float | None:
    """Units a second of the numbers, by their size; None where they do not agree."""
    if not len(times):
        return 1.0
    low, high = np.abs(times).min(), np.abs(times).max()
    found = next((unit for most, unit in UNITS if high < most), None)
    if found is None or (found != 1.0 and low < MAX_TIME_S):
        return None
    return found


def localised(times: Floats, zone: ZoneInfo) -> Floats:
    """Epoch seconds of instants that were written by that zone's clocks, in the file's order.

    times: shape (rows,), as if the zone were UTC. An hour that clocks show twice is told by the row before: it is
    the one nearer to it.
    """
    quarters, where = np.unique(np.floor(times / QUARTER_S), return_inverse=True)
    moments = [datetime.fromtimestamp(at * QUARTER_S, UTC).replace(tzinfo=zone) for at in quarters.tolist()]
    early: Floats = times - np.array([_offset_s(moment) for moment in moments])[where]
    late = times - np.array([_offset_s(moment.replace(fold=1)) for moment in moments])[where]
    for row in np.flatnonzero(late > early).tolist():
        before = early[row - 1] if row else early[row]
        if abs(late[row] - before) < abs(early[row] - before):
            early[row] = late[row]
    return early


def clock_change(times: Floats) -> str:
    """Signs that times without a zone are those of clocks that were changed; empty without any.

    times: shape (rows,), in the file's order, as if the zone were UTC.
    """
    steps = np.diff(times)
    if len(steps) < 2:
        return ""
    usual_s = float(np.median(steps))
    if usual_s < 0:
        return clock_change(times[::-1])
    if usual_s > MOST_STEP_S:
        return ""
    slack_s = max(2 * usual_s, QUARTER_S / 3)
    back = np.flatnonzero((steps >= -HOUR_S) & (steps <= slack_s - HOUR_S))
    ahead = np.flatnonzero((steps >= HOUR_S) & (steps <= slack_s + HOUR_S))
    for rows, what in ((back, "an hour stands twice"), (ahead, "an hour is missing")):
        for row in rows.tolist():
            day = datetime.fromtimestamp(times[row + 1], UTC).date()
            zone = next((name for name in CHANGING if _changes(day, ZoneInfo(name))), None)
            if zone is not None:
                return f"its times name no zone, and {what} on {day}, when clocks change: --tz {zone}, or yours"
    return ""


def _changes(day: date, zone: ZoneInfo) -> bool:
    before = datetime(day.year, day.month, day.day, tzinfo=zone)
    return _offset_s(before) != _offset_s(before + timedelta(days=1))


def _offset_s(moment: datetime) -> float:
    offset = moment.utcoffset()
    assert offset is not None, "a zone of the database has one at any time"
    return offset.total_seconds()


def _second(field: str, order: DayOrder) -> float:
    parts = ISO.fullmatch(field)
    if parts is None:
        return _logged_second(field, order)
    year, month, day, hour, minute, second, fraction, _, sign, ahead_h, ahead_min = parts.groups()
    zone = UTC if sign is None else timezone(int(f"{sign}1") * _ahead(ahead_h, ahead_min))
    whole = datetime(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=zone
    )
    return whole.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)


def _logged_second(field: str, order: DayOrder) -> float:
    """Of a log's or a spreadsheet's date."""
    parts = LOGGED.fullmatch(field)
    if parts is not None:
        day, month, year, hour, minute, second, fraction, sign, ahead_h, ahead_min = parts.groups()
        zone = UTC if sign is None else timezone(int(f"{sign}1") * _ahead(ahead_h, ahead_min))
        clock = (int(hour), int(minute), int(second))
        whole = datetime(int(year), MONTHS.index(month) + 1, int(day), *clock, tzinfo=zone)
        return whole.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
    parts = SPREADSHEET.fullmatch(field)
    if parts is None:
        raise ValueError(field)
    one, mark, two, year, hour, minute, second, fraction, half = parts.groups()
    month_first = mark == "/" and order is DayOrder.MONTH_FIRST
    month, day = (one, two) if month_first else (two, one)
    hours = int(hour or 0) if half is None else int(hour) % 12 + 12 * (half in "Pp")
    whole = datetime(int(year), int(month), int(day), hours, int(minute or 0), int(second or 0), tzinfo=UTC)
    return whole.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)


def _ahead(hours: str, minutes: str | None) -> timedelta:
    return timedelta(hours=int(hours), minutes=int(minutes or 0))
