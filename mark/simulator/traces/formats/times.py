"""Instants as files write them: epoch seconds to nanoseconds, ISO 8601 and its usual variants."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone

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
PLAIN = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?Z?")
"""Instants that numpy reads by itself, but for the Z."""


def is_instant(field: str) -> bool:
    """True for a date and time, or a day, of ISO 8601 or its variants."""
    return ISO.fullmatch(field) is not None


def is_number(field: str) -> bool:
    """True for whatever `float` reads."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def seconds_of(fields: Sequence[str]) -> Floats:
    """Epoch seconds of ISO instants, shape (fields,). ValueError, with the field's index, where one is none.

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
            found[at] = _second(field)
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


def _second(field: str) -> float:
    parts = ISO.fullmatch(field)
    if parts is None:
        raise ValueError(field)
    year, month, day, hour, minute, second, fraction, _, sign, ahead_h, ahead_min = parts.groups()
    ahead = timedelta(hours=int(ahead_h or 0), minutes=int(ahead_min or 0))
    zone = UTC if sign is None else timezone(int(f"{sign}1") * ahead)
    whole = datetime(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=zone
    )
    return whole.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
