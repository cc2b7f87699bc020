"""Rows of one file, whatever its format: instants of requests, or counts or rates of bins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured
from mark.simulator.traces.formats.filters import Where
from mark.simulator.traces.formats.times import DayOrder, clock_change, localised

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class RowKind(StrEnum):
    """Meaning of a row."""

    REQUEST = "requests"
    COUNT = "counts"
    RATE = "rates"
    UNSAID = "counts or rates"
    """A number per bin that no header names: counts where all are whole, else rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """Options of reading a trace."""

    #: Filter of requests or series.
    where: Where = field(default_factory=Where)
    #: Meaning of a row where the file leaves it open; None: the file defines it.
    rows: RowKind | None = None
    #: Name of the column, or the key, that holds the time, and of the one that holds the load; None: guessed.
    time: str | None = None
    value: str | None = None
    #: Zone of times that name none; None for UTC.
    zone: ZoneInfo | None = None
    #: Order of dates with slashes; None where the file tells it.
    dates: DayOrder | None = None

    def number_kind(self, default: RowKind, name: str) -> RowKind:
        """Meaning of the numbers of a metric: `default` unless the options set another."""
        if self.rows is RowKind.REQUEST:
            raise Misconfigured(f"{name} holds a number a period, no row a request; use --rows counts or rates")
        return self.rows or default


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of a file."""

    name: str
    format: str
    kind: RowKind
    #: Epoch seconds or seconds from another zero, shape (rows,).
    times: Floats
    #: Numbers of the bins that start at `times`, shape (rows,); None for requests.
    values: Floats | None = None
    #: Line numbers in the file, shape (rows,).
    lines: Ints | None = None
    #: Length of a bin where the file gives it, s.
    bin_s: float | None = None
    #: Times are whole multiples of the bin, some of which may be missing.
    exact: bool = False
    #: Instants are replayed as written.
    as_is: bool = False
    #: Requests of each target group.
    groups: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    #: What shows that the times are of a zone that was not named; empty where nothing does.
    clock_change: str = ""

    def in_zone(self, zone: ZoneInfo | None) -> Rows:
        """The rows, whose times name no zone, by that zone's clocks; with a note where they seem to be of one."""
        if zone is not None:
            return replace(self, times=localised(self.times, zone))
        found = clock_change(self.times)
        return replace(self, clock_change=found, notes=(*self.notes, found)) if found else self

    def wrong(self, row: int, what: str) -> Misconfigured:
        """The error about a row."""
        return Misconfigured(f"{self.name_of(row)}: {what}")

    def name_of(self, row: int, *, with_file: bool = True) -> str:
        """A row's file and line, or its line alone; the file where lines are not counted."""
        if self.lines is None:
            return self.name
        line = f"line {int(self.lines[row])}"
        return f"{self.name}, {line}" if with_file else line
