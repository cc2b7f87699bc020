"""The contract of an ensemble's parts: an expert forecasts quantiles of one series, from many origins at once.

A series is the rates per minute of one kind (means, or maxima of 5 s windows). An expert is a pure function of
what it was fitted on and of the series up to each origin: so a backtest, the mixture's bookkeeping after a restart
and the live service all see the same forecasts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Fact = TypeVar("Fact")

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Quantile levels of every forecast here; the levels that planners read lie between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """rates: shape (units,), requests/s, oldest first; `start_at` is when the first unit began, epoch seconds."""

    rates: Floats
    start_at: float
    unit_s: float = 60.0
    _found: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, key: Hashable, compute: Callable[[], Fact]) -> Fact:
        """Memoise `compute` by key: the experts of a mixture share facts of the series."""
        if key not in self._found:
            self._found[key] = compute()
        found: Fact = self._found[key]
        return found


class Expert(Protocol):
    """One way to forecast."""

    name: str
    #: History in units below which it is unavailable (its rows are NaN then).
    needs_units: int

    def forecast(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Quantiles of the `horizon` units after each origin, requests/s, rising over levels, at least 0.

        ends: shape (origins,), how many units are known at each origin: the rows of origin i depend on
        `series.rates[:ends[i]]` alone. Returns shape (origins, horizon, len(LEVELS)).
        """
        ...
