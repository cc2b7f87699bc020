"""Scores of forecasts (pinball loss, wQL, WAPE, MASE, coverage): functions of arrays, the same for all.

Rates are requests/s. A score is NaN where it has no meaning: nothing arrived, or nothing was scored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SCORED_LEVELS = (0.5, 0.75, 0.9, 0.95)
"""Quantile levels whose losses make up wQL: the median, and those that planners read."""


def pinball(actual: Floats, quantiles: Floats, levels: Sequence[float]) -> Floats:
    """Pinball loss of each quantile: `level` a unit below the actual, `1 - level` a unit above it.

    actual: shape (n,); quantiles: shape (n, levels). Returns shape (n, levels).
    """
    short = actual[:, None] - quantiles
    level = np.asarray(levels, dtype=np.float64)
    loss: Floats = np.where(short >= 0, level * short, (level - 1) * short)
    return loss


def weighted_quantile_loss(actual: Floats, quantiles: Floats, levels: Sequence[float]) -> float:
    """wQL: the mean over levels of 2 x the sum of pinball losses / the sum of actuals. Shapes as in `pinball`."""
    total = float(actual.sum())
    if not total > 0:
        return float("nan")
    return float(2 * pinball(actual, quantiles, levels).sum(axis=0).mean() / total)


def absolute_percentage(actual: Floats, median: Floats) -> float:
    """WAPE: the sum of absolute errors / the sum of actuals. Shapes (n,)."""
    total = float(actual.sum())
    return float(np.abs(actual - median).sum() / total) if total > 0 else float("nan")


def seasonal_error(history: Floats, season: int) -> float:
    """Mean absolute error of saying what was `season` units before, over a history of shape (units,).

    NaN where the history is no longer than a season, or repeats without any error.
    """
    if len(history) <= season:
        return float("nan")
    error = float(np.abs(history[season:] - history[:-season]).mean())
    return error if error > 0 else float("nan")


def scaled_error(actual: Floats, median: Floats, *, naive_error: float) -> float:
    """MASE: mean absolute error / that of the seasonal naive on the history. Shapes (n,)."""
    return float(np.abs(actual - median).mean() / naive_error) if len(actual) else float("nan")


def coverage(actual: Floats, quantiles: Floats) -> Floats:
    """Share of the actuals at or below each quantile, shape (levels,). Shapes as in `pinball`."""
    if not len(actual):
        return np.full(quantiles.shape[1], np.nan)
    shares: Floats = (actual[:, None] <= quantiles).mean(axis=0)
    return shares


def at_levels(rates: Floats, own: Sequence[float], wanted: Sequence[float]) -> Floats:
    """Quantiles at the levels `wanted`, on straight lines between the levels that there are.

    Beyond the lowest or highest of them that one stands; so a point forecast stands at every level. rates: shape
    (n, own levels), own levels rising. Returns shape (n, wanted levels).
    """
    have, want = np.asarray(own, dtype=np.float64), np.asarray(wanted, dtype=np.float64)
    if len(have) == 1:
        return np.repeat(rates, len(want), axis=1)
    right = np.clip(np.searchsorted(have, want), 1, len(have) - 1)
    left = right - 1
    share = np.clip((want - have[left]) / (have[right] - have[left]), 0.0, 1.0)
    found: Floats = rates[:, left] + share * (rates[:, right] - rates[:, left])
    return found
