"""Outcomes after each origin and the pinball loss of forecasts, by which the mixture scores its experts.

The scores of a backtest's report are `mark.simulator.scores`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mark.predictors.expert import LEVELS, Floats, Ints


def targets(units: Floats, ends: Ints, horizon: int) -> Floats:
    """Outcomes after each origin, NaN beyond the series. units: shape (units,); returns (origins, horizon)."""
    where = ends[:, None] + np.arange(horizon)
    known = where < len(units)
    return np.where(known, units[np.where(known, where, 0)] if len(units) else np.nan, np.nan)


def pinball(actual: Floats, quantiles: Floats, levels: Sequence[float] = LEVELS) -> Floats:
    """The pinball loss of each forecast quantile, requests/s; NaN where either is unknown.

    actual: shape (origins, horizon); quantiles: shape (origins, horizon, levels), which is returned.
    """
    over = actual[..., None] - quantiles
    level = np.asarray(levels, np.float64)
    loss: Floats = np.maximum(level * over, (level - 1.0) * over)
    return loss
