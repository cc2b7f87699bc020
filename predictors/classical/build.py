"""The classical forecasters for the controller: each is an expert for means and one for maxima."""

from __future__ import annotations

from mark.ports import Forecaster, ForecasterSetup
from mark.predictors.adapter import ExpertForecaster, max_series, mean_series
from mark.predictors.classical.expert_factory import Progress, classical_expert, why_not_learned
from mark.predictors.classical.points import LastValueRule
from mark.predictors.classical.residuals import PointExpert


def moving_mean(setup: ForecasterSetup) -> Forecaster:
    """The mean of the last 15 minutes, with the quantiles of its own errors."""
    return _forecaster("moving-mean", setup)


def drift(setup: ForecasterSetup) -> Forecaster:
    """The last 15 minutes, moving on as the last hour moved."""
    return _forecaster("drift", setup)


def seasonal(setup: ForecasterSetup) -> Forecaster:
    """The profile of the last days at the level of the last hour."""
    return _forecaster("seasonal", setup)


def seasonal_median(setup: ForecasterSetup) -> Forecaster:
    """The same with a profile of medians: for floods that come at any time."""
    return _forecaster("seasonal-median", setup)


def holt_winters(setup: ForecasterSetup) -> Forecaster:
    """Holt-Winters with a season of a day, on log rates."""
    return _forecaster("holt-winters", setup)


def autoregression(setup: ForecasterSetup) -> Forecaster:
    """An autoregression on the last two hours, relative to the profile of the last days."""
    return _forecaster("autoregression", setup)


def ridge(setup: ForecasterSetup) -> Forecaster:
    """A linear regression a lead, on lags, profiles and the calendar."""
    return _forecaster("ridge", setup)


def boosted(setup: ForecasterSetup) -> Forecaster:
    """Gradient-boosted quantiles on top of the ridge regression."""
    return _forecaster("boosted", setup)


def _forecaster(name: str, setup: ForecasterSetup) -> Forecaster:
    both = (mean_series(setup.history), max_series(setup.history))
    experts = [
        classical_expert(
            name, series, seed=setup.seed, cache_dir=setup.cache_dir, progress=_part(setup.progress, kind)
        )
        for kind, series in enumerate(both)
    ]
    means, maxima = experts
    if means is None or maxima is None:
        simple = (PointExpert(LastValueRule()), PointExpert(LastValueRule()))
        return ExpertForecaster(*simple, name=name, lacking=f"{why_not_learned(name, both[0])}, last value")
    return ExpertForecaster(means, maxima, name=name)


def _part(progress: Progress | None, kind: int) -> Progress | None:
    """Progress of the means' or the maxima's expert as half of the whole."""
    if progress is None:
        return None
    return lambda label, share: progress(label, (kind + share) / 2)
