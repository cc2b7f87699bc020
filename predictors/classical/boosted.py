"""Gradient-boosted quantile regression: one LightGBM model a level, over all leads, the lead being a feature.

The trees correct the linear regression of `ridge.py`, which follows the last values better than
steps can. They are trained once on rows drawn from the history before the run (an origin and a lead each). Their
quantiles are their own: no past errors are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mark.predictors.classical.boosted_features import LONGEST_LEAD, NAMES, Features, features_of, needed_units
from mark.predictors.classical.boosted_trees import read_trees
from mark.predictors.classical.points import season_units
from mark.predictors.classical.ridge import Direct
from mark.predictors.expert import LEVELS, Floats, Ints, Series

CHUNK = 512
"""Origins whose features are in memory at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoostedSettings:
    """Settings of the training; all but `rows` are LightGBM's, by its own names."""

    #: Pairs of an origin and a lead that are drawn.
    rows: int = 60_000
    trees: int = 120
    num_leaves: int = 5
    learning_rate: float = 0.05
    min_data_in_leaf: int = 500
    feature_fraction: float = 0.7
    days: int = 14


class Boosted:
    """The expert. models: one text of LightGBM's a level. base: the weights of `Direct` that they correct."""

    name = "boosted"

    def __init__(self, models: tuple[str, ...], base: Floats, *, day: int = 1440) -> None:
        """Load the models. `day`: units of a day."""
        self.needs_units = needed_units(day)
        self._base = Direct(base, day=day)
        self._trees = [read_trees(model) for model in models]

    def forecast(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Quantiles after each origin, see `Expert`; leads beyond the longest that was learned repeat it."""
        answer = np.full((len(ends), horizon, len(LEVELS)), np.nan)
        able = np.flatnonzero((ends >= self.needs_units) & (ends <= len(series.rates)))
        for first in range(0, len(able), CHUNK):
            rows = able[first : first + CHUNK]
            answer[rows] = self._quantiles(series, ends[rows], horizon)
        return answer

    def _quantiles(self, series: Series, ends: Ints, horizon: int) -> Floats:
        leads = np.arange(1, min(horizon, LONGEST_LEAD) + 1)
        found = features_of(series, ends, leads)
        base = self._base.relative(found, leads)
        flat = seen_by_trees(found, base).reshape(-1, len(NAMES) + 1)
        levels = [trees.predict(flat) for trees in self._trees]
        logs = np.stack(levels, axis=-1).reshape(*base.shape, len(LEVELS)) + base[..., None]
        # Models of neighbouring levels are learned apart and may cross; sorted they are no worse.
        rates = found.rates(np.sort(logs, axis=-1))
        return rates[:, np.minimum(np.arange(horizon), rates.shape[1] - 1)]


def train_boosted(
    series: Series,
    base: Floats,
    settings: BoostedSettings,
    *,
    seed: int,
    progress: Callable[[str, float], None] | None = None,
) -> tuple[str, ...]:
    """The models of all levels, as LightGBM writes them. `base`: fitted on the same series."""
    from lightgbm import Dataset, train  # noqa: PLC0415 - a second and 100 MiB to import, for those who train

    values, wanted = drawn_rows(series, base, settings, seed=seed)
    data = Dataset(values, label=wanted)
    models = []
    for done, level in enumerate(LEVELS):
        if progress:
            progress("boosted", done / len(LEVELS))
        models.append(train(_parameters(settings, level, seed), data, settings.trees).model_to_string())
    if progress:
        progress("boosted", 1.0)
    return tuple(models)


def seen_by_trees(found: Features, base: Floats) -> Floats:
    """The features and the base's forecast. base: (origins, horizon). Shape (origins, horizon, features)."""
    return np.concatenate((found.values, base[..., None]), axis=-1)


def drawn_rows(series: Series, base: Floats, settings: BoostedSettings, *, seed: int) -> tuple[Floats, Floats]:
    """Features, shape (rows, features), and what the base missed, as relative logarithms, shape (rows,)."""
    day, longest = season_units(series), LONGEST_LEAD
    rng = np.random.default_rng(seed)
    first = max(needed_units(day), len(series.rates) - settings.days * day)
    ends = np.sort(rng.integers(first, len(series.rates) - longest + 1, settings.rows))
    leads = rng.integers(1, longest + 1, settings.rows)
    linear = Direct(base, day=day)
    parts, wanted = [], []
    for start in range(0, settings.rows, CHUNK * 16):
        part = slice(start, start + CHUNK * 16)
        found = features_of(series, ends[part], leads[part, None])
        expected = linear.relative(found, leads[part, None])
        parts.append(seen_by_trees(found, expected)[:, 0])
        wanted.append(found.relative(series.rates[ends[part] + leads[part] - 1]) - expected[:, 0])
    return np.concatenate(parts), np.concatenate(wanted)


def _parameters(settings: BoostedSettings, level: float, seed: int) -> dict[str, Any]:
    return {
        "objective": "quantile",
        "alpha": level,
        "num_leaves": settings.num_leaves,
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": settings.min_data_in_leaf,
        "feature_fraction": settings.feature_fraction,
        "seed": seed,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
