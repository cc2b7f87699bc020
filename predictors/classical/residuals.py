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

from mark.predictors.classical.points import PointRule, day_levels, first_unit
from mark.predictors.classical.sliding import sliding_quantiles
from mark.predictors.expert import LEVELS, Floats, Ints, Series

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
SPARE = 64
"""Rows that live updates may add before the kept arrays are moved: an hour's."""


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
        """The points of all origins that the quantiles at [low, high] depend on."""
        start = first_unit(series)
        oldest = start + max(0, low - REFRESH - horizon - self._window + 1)  # before it nothing is known
        kept = self._kept
        if kept is None or not kept.goes_on(series, oldest, horizon):
            kept = self._kept = _Kept.empty(oldest, horizon, self._window)
        kept.extend(self._rule, series, oldest, start + high)
        if low == high:  # a live update; the days of a start are scored at once, and never asked for again
            kept.shrink(oldest - SPARE)
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
    """Points of consecutive origins; origins and units are counted from epoch 0.

    first: the origin of row 0. filled: rows in use. points: shape (rows, horizon), or (rows, 1) of a rule whose
    point is the same for all leads; NaN where there is none. floors: shape (rows,), what errors are relative to
    beside the point. refreshed: shape (horizon,), when each lead's latest quantiles, `latest` (horizon, levels),
    were computed. seen: what all is made from. Errors follow from points and `seen` and are not kept: two days of
    them, for every expert of every model, would be most of a controller's memory.
    """

    first: int
    filled: int
    horizon: int
    window: int
    points: Floats
    floors: Floats
    refreshed: Ints
    latest: Floats
    seen: Series | None = None

    @staticmethod
    def empty(first: int, horizon: int, window: int) -> _Kept:
        """No origin yet; the first will be `first`."""
        return _Kept(
            first=first,
            filled=0,
            horizon=horizon,
            window=window,
            points=np.empty((0, horizon)),
            floors=np.empty(0),
            refreshed=np.full(horizon, np.iinfo(np.int64).min),
            latest=np.full((horizon, len(LEVELS)), np.nan),
        )

    def goes_on(self, series: Series, oldest: int, horizon: int) -> bool:
        """True where the kept rows serve origins from `oldest` on: the same horizon and series, continued."""
        if self.seen is None or series.unit_s != self.seen.unit_s or horizon != self.horizon:
            return False
        if not self.first <= oldest <= self.first + self.filled:
            return False
        old, new = first_unit(self.seen), first_unit(series)
        ended = old + len(self.seen.rates)
        if not old <= new <= ended <= new + len(series.rates):
            return False
        return np.array_equal(self.seen.rates[new - old :], series.rates[: ended - new])

    def extend(self, rule: PointRule, series: Series, oldest: int, newest: int) -> None:
        """Add the origins up to `newest`."""
        self.seen = series
        rows = slice(self.filled, newest - self.first + 1)
        if rows.start >= rows.stop:
            return
        ends = np.arange(self.first + rows.start, newest + 1) - first_unit(series)
        able = ends >= max(1, rule.needs_units)
        leads = 1 if rule.is_level else self.horizon
        if rows.stop > len(self.points):
            rows = self._make_room(oldest, newest, leads)
        self.points[rows], self.floors[rows] = np.nan, np.nan
        if able.any():
            self.points[rows][able] = rule.points(series, ends[able], leads)
            self.floors[rows][able] = FLOOR_SHARE * day_levels(series, ends[able])
        self.filled = rows.stop

    def offsets(self, origins: Ints) -> Floats:
        """Quantiles of the relative errors known at each origin. Returns shape (origins, horizon, levels)."""
        horizon = self.horizon
        refreshes = origins[:, None] - (origins[:, None] + np.arange(horizon)) % REFRESH
        found = np.repeat(self.latest[None], len(origins), axis=0)
        stale = np.flatnonzero((refreshes != self.refreshed).any(axis=0))
        if len(origins) == 1:  # a live update
            self.refreshed[stale] = refreshes[0, stale]
            for lead in stale:
                self.latest[lead] = found[0, lead] = self._quantiles(int(lead), refreshes[:, lead])[0]
        else:
            for lead in stale:
                times, which = np.unique(refreshes[:, lead], return_inverse=True)
                found[:, lead] = self._quantiles(int(lead), times)[which]
        if np.isnan(found).any():
            for longer in range(1, horizon):
                found[:, longer] = np.where(np.isnan(found[:, longer]), found[:, longer - 1], found[:, longer])
        return found

    def _quantiles(self, lead: int, times: Ints) -> Floats:
        """Quantiles of a lead's errors in the window before each refresh: shape (times, levels)."""
        ends = times - lead
        first = int(ends[0]) - self.window
        return sliding_quantiles(
            self._errors(lead, first, int(ends[-1])), ends - first, self.window, fewest=FEWEST
        )

    def _errors(self, lead: int, first: int, last: int) -> Floats:
        """Relative errors of a lead's points at the origins [first, last), NaN where there is none.

        The units that they tell of must have ended.
        """
        assert self.seen is not None
        found, start = np.full(last - first, np.nan), first_unit(self.seen)
        low, high = max(first, self.first, start), min(last, self.first + self.filled)
        if low >= high:
            return found
        rows = slice(low - self.first, high - self.first)
        points = self.points[rows, min(lead, self.points.shape[1] - 1)]
        scale = np.maximum(points + self.floors[rows], np.finfo(np.float64).tiny)
        actual = self.seen.rates[low + lead - start : high + lead - start]
        with np.errstate(over="ignore"):
            found[low - first : high - first] = np.minimum((actual - points) / scale, LARGEST)
        return found

    def shrink(self, oldest: int) -> None:
        """Drop the rows before `oldest`, where they are many."""
        if oldest - self.first > self.window // 2:
            self._make_room(oldest, self.first + self.filled - 1, self.points.shape[1])

    def _make_room(self, oldest: int, newest: int, leads: int) -> slice:
        """Drop the rows before `oldest` and have room up to `newest`; the rows that are new."""
        left = slice(oldest - self.first, self.filled)
        capacity, count = newest - oldest + 1 + SPARE, self.filled - left.start
        points, floors = np.empty((capacity, leads)), np.empty(capacity)
        if count:
            points[:count], floors[:count] = self.points[left], self.floors[left]
        self.points, self.floors = points, floors
        self.first, self.filled = oldest, count
        return slice(count, newest - oldest + 1)
