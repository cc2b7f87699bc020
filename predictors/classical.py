"""The classical forecasters by name: as experts over one series, and as forecasters for the controller.

What an expert learned is cached under a name made from all that it depends on.
"""

from __future__ import annotations

from collections.abc import Callable

from mark.ports import Forecaster, ForecasterSetup
from predictors.adapter import ExpertForecaster, max_series, mean_series
from predictors.expert import Expert, Series
from predictors.points import Drift, LastValue, MovingMean, PointRule, season_units
from predictors.points_seasonal import DayAgo, Seasonal
from predictors.residuals import PointExpert

_RULES: dict[str, Callable[[Series], PointRule]] = {
    "last-value": lambda _: LastValue(),
    "moving-mean": lambda _: MovingMean(),
    "drift": lambda _: Drift(),
    "seasonal-naive": lambda series: DayAgo(day=season_units(series)),
    "seasonal": lambda series: Seasonal(day=season_units(series)),
}

CLASSICAL = tuple(_RULES)
"""Names of all experts here, the simplest first."""


def classical_expert(name: str, history: Series) -> Expert:
    """The expert of that name for one series."""
    return PointExpert(_RULES[name](history))


def moving_mean(setup: ForecasterSetup) -> Forecaster:
    """The mean of the last 15 minutes, with the quantiles of its own errors."""
    return _forecaster("moving-mean", setup)


def drift(setup: ForecasterSetup) -> Forecaster:
    """The last 15 minutes, moving on as the last hour moved."""
    return _forecaster("drift", setup)


def seasonal(setup: ForecasterSetup) -> Forecaster:
    """The profile of the last days at the level of the last hour."""
    return _forecaster("seasonal", setup)


def _forecaster(name: str, setup: ForecasterSetup) -> Forecaster:
    experts = [
        classical_expert(name, series) for series in (mean_series(setup.history), max_series(setup.history))
    ]
    return ExpertForecaster(experts[0], experts[1])
