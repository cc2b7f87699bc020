"""The classical experts by name, each over one series.

What an expert learned is cached under a name made from all that it depends on. What cannot be read from the cache
is learned anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mark.domain.errors import Misconfigured
from mark.predictors.classical.autoregression import FEWEST_DAYS as AUTOREGRESSION_DAYS
from mark.predictors.classical.autoregression import ArWeights, Autoregression, fit_autoregression
from mark.predictors.classical.boosted import Boosted, BoostedSettings, train_boosted
from mark.predictors.classical.boosted_features import NAMES
from mark.predictors.classical.exponential import HoltWinters, Smoothing, fit_smoothing
from mark.predictors.classical.points import DriftRule, LastValueRule, MovingMeanRule, PointRule, season_units
from mark.predictors.classical.points_seasonal import DayAgo, Seasonal
from mark.predictors.classical.residuals import PointExpert
from mark.predictors.classical.ridge import FEWEST_DAYS as DIRECT_DAYS
from mark.predictors.classical.ridge import Direct, fit_direct
from mark.predictors.expert import Expert, Series

FORMAT = 2
"""Part of a cached file's name: raise it when what is learned changes its meaning."""
Progress = Callable[[str, float], None]
Learned = dict[str, Any]
"""Parameters of a fitted expert, as JSON keeps them."""

_RULES: dict[str, Callable[[Series], PointRule]] = {
    "last-value": lambda _: LastValueRule(),
    "moving-mean": lambda _: MovingMeanRule(),
    "drift": lambda _: DriftRule(),
    "seasonal-naive": lambda series: DayAgo(day=season_units(series)),
    "seasonal": lambda series: Seasonal(day=season_units(series)),
    "seasonal-median": lambda series: Seasonal(typical=True, day=season_units(series)),
}


@dataclass(frozen=True, slots=True)
class _Learner:
    """Fitting of an expert, and its making from the fitted parameters."""

    #: Parameters from a series, a seed and a progress callback; None where the series is too short.
    learn: Callable[[Series, int, Progress | None], Learned | None]
    #: The expert with these parameters, for a season of so many units.
    made: Callable[[Learned, int], Expert]
    #: Days of history that it learns from at least; 0 where it has parameters to begin with.
    fewest_days: int = 0


def _learn_smoothing(series: Series, seed: int, progress: Progress | None) -> Learned | None:
    del seed, progress  # under a second
    found = fit_smoothing(series)
    return {"level": found.level, "trend": found.trend, "seasonal": found.seasonal, "damping": found.damping}


def _learn_autoregression(series: Series, seed: int, progress: Progress | None) -> Learned | None:
    del seed, progress  # under a second
    found = fit_autoregression(series)
    return None if found is None else {"constant": found.constant, "lags": found.lags, "weights": found.weights}


def _learn_direct(series: Series, seed: int, progress: Progress | None) -> Learned | None:
    del seed, progress  # a second
    found = fit_direct(series)
    return None if found is None else {"weights": found.tolist()}


def _learn_boosted(series: Series, seed: int, progress: Progress | None) -> Learned | None:
    base = fit_direct(series)
    if base is None:
        return None
    models = train_boosted(series, base, BoostedSettings(), seed=seed, progress=progress)
    return {"base": base.tolist(), "models": models}


_LEARNERS: dict[str, _Learner] = {
    "holt-winters": _Learner(
        _learn_smoothing, lambda learned, day: PointExpert(HoltWinters(Smoothing(**learned), day=day))
    ),
    "autoregression": _Learner(
        _learn_autoregression,
        lambda learned, day: PointExpert(
            Autoregression(
                ArWeights(learned["constant"], tuple(learned["lags"]), tuple(learned["weights"])), day=day
            )
        ),
        fewest_days=AUTOREGRESSION_DAYS,
    ),
    "ridge": _Learner(
        _learn_direct,
        lambda learned, day: PointExpert(Direct(np.array(learned["weights"]), day=day)),
        fewest_days=DIRECT_DAYS,
    ),
    "boosted": _Learner(
        _learn_boosted,
        lambda learned, day: Boosted(tuple(learned["models"]), np.array(learned["base"]), day=day),
        fewest_days=DIRECT_DAYS,
    ),
}

CLASSICAL = (*_RULES, *_LEARNERS)
"""Names of all experts here, the simplest first."""


def classical_expert(
    name: str, history: Series, *, seed: int = 1, cache_dir: Path | None = None, progress: Progress | None = None
) -> Expert | None:
    """The expert of that name for series like `history`, which it learns from; None where that is too short.

    The same history and seed give the same expert. Errors: KeyError where the name is none of CLASSICAL;
    Misconfigured where the history holds rates that are negative or no numbers.
    """
    if not (np.isfinite(history.rates).all() and (history.rates >= 0).all()):
        raise Misconfigured(f"{name}: the history holds rates that are negative or no numbers; repair the trace")
    if name in _RULES:
        return PointExpert(_RULES[name](history))
    learner = _LEARNERS[name]
    cached = _cache_path(name, history, seed, cache_dir)
    learned = _read(cached) if cached else None
    if learned is None:
        learned = learner.learn(history, seed, progress)
        if learned is None:
            return None
        if cached:
            _keep(cached, learned)
    return learner.made(learned, season_units(history))


def why_not_learned(name: str, history: Series) -> str:
    """Reason for which `classical_expert` gives None: what `history` lacks."""
    days = _LEARNERS[name].fewest_days
    if len(history.rates) < days * season_units(history):
        return f"it needs {days} days of history"
    return "its history is zeros"


def _cache_path(name: str, history: Series, seed: int, cache_dir: Path | None) -> Path | None:
    if cache_dir is None:
        return None
    settings = BoostedSettings() if name == "boosted" else None
    parts = hashlib.sha256(repr((FORMAT, name, NAMES, settings, seed, history.start_at, history.unit_s)).encode())
    parts.update(np.ascontiguousarray(history.rates).tobytes())
    return cache_dir / f"{name}-{parts.hexdigest()[:32]}.json"


def _read(path: Path) -> Learned | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _keep(path: Path, learned: Learned) -> None:
    """Write it whole or not at all: another run may read it meanwhile."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as file:
            json.dump(learned, file)
        os.replace(file.name, path)
    except OSError as error:  # a full disk or a read-only cache costs the next run its training, not this one
        warnings.warn(f"{path.stem}: not cached in {path.parent}: {error.strerror or error}", stacklevel=2)
