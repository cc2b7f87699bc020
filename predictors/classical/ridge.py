"""A linear regression for each lead, on the features that boosted trees see too: fitted in a second by ridge."""

from __future__ import annotations

import math

import numpy as np

from mark.predictors.classical.boosted_features import LONGEST_LEAD, NAMES, Features, features_of, needed_units
from mark.predictors.classical.points import season_units
from mark.predictors.expert import Floats, Ints, Series

FIT_DAYS = 14
"""Days of history that it is fitted on."""
FEWEST_DAYS = 2
"""Days of history that it learns from at least."""
PENALTY = 1e-3
"""Of the mean square of a column: keeps collinear columns apart."""
CHUNK = 512
"""Origins whose features are in memory at a time."""
_HARMONICS = 2
_RAW = 3
"""Calendar features at the end that are no numbers to multiply: they are seen as waves."""


class Direct:
    """The rule. weights: shape (leads, columns), for relative logarithms; see `columns_of`."""

    name = "ridge"
    is_level = False

    def __init__(self, weights: Floats, *, day: int = 1440) -> None:
        """`day`: units of a day."""
        self.needs_units = needed_units(day)
        self._weights = weights
        self._day = day

    def points(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Rates after each origin; see `PointRule`. Leads beyond the longest that was learned repeat it."""
        leads = np.arange(1, min(horizon, len(self._weights)) + 1)
        answer = np.empty((len(ends), len(leads)))
        for first in range(0, len(ends), CHUNK):
            part = slice(first, first + CHUNK)
            found = features_of(series, ends[part], leads)
            answer[part] = found.rates(self.relative(found, leads))
        return answer[:, np.minimum(np.arange(horizon), len(leads) - 1)]

    def relative(self, found: Features, leads: Ints) -> Floats:
        """Expected rates as relative logarithms. leads: shape (horizon,) or (origins, horizon)."""
        columns = columns_of(found, self._day)
        weights = np.broadcast_to(self._weights[leads - 1], columns.shape)
        expected: Floats = (columns * weights).sum(axis=-1)
        return expected


def columns_of(found: Features, day: int) -> Floats:
    """The features as columns of a linear model. Returns shape (origins, horizon, columns)."""
    values, hours = found.values, day // 24
    plain, (minute, hour, odd) = values[..., : len(NAMES) - _RAW - 1], np.moveaxis(values[..., -_RAW:], -1, 0)
    waves = [np.ones_like(minute), odd]
    for times in range(1, _HARMONICS + 1):
        for phase in (times * minute / hours, times * (hour + minute / hours) / 24):
            waves += [np.sin(2 * math.pi * phase), np.cos(2 * math.pi * phase)]
    return np.concatenate((plain, np.stack(waves, axis=-1)), axis=-1)


def fit_direct(series: Series) -> Floats | None:
    """Each lead's weights, shape (leads, columns), by ridge; None where the history is too short to learn from."""
    day, known = season_units(series), len(series.rates)
    if known < FEWEST_DAYS * day or not series.rates.any():
        return None
    leads = np.arange(1, LONGEST_LEAD + 1)
    origins = np.arange(max(needed_units(day), known - FIT_DAYS * day), known - LONGEST_LEAD + 1)
    gram = moment = None
    for first in range(0, len(origins), CHUNK):
        ends = origins[first : first + CHUNK]
        found = features_of(series, ends, leads)
        columns = columns_of(found, day).transpose(1, 2, 0)
        wanted = found.relative(series.rates[ends[:, None] + leads - 1]).T[..., None]
        gram = columns @ columns.transpose(0, 2, 1) + (0.0 if gram is None else gram)
        moment = columns @ wanted + (0.0 if moment is None else moment)
    assert gram is not None
    assert moment is not None
    inner = np.arange(gram.shape[1])
    gram[:, inner, inner] += PENALTY * np.maximum(gram[:, inner, inner], 1e-3 * len(origins))
    weights: Floats = np.linalg.solve(gram, moment)[..., 0].astype(np.float64)
    return weights
