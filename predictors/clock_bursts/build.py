"""The forecaster `clock-bursts`."""

from __future__ import annotations

from mark.ports import Forecaster, ForecasterSetup
from mark.predictors.adapter import ExpertForecaster
from mark.predictors.clock_bursts.clock_bursts import ClockBursts


def build(setup: ForecasterSetup) -> Forecaster:
    """Bursts learned from the history that each forecast is asked for; nothing is learned beforehand."""
    del setup
    return ExpertForecaster(ClockBursts(), ClockBursts())
