"""Rolling backtest of a mixture: losses of its experts, and PIT values of the outcomes under its own forecasts.

A row per scored origin, oldest first. Origins are counted in units from epoch 0, and scored where that number is a
multiple of the stride: so a fresh start scores the same ones as a service that has run for days. Rows hold what is
known by the newest unit; a reader at an earlier origin masks what was not known there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from mark.predictors.classical.points import first_unit
from mark.predictors.expert import LEVELS, Expert, Floats, Ints, Series
from mark.predictors.mixture.conformal import pit_values
from mark.predictors.mixture.scores import pinball, targets
from mark.predictors.mixture.weights import Losses, Mask, MixtureSettings


@dataclass(slots=True, kw_only=True)
class _Rows:
    """Scored origins, one a row; `loss`, `available` and `common` are those of `Losses`."""

    #: Units from epoch 0, shape (rows,).
    origins: Ints
    loss: Floats
    available: Mask
    common: Floats
    #: The mixture's forecasts, shape (rows, horizon, levels); NaN where unavailable.
    mixed: Floats
    #: Ranks of the outcomes in them, see `pit_values`, shape (rows, horizon); NaN where unknown.
    pit_values: Floats

    def some(self, part: slice) -> _Rows:
        return _Rows(**{field.name: getattr(self, field.name)[part] for field in fields(self)})

    def and_then(self, more: _Rows) -> _Rows:
        return _Rows(
            **{
                field.name: np.concatenate([getattr(self, field.name), getattr(more, field.name)])
                for field in fields(self)
            }
        )


class Scored:
    """Scored origins of one series; follows it as it goes on and starts anew where it is another one."""

    def __init__(self, experts: Sequence[Expert], settings: MixtureSettings) -> None:
        """Nothing is scored yet. `starts` counts how often it started anew."""
        self._experts = tuple(experts)
        self._settings = settings
        self._starts = np.concatenate([[0], settings.bands[:-1]]).astype(np.int64)
        self.starts = 0
        self._lowest = 0
        self._seen: Series | None = None
        self._rows = self._empty_rows(np.empty(0, np.int64))
        self._open = np.empty((0, len(self._experts), settings.horizon, len(LEVELS)))

    def follow(self, series: Series, low: int, high: int, mixed_at: Callable[[Floats, int], Floats]) -> None:
        """Score all origins that forecasts at ends in [low, high] depend on.

        mixed_at: mixes the predictions (experts, horizon, levels) of an origin.
        """
        start, stride = first_unit(series), self._settings.stride
        outcomes = self._units(self._settings.recalibrated_s, series.unit_s)
        # Mixtures before low are outcomes, and had their weights from the memory before theirs. One expert alone
        # has all the weight.
        memory = self._units(self._settings.memory_s, series.unit_s) if len(self._experts) > 1 else 0
        back = memory + outcomes
        first = -(-(start + max(1, low - back)) // stride) * stride
        if start + low < self._lowest or not self._goes_on(series, high, first):
            self._rows = self._empty_rows(np.empty(0, np.int64))
            self._open = self._open[:0]
            self.starts += 1
            self._lowest = start + low  # before it, some mixtures that it depends on are not known
        self._seen = Series(rates=series.rates[:high], start_at=series.start_at, unit_s=series.unit_s)
        scored = self._rows.origins
        new = np.arange(scored[-1] + stride if len(scored) else first, start + high + 1, stride)
        if not len(new):
            return  # nothing is learned between scored origins
        predictions = predict_all(self._experts, series, new - start, self._settings.horizon)
        kept = self._rows.some(slice(int(np.searchsorted(scored, first)), None))
        self._rows = kept.and_then(self._empty_rows(new))
        self._open = np.concatenate([self._open, predictions])
        self._score_open_rows(start + high)
        for row in range(len(self._rows.origins) - len(new), len(self._rows.origins)):
            origin = int(self._rows.origins[row])
            if origin > start + low - outcomes:  # the mixtures before it are nobody's outcomes
                self._rows.mixed[row] = mixed_at(self._open[row - len(self._rows.origins)], origin)
        self._record_pit_values()
        self._open = self._open[np.flatnonzero(self._newest().origins + self._settings.horizon > start + high)]

    def are_scored(self, origins: Ints) -> Mask:
        """Mask of those origins that have a row with a mixture in it."""
        scored = self._rows.origins
        if not len(scored):
            return np.zeros(len(origins), np.bool_)
        rows = np.minimum(np.searchsorted(scored, origins), len(scored) - 1)
        found: Mask = (scored[rows] == origins) & np.isfinite(self._rows.mixed[rows, 0, 0])
        return found

    def mixed_at(self, origin: int) -> Floats:
        """The mixture's forecast at a scored origin: shape (horizon, levels)."""
        found: Floats = self._rows.mixed[np.searchsorted(self._rows.origins, origin)]
        return found

    def losses_at(self, origin: int, unit_s: float) -> tuple[Losses, Ints, Floats]:
        """Losses that count at an origin, how many of their rows were known there in each band, and ages, s."""
        rows = self._window(origin, self._units(self._settings.memory_s, unit_s))
        losses = Losses(loss=rows.loss, available=rows.available, common=rows.common)
        ended = origin - np.array(self._settings.bands)
        known = np.searchsorted(rows.origins, ended, side="right").astype(np.int64)
        ages_s: Floats = (origin - rows.origins) * np.float64(unit_s)
        return losses, known, ages_s

    def pit_values_at(self, origin: int, unit_s: float) -> Floats:
        """PIT values of the outcomes known at an origin: shape (rows, horizon), NaN where unknown."""
        rows = self._window(origin, self._units(self._settings.recalibrated_s, unit_s))
        known = rows.origins[:, None] + np.arange(1, self._settings.horizon + 1) <= origin
        return np.where(known, rows.pit_values, np.nan)

    @staticmethod
    def _units(seconds: float, unit_s: float) -> int:
        return round(seconds / unit_s)

    def _window(self, origin: int, memory: int) -> _Rows:
        low, high = np.searchsorted(self._rows.origins, [origin - memory, origin - 1], side="right")
        return self._rows.some(slice(int(low), int(high)))

    def _goes_on(self, series: Series, high: int, first: int) -> bool:
        """True where following this series from its start would have made the rows kept, as far as they reach."""
        seen, origins = self._seen, self._rows.origins
        if seen is None or seen.unit_s != series.unit_s or not len(origins):
            return False
        old, new = first_unit(seen), first_unit(series)
        ended = old + len(seen.rates)
        if not (old <= new <= ended <= new + high and origins[0] <= first <= origins[-1] + self._settings.stride):
            return False
        return np.array_equal(seen.rates[new - old :], series.rates[: ended - new])

    def _newest(self) -> _Rows:
        """The rows of `_open`."""
        return self._rows.some(slice(len(self._rows.origins) - len(self._open), None))

    def _actual(self, rows: _Rows) -> Floats:
        assert self._seen is not None
        return targets(self._seen.rates, rows.origins - first_unit(self._seen), self._settings.horizon)

    def _score_open_rows(self, newest: int) -> None:
        """Losses of the open rows, as far as they are known; a band is known when its last lead is."""
        assert self._seen is not None
        rows = self._newest()
        loss = pinball(self._actual(rows)[:, None], self._open)
        widths = np.diff(np.append(self._starts, self._settings.horizon))
        banded = np.add.reduceat(loss, self._starts, axis=2) / widths[:, None]
        learned_until = np.array([getattr(expert, "out_of_sample_from", -np.inf) for expert in self._experts])
        rows.available[:] = np.isfinite(self._open[:, :, 0, 0]) & (
            rows.origins[:, None] * self._seen.unit_s >= learned_until
        )
        known = rows.origins[:, None] + np.array(self._settings.bands) <= newest
        counts = known[:, None, :, None] & rows.available[:, :, None, None]
        rows.loss[:] = np.where(counts, banded, 0.0)
        rows.common[:] = rows.loss.sum(axis=1) / rows.available.sum(axis=1).clip(1)[:, None, None]

    def _record_pit_values(self) -> None:
        """Fill in the open rows' PIT values; an outcome that every available expert learned from has none."""
        rows = self._newest()
        found = pit_values(rows.mixed, self._actual(rows))
        rows.pit_values[:] = np.where(rows.available.any(axis=1, keepdims=True), found, np.nan)

    def _empty_rows(self, origins: Ints) -> _Rows:
        count, experts, bands = len(origins), len(self._experts), len(self._settings.bands)
        horizon, levels = self._settings.horizon, len(LEVELS)
        return _Rows(
            origins=origins,
            loss=np.zeros((count, experts, bands, levels)),
            available=np.zeros((count, experts), np.bool_),
            common=np.zeros((count, bands, levels)),
            mixed=np.full((count, horizon, levels), np.nan),
            pit_values=np.full((count, horizon), np.nan),
        )


def predict_all(experts: Sequence[Expert], series: Series, ends: Ints, horizon: int) -> Floats:
    """Forecasts of all experts: shape (origins, experts, horizon, levels), NaN where one is unavailable."""
    return np.stack([expert.forecast(series, ends, horizon) for expert in experts], axis=1)
