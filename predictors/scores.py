"""Scores of forecasts: pure functions of arrays, the same for a backtest, a study and a test.

Shapes: `actual` (origins, horizon), what came, requests/s; `quantiles` (origins, horizon, levels), what was
forecast; `scored` (origins, horizon), which targets count (None: all of them). Targets that nobody knows (beyond
the series' end) and targets that are no real load (a trace's mirrored minutes) are left out by `scored`. A scored
target without a forecast (NaN) makes a score NaN: a forecaster that is silent has no score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictors.expert import LEVELS, Floats, Ints

Mask = NDArray[np.bool_]

WQL_LEVELS = (0.5, 0.75, 0.9, 0.95)
"""The levels of wQL: planners rent by what lies between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """All scores of one forecaster over the same targets. coverage: one share per level, in [0, 1]."""

    wape: float
    wql: float
    mase: float
    levels: tuple[float, ...]
    coverage: tuple[float, ...]


def score(
    actual: Floats,
    quantiles: Floats,
    *,
    scale_rps: float,
    scored: Mask | None = None,
    levels: Sequence[float] = LEVELS,
) -> Scores:
    """Every score of these forecasts; `scale_rps` is MASE's, see `mase_scale`."""
    median = quantiles[..., list(levels).index(0.5)]
    return Scores(
        wape=wape(actual, median, scored=scored),
        wql=wql(actual, quantiles, scored=scored, levels=levels),
        mase=mase(actual, median, scale_rps=scale_rps, scored=scored),
        levels=tuple(levels),
        coverage=coverage(actual, quantiles, scored=scored),
    )


def targets(units: Floats, ends: Ints, horizon: int) -> Floats:
    """What came after each origin: NaN beyond the series. units: shape (units,); returns (origins, horizon)."""
    where = ends[:, None] + np.arange(horizon)
    known = where < len(units)
    return np.where(known, units[np.where(known, where, 0)] if len(units) else np.nan, np.nan)


def scored_targets(actual: Floats, ends: Ints, left_out: Mask | None = None) -> Mask:
    """Which targets count: those that came, but for the units that `left_out` marks.

    left_out: shape (units,), True where a unit is no real load. Returns shape (origins, horizon).
    """
    scored: Mask = np.isfinite(actual)
    if left_out is not None:
        scored &= targets(left_out.astype(np.float64), ends, actual.shape[1]) == 0.0
    return scored


def pinball(actual: Floats, quantiles: Floats, levels: Sequence[float] = LEVELS) -> Floats:
    """The pinball loss of each forecast quantile, requests/s. Returns the shape of `quantiles`."""
    over = actual[..., None] - quantiles
    level = np.asarray(levels, np.float64)
    loss: Floats = np.maximum(level * over, (level - 1.0) * over)
    return loss


def wql(
    actual: Floats,
    quantiles: Floats,
    *,
    scored: Mask | None = None,
    levels: Sequence[float] = LEVELS,
    at: Sequence[float] = WQL_LEVELS,
) -> float:
    """The weighted quantile loss: the mean over the levels `at` of 2 x (sum of pinball losses) / (sum of actuals).

    At the level 0.5 alone it would be WAPE. A load of zeros that was forecast as zeros scores 0.
    """
    columns = [list(levels).index(level) for level in at]
    loss = pinball(actual, quantiles[..., columns], at).mean(axis=-1)
    return _share(2.0 * _total(loss, scored), _total(actual, scored))


def wape(actual: Floats, median: Floats, *, scored: Mask | None = None) -> float:
    """The weighted absolute percentage error of the median: sum of absolute errors / sum of actuals."""
    return _share(_total(np.abs(actual - median), scored), _total(actual, scored))


def mase(actual: Floats, median: Floats, *, scale_rps: float, scored: Mask | None = None) -> float:
    """The mean absolute scaled error: mean absolute error of the median / `scale_rps` (see `mase_scale`).

    It is a mean over all leads, while the scale is that of one forecast a day ahead: 1 is as good as "the same
    minute a day ago" was on the history.
    """
    counted = actual.size if scored is None else int(scored.sum())
    return _share(_total(np.abs(actual - median), scored), scale_rps * counted)


def mase_scale(history: Floats, *, season: int, left_out: Mask | None = None) -> float:
    """MASE's scale: the mean absolute error of "the same unit one season ago" over the history, requests/s.

    history: shape (units,). `season` is the units of a day. Pairs with a unit in `left_out` do not count. NaN
    where the history holds no pair.
    """
    if len(history) <= season:
        return float("nan")
    errors = np.abs(history[season:] - history[:-season])
    if left_out is not None:
        errors = errors[~(left_out[season:] | left_out[:-season])]
    return float(errors.mean()) if errors.size else float("nan")


def coverage(actual: Floats, quantiles: Floats, *, scored: Mask | None = None) -> tuple[float, ...]:
    """The share of scored targets that lie at or below each quantile, one value per level."""
    covered = np.where(np.isnan(quantiles), np.nan, actual[..., None] <= quantiles)
    if scored is None:
        scored = np.ones(actual.shape, np.bool_)
    if not scored.any():
        return tuple(math.nan for _ in range(quantiles.shape[-1]))
    shares: Floats = covered[scored].mean(axis=0)
    return tuple(map(float, shares))


def _total(values: Floats, scored: Mask | None) -> float:
    return float(values.sum() if scored is None else values[scored].sum())


def _share(part: float, whole: float) -> float:
    """Part of whole; nothing of nothing is 0, something of nothing is infinite."""
    if whole == 0.0:
        return part if part == 0.0 or math.isnan(part) else math.inf
    return part / whole
