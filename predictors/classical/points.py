"""Point forecasts: rules that give one rate per unit to come. `residuals.py` makes quantiles of them.

A rule is a pure function of the series up to each origin, over many origins at once. Where it depends on more than
the last hours it looks back a bounded time, so that a history of two weeks gives the same points as a longer one.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from mark.predictors.expert import Floats, Ints, Series

DAY_S = 86_400.0
HOUR_S = 3_600.0
ROUNDING = 1e-4
"""Of a unit: a start that lies so little before a unit's own is that unit's, but for the rounding of a sum."""


class PointRule(Protocol):
    """One way to a point forecast."""

    name: str
    #: History that it needs, units.
    needs_units: int
    #: True where its point is the same for all units to come.
    is_level: bool

    def points(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Rates of the `horizon` units after each origin, requests/s, at least 0.

        ends: shape (origins,), rising, the units that are known at each origin: at least `needs_units`. Returns
        shape (origins, horizon).
        """
        ...


class LastValueRule:
    """The last unit, repeated."""

    name = "last-value"
    needs_units = 1
    is_level = True

    def points(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Rates after each origin; see `PointRule`."""
        return _held(windows_before(series.rates, ends, 1)[:, 0], horizon)


class MovingMeanRule:
    """The mean of the last 15 minutes, repeated."""

    name = "moving-mean"
    needs_units = 15
    is_level = True

    def points(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Rates after each origin; see `PointRule`."""
        return _held(windows_before(series.rates, ends, self.needs_units).mean(axis=1), horizon)


class DriftRule:
    """The mean of the last 15 minutes, moving on as it moved over the last hour: a quarter of it.

    The full drift overshoots wherever a load turns. A forecast lies between 0 and three times the mean that it
    starts from.
    """

    name = "drift"
    needs_units = 60
    is_level = False
    _part = 15
    _share = 0.25
    _most = 3.0

    def points(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Rates after each origin; see `PointRule`."""
        hour = windows_before(series.rates, ends, self.needs_units)
        newest, oldest = hour[:, -self._part :].mean(axis=1), hour[:, : self._part].mean(axis=1)
        slope = self._share * (newest - oldest) / (self.needs_units - self._part)
        leads = np.arange(1, horizon + 1) + (self._part - 1) / 2
        moved = newest[:, None] + slope[:, None] * leads
        points: Floats = np.clip(moved, 0.0, self._most * newest[:, None])
        return points


def windows_before(rates: Floats, ends: Ints, units: int) -> Floats:
    """The last `units` units before each origin, each of which has so many. Returns shape (origins, units)."""
    if len(ends) == 1:  # a live update: a view of all windows would take longer than the window
        return rates[None, ends[0] - units : ends[0]]
    return np.lib.stride_tricks.sliding_window_view(rates, units)[ends - units]


def day_levels(series: Series, ends: Ints) -> Floats:
    """The mean rate of the last day before each origin, in whole hours of the absolute clock. Shape (origins,).

    Where less is known it is the mean of the whole hours that are, and within the first hours of all that is.
    Whole hours make it the same number whatever the series' first unit is.
    """
    if len(ends) == 1:
        return series.once(("day level", int(ends[0])), lambda: _day_levels(series, ends))
    return _day_levels(series, ends)


def _day_levels(series: Series, ends: Ints) -> Floats:
    hour = max(1, round(HOUR_S / series.unit_s))
    day = max(1, round(season_units(series) / hour))
    low = max(0, int(ends.min()) - (day + 1) * hour)
    rates, start = series.rates[low : int(ends.max())], first_unit(series) + low
    lead_in = -start % hour
    hours = max(0, len(rates) - lead_in) // hour
    means = rates[lead_in : lead_in + hours * hour].reshape(hours, hour).mean(axis=1)
    counts = np.maximum(ends - low - lead_in, 0) // hour
    levels, whole = np.empty(len(ends)), counts >= day
    if whole.any():
        levels[whole] = windows_before(means, counts[whole], day).mean(axis=1)
    for row in np.flatnonzero(~whole):
        levels[row] = (means[: counts[row]] if counts[row] else series.rates[: ends[row]]).mean()
    return levels


def first_unit(series: Series) -> int:
    """The absolute number of the series' first unit: units are counted from epoch 0."""
    return math.floor(series.start_at / series.unit_s + ROUNDING)


def season_units(series: Series) -> int:
    """Units of a day: the season of every rule here."""
    return max(1, round(DAY_S / series.unit_s))


def _held(level: Floats, horizon: int) -> Floats:
    return np.repeat(level[:, None], horizon, axis=1)
