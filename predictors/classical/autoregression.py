"""An autoregression of how much higher the load is than the profile of its last days, as logarithms.

statsmodels fits it once, on the history before the run. A forecast is linear in what is known, so the recursion
over leads is worked out once, for unit vectors: then all leads of all origins are one matrix product.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from mark.predictors.classical.points import HOUR_S, day_levels, season_units
from mark.predictors.classical.points_seasonal import DAYS, SMOOTH, profile_of
from mark.predictors.expert import Floats, Ints, Series

FLOOR_SHARE = 0.02
"""Of the last day's mean: added to rates before their logarithm is taken."""
MOST_LOG = 7.0
"""Logarithms lie within this, either way: a factor of a thousand."""
FIT_DAYS = 10
"""Days of history that it is fitted on."""
FEWEST_DAYS = 3
"""Days of history that it learns from at least."""
BLOCK = 64
"""Rows of every matrix product: one row gives the same bits alone as among thousands."""


@dataclass(frozen=True, slots=True)
class ArWeights:
    """constant: scalar; lags: shape (lags,), rising; weights: (lags,)."""

    constant: float
    lags: tuple[int, ...]
    weights: tuple[float, ...]


class Autoregression:
    """The rule: the profile, times what is left of how far the last two hours lay from it."""

    name = "autoregression"
    is_level = False

    def __init__(self, weights: ArWeights, *, day: int = 1440) -> None:
        """`day`: units of a day: even the oldest lag has a profile."""
        self.needs_units = weights.lags[-1] + day + SMOOTH
        self._weights = weights
        self._maps: dict[int, tuple[Ints, Floats, Floats]] = {}

    def points(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Rates after each origin; see `PointRule`. Beyond (almost) a day ahead the last profile repeats."""
        if horizon not in self._maps:
            self._maps[horizon] = unrolled(self._weights, horizon)
        lags, matrix, constants = self._maps[horizon]
        leads = np.minimum(np.arange(horizon), season_units(series) - SMOOTH - 1)
        low, high = int(ends.min()) - self._weights.lags[-1], int(ends.max())
        profile = profile_of(series, np.arange(low, high + int(leads[-1]) + 1), days=DAYS, smooth=SMOOTH)
        logs = higher_than(profile[: high - low], series, np.arange(low, high))
        higher = in_blocks(logs[(ends - low)[:, None] - lags], matrix) + constants
        floors = FLOOR_SHARE * day_levels(series, ends)[:, None]
        ahead = profile[(ends - low)[:, None] + leads] + floors
        rates: Floats = ahead * np.exp(np.clip(higher, -MOST_LOG, MOST_LOG)) - floors
        return np.maximum(rates, 0.0)


def lags_of(series: Series) -> tuple[int, ...]:
    """Lags of the regression: the last half-hour, and around the same minute of the two hours before."""
    hour = max(1, round(HOUR_S / series.unit_s))
    near = range(1, min(hour // 2, 30) + 1)
    hours = (lag for back in (1, 2) for lag in range(back * hour - 2, back * hour + 3))
    return tuple(sorted({lag for lag in (*near, *hours) if lag >= 1}))


def fit_autoregression(series: Series) -> ArWeights | None:
    """The weights that explain each next unit of the history best; None where it is too short to learn from."""
    day, lags, known = season_units(series), lags_of(series), len(series.rates)
    if known < FEWEST_DAYS * day or not series.rates.any():
        return None
    from statsmodels.tools.sm_exceptions import SingularMatrixWarning  # noqa: PLC0415 - as below
    from statsmodels.tsa.ar_model import AutoReg  # noqa: PLC0415 - 100 MiB with pandas, for those who learn

    units = np.arange(max(day + SMOOTH, known - FIT_DAYS * day), known)
    logs = higher_than(profile_of(series, units, days=DAYS, smooth=SMOOTH), series, units)
    with warnings.catch_warnings():  # a constant load has many solutions, and statsmodels takes the least
        warnings.simplefilter("ignore", SingularMatrixWarning)
        found = AutoReg(logs, lags=list(lags), trend="c").fit().params
    return ArWeights(float(found[0]), lags, tuple(float(weight) for weight in found[1:]))


def higher_than(profile: Floats, series: Series, units: Ints) -> Floats:
    """log(rate / profile) of each unit, with a floor under both. profile, units and the answer: shape (units,)."""
    floors = np.maximum(FLOOR_SHARE * day_levels(series, units), np.finfo(np.float64).tiny)
    logs: Floats = np.log(series.rates[units] + floors) - np.log(profile + floors)
    return np.clip(logs, -MOST_LOG, MOST_LOG)


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
