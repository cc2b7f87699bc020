"""An autoregression of log rates on the last hour, the hours before and the same time yesterday.

statsmodels fits it once, on the history before the run. A forecast is linear in the rates that are known, so the
recursion over leads is worked out once, for unit vectors: then all leads of all origins are one matrix product.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from predictors.expert import Floats, Ints, Series
from predictors.points import HOUR_S, day_levels, season_units

FLOOR_SHARE = 0.02
"""Of the last day's mean: added to rates before their logarithm is taken."""
LARGEST_SHARE = 1e3
"""Of the last day's mean: a rate beyond it (the first minutes after silent days) counts as this."""
FIT_DAYS = 10
"""Days of history that it is fitted on."""
BLOCK = 64
"""Rows of every matrix product: one row gives the same bits alone as among thousands."""


@dataclass(frozen=True, slots=True)
class ArWeights:
    """constant: scalar; lags: shape (lags,), rising; weights: (lags,)."""

    constant: float
    lags: tuple[int, ...]
    weights: tuple[float, ...]


class Autoregression:
    """The rule. Rates are seen relative to the mean of the day before them, so the load's level is no matter."""

    name = "autoregression"

    def __init__(self, weights: ArWeights) -> None:
        """Rates before the last lag are needed for the level alone."""
        self.needs_units = weights.lags[-1] + 60
        self._weights = weights
        self._maps: dict[int, tuple[Ints, Floats, Floats]] = {}

    def points(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Rates after each origin; see `PointRule`."""
        if horizon not in self._maps:
            self._maps[horizon] = unrolled(self._weights, horizon)
        lags, matrix, constants = self._maps[horizon]
        low = int(ends.min()) - self._weights.lags[-1]
        logs = relative_logs(series, np.arange(low, int(ends.max())))
        known = logs[(ends - low)[:, None] - lags]
        levels = day_levels(series, ends)[:, None]
        return np.maximum((np.exp(in_blocks(known, matrix) + constants) - FLOOR_SHARE) * levels, 0.0)


def lags_of(series: Series) -> tuple[int, ...]:
    """Which lags are used: the last half-hour, the hours before, and around the same time yesterday."""
    hour, day = max(1, round(HOUR_S / series.unit_s)), season_units(series)
    near = range(1, min(hour // 2, 30) + 1)
    hours = (lag for back in (1, 2) for lag in range(back * hour - 2, back * hour + 3))
    days = range(day - 5, day + 6)
    return tuple(sorted({lag for lag in (*near, *hours, *days) if lag >= 1}))


def fit_autoregression(series: Series) -> ArWeights | None:
    """The weights that explain each next unit of the history best; None under three days of it."""
    from statsmodels.tools.sm_exceptions import SingularMatrixWarning  # noqa: PLC0415 - as below
    from statsmodels.tsa.ar_model import AutoReg  # noqa: PLC0415 - pandas takes a second to import

    day, lags = season_units(series), lags_of(series)
    if len(series.rates) < 3 * day or not series.rates.any():
        return None
    first = max(day, len(series.rates) - FIT_DAYS * day)
    logs = relative_logs(series, np.arange(first, len(series.rates)))
    with warnings.catch_warnings():  # a constant load has many solutions, and statsmodels takes the least
        warnings.simplefilter("ignore", SingularMatrixWarning)
        found = AutoReg(logs, lags=list(lags), trend="c").fit().params
    return ArWeights(float(found[0]), lags, tuple(float(weight) for weight in found[1:]))


def relative_logs(series: Series, units: Ints) -> Floats:
    """log(rate / mean of the day before it + a floor) of each unit. Returns shape (units,)."""
    levels = day_levels(series, np.maximum(units, 1))
    rates = series.rates[units]
    most = np.where(rates > 0, LARGEST_SHARE, 0.0)
    shares = np.divide(rates, levels, out=most, where=levels * LARGEST_SHARE > rates)
    logs: Floats = np.log(shares + FLOOR_SHARE)
    return logs


def unrolled(weights: ArWeights, horizon: int) -> tuple[Ints, Floats, Floats]:
    """The recursion as one linear map. Returns lags (used,), matrix (used, horizon) and constants (horizon,)."""
    last = weights.lags[-1]
    maps, constants = np.zeros((horizon, last + 1)), np.full(horizon, weights.constant)
    for lead in range(horizon):
        for lag, weight in zip(weights.lags, weights.weights, strict=True):
            if lag > lead:
                maps[lead, lag - lead] += weight
            else:
                maps[lead] += weight * maps[lead - lag]
                constants[lead] += weight * constants[lead - lag]
    used = np.flatnonzero(maps.any(axis=0))
    return used, np.ascontiguousarray(maps[:, used].T), constants


def in_blocks(rows: Floats, matrix: Floats) -> Floats:
    """The product rows @ matrix, in parts of equal shape. rows: (rows, inner); matrix: (inner, columns)."""
    blocks = -(-len(rows) // BLOCK)
    padded = np.zeros((blocks * BLOCK, rows.shape[1]))
    padded[: len(rows)] = rows
    found = np.concatenate([padded[first : first + BLOCK] @ matrix for first in range(0, len(padded), BLOCK)])
    return found[: len(rows)]
