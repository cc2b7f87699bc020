"""Empirical quantiles of a point rule's own residuals, by lead: how far it lately was from the outcomes.

The error of the point made at origin s for lead h is known once unit s + h has ended. At origin t the quantiles of
lead h come from the errors of the last `WINDOW` origins that were known at the lead's last *refresh*: leads take
turns, each is refreshed every `REFRESH` units, on the absolute clock. So a live update sorts 4 windows instead of
60, and a fresh object agrees with one that has followed the series for days. Errors are relative to the point
(plus 2 % of the last day's mean, so that an hour of zeros gives finite ones).

What was computed is kept for the next origin. It is an optimisation alone: it is used only where the series shown
continues the one it was computed from, value by value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictors.classical.points import PointRule, day_levels, first_unit
from predictors.classical.sliding import sliding_quantiles
from predictors.expert import LEVELS, Floats, Ints, Series

WINDOW = 2 * 1440
"""Origins whose errors count: two days hold every hour of the day twice."""
REFRESH = 15
"""Units between two refreshes of a lead."""
FEWEST = 10
"""Errors that a lead needs; with fewer it borrows the quantiles of the next shorter lead."""
FLOOR_SHARE = 0.02
"""Of the last day's mean: what errors are relative to, beside the point."""
LARGEST = 20.0
"""A relative error beyond this (the first minutes after a night without load) counts as this."""
SPARE = 1024
"""Rows that a live update may add before the kept arrays are moved."""


class PointExpert:
    """A rule with the quantiles of its own past errors. Not for several threads: it keeps what it computed."""

    def __init__(self, rule: PointRule, *, window: int = WINDOW) -> None:
        """Take the rule's name; it needs the history of the rule and some known errors more."""
        self.name = rule.name
        self.needs_units = rule.needs_units + FEWEST + REFRESH - 1
        self._rule = rule
        self._window = window
        self._kept: _Kept | None = None

    def forecast(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Quantiles after each origin, see `Expert`. Returns shape (origins, horizon, len(LEVELS))."""
        answer = np.full((len(ends), horizon, len(LEVELS)), np.nan)
        able = (ends >= self.needs_units) & (ends <= len(series.rates))
        if not able.any():
            return answer
        wanted = ends[able]
        kept = self._follow(series, int(wanted.min()), int(wanted.max()), horizon)
        offsets = kept.offsets(wanted + first_unit(series))
        rows = wanted + first_unit(series) - kept.first
        points, floors = kept.points[rows][..., None], kept.floors[rows][:, None, None]
        found = np.maximum(points + offsets * (points + floors), 0.0)
        answer[able] = np.maximum.accumulate(found, axis=-1)
        return answer

    def _follow(self, series: Series, low: int, high: int, horizon: int) -> _Kept:
        """The points and errors of all origins that the quantiles at [low, high] depend on."""
        oldest = low - REFRESH - horizon - self._window + 1
        start = first_unit(series)
        kept = self._kept
        if kept is None or not kept.goes_on(series, start + oldest, start + high, horizon):
            kept = self._kept = _Kept.empty(start + oldest, high - oldest + 1 + SPARE, horizon, self._window)
        kept.extend(self._rule, series, start + oldest, start + high)
        return kept


class BarePoint:
    """A rule's point as every quantile: a few errors may be worse than none."""

    def __init__(self, rule: PointRule) -> None:
        """Make it available where the rule with its errors is: with less, `adapter.py` has a safer rule."""
        self.name = f"{rule.name} (bare)"
        self.needs_units = PointExpert(rule).needs_units
        self._rule = rule

    def forecast(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """The point at every level after each origin, see `Expert`."""
        answer = np.full((len(ends), horizon, len(LEVELS)), np.nan)
        able = (ends >= self.needs_units) & (ends <= len(series.rates))
        if able.any():
            answer[able] = self._rule.points(series, ends[able], horizon)[..., None]
        return answer


@dataclass(slots=True)
class _Kept:
    """Points and errors of consecutive origins; origins and units are counted from epoch 0.

    first: the origin of row 0. filled: rows in use. points: shape (rows, horizon); errors: (horizon, rows), NaN
    where unknown. floors: shape (rows,), what errors are relative to beside the point. refreshed: shape
    (horizon,), when each lead's latest quantiles, `latest` (horizon, levels), were computed. seen: what all is
    made from.
    """

    first: int
    filled: int
    window: int
    points: Floats
    errors: Floats
    floors: Floats
    refreshed: Ints
    latest: Floats
    seen: Series | None = None

    @staticmethod
    def empty(first: int, capacity: int, horizon: int, window: int) -> _Kept:
        """Room for `capacity` origins from `first` on."""
        return _Kept(
            first=first,
            filled=0,
            window=window,
            points=np.full((capacity, horizon), np.nan),
            errors=np.full((horizon, capacity), np.nan),
            floors=np.full(capacity, np.nan),
            refreshed=np.full(horizon, np.iinfo(np.int64).min),
            latest=np.full((horizon, len(LEVELS)), np.nan),
        )

    def goes_on(self, series: Series, oldest: int, newest: int, horizon: int) -> bool:
        """True where the kept rows serve [oldest, newest]: the same horizon, and the same series, continued."""
        if self.seen is None or series.unit_s != self.seen.unit_s or horizon != self.points.shape[1]:
            return False
        if not self.first <= oldest <= self.first + self.filled or newest - oldest >= len(self.points):
            return False
        old, new = first_unit(self.seen), first_unit(series)
        ended = old + len(self.seen.rates)
        if not old <= new <= ended <= new + len(series.rates):
            return False
        return np.array_equal(self.seen.rates[new - old :], series.rates[: ended - new])

    def extend(self, rule: PointRule, series: Series, oldest: int, newest: int) -> None:
        """Add the origins up to `newest`, and the errors that became known with the units up to there."""
        if newest - self.first >= len(self.points):
            self._forget(oldest)
        rows = slice(self.filled, newest - self.first + 1)
        self.seen = series
        if rows.start >= rows.stop:
            return
        ends = np.arange(self.first + rows.start, newest + 1) - first_unit(series)
        able = ends >= max(1, rule.needs_units)
        if able.any():
            self.points[rows][able] = rule.points(series, ends[able], self.points.shape[1])
            self.floors[rows][able] = FLOOR_SHARE * day_levels(series, ends[able])
        self.filled = rows.stop
        known = slice(max(0, rows.start - self.points.shape[1]), rows.stop)
        self.errors[:, known] = self._errors(series, known, newest).T

    def offsets(self, origins: Ints) -> Floats:
        """Quantiles of the relative errors known at each origin. Returns shape (origins, horizon, levels)."""
        horizon = self.points.shape[1]
        refreshes = origins[:, None] - (origins[:, None] + np.arange(horizon)) % REFRESH
        found = np.repeat(self.latest[None], len(origins), axis=0)
        stale = np.flatnonzero((refreshes != self.refreshed).any(axis=0))
        if len(origins) == 1:  # a live update
            self.refreshed[stale] = refreshes[0, stale]
            for lead in stale:
                self.latest[lead] = found[0, lead] = self._quantiles(lead, refreshes[:, lead])[0]
        else:
            for lead in stale:
                times, which = np.unique(refreshes[:, lead], return_inverse=True)
                found[:, lead] = self._quantiles(lead, times)[which]
        if np.isnan(found).any():
            for longer in range(1, horizon):
                found[:, longer] = np.where(np.isnan(found[:, longer]), found[:, longer - 1], found[:, longer])
        return found

    def _errors(self, series: Series, rows: slice, newest: int) -> Floats:
        """Relative errors of these rows' points as far as units before `newest` tell. Shape (rows, horizon)."""
        origins = self.first + np.arange(rows.start, rows.stop)
        units = origins[:, None] + np.arange(self.points.shape[1])
        indexes = np.clip(units - first_unit(series), 0, len(series.rates) - 1)
        points = self.points[rows]
        scale = np.maximum(points + self.floors[rows][:, None], np.finfo(np.float64).tiny)
        with np.errstate(over="ignore"):
            errors = np.minimum((series.rates[indexes] - points) / scale, LARGEST)
        return np.where(units < newest, errors, np.nan)

    def _quantiles(self, lead: np.int64, times: Ints) -> Floats:
        """Quantiles of a lead's errors in the window before each refresh: shape (times, levels)."""
        return sliding_quantiles(self.errors[lead], times - lead - self.first, self.window, fewest=FEWEST)

    def _forget(self, oldest: int) -> None:
        """Move the rows from `oldest` on to the front."""
        gone = oldest - self.first
        left = self.filled - gone
        self.points[:left] = self.points[gone : self.filled].copy()
        self.errors[:, :left] = self.errors[:, gone : self.filled].copy()
        self.floors[:left] = self.floors[gone : self.filled].copy()
        self.first, self.filled = oldest, left
