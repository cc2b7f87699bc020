"""Rows of one file, whatever its format: instants of requests, or counts or rates of bins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured
from mark.simulator.traces.formats.filters import Where

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Kind(StrEnum):
    """What a row is."""

    REQUEST = "requests"
    COUNT = "counts"
    RATE = "rates"
    UNSAID = "counts or rates"
    """A number per bin that no header names: counts where all are whole, else rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How a trace is to be read. `rows` is what a row holds where the file does not say; None: the file says."""

    where: Where = field(default_factory=Where)
    rows: Kind | None = None

    def number_kind(self, usual: Kind, name: str) -> Kind:
        """What the numbers of a metric are, `usual` where nothing else is asked for."""
        if self.rows is Kind.REQUEST:
            raise Misconfigured(f"{name} holds a number a period, no row a request; say --rows counts or rates")
        return self.rows or usual


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of a file.

    times: shape (rows,), epoch seconds or seconds from another zero. values: shape (rows,), of bins that start at
    `times`; None for requests. lines: shape (rows,), where they stand. bin_s: where the file says it. exact: times
    are whole multiples of the bin, some of which may be missing. as_is: instants that are replayed as written.
    groups: requests of each target group.
    """

    name: str
    format: str
    kind: Kind
    times: Floats
    values: Floats | None = None
    lines: Ints | None = None
    bin_s: float | None = None
    exact: bool = False
    as_is: bool = False
    groups: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def wrong(self, row: int, what: str) -> Misconfigured:
        """The error about a row."""
        at = "" if self.lines is None else f", line {int(self.lines[row])}"
        return Misconfigured(f"{self.name}{at}: {what}")
