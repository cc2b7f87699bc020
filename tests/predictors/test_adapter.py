from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.demand import Demand, Forecast
from mark.predictors.adapter import ExpertForecaster, max_series, mean_series
from mark.predictors.classical.points import MovingMeanRule
from mark.predictors.classical.residuals import PointExpert
from mark.predictors.expert import LEVELS, Floats, Ints, Series
from tests.predictors.builders import daily_sine, first_units, ramp


class Fixed:
    """An expert that always says the same at every lead."""

    name = "fixed"

    def __init__(self, *values: float, needs_units: int = 1) -> None:
        self.needs_units = needs_units
        self._values = values

    def forecast(self, series: Series, ends: Ints, horizon: int) -> Floats:
        return np.tile(np.array(self._values), (len(ends), horizon, 1))


RISING = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)


def assert_sane(forecast: Forecast, history: Demand, horizon: int) -> None:
    assert forecast.start_at == history.end_at
    assert forecast.quantiles == LEVELS
    assert forecast.source
    means, maxima = np.array(forecast.mean_rps), np.array(forecast.max_rps)
    assert means.shape == maxima.shape == (horizon, len(LEVELS))
    for rates in (means, maxima):
        assert np.isfinite(rates).all()
        assert (rates >= 0).all()
        assert (np.diff(rates, axis=1) >= 0).all()
    assert (maxima >= means).all()


def test_both_experts_are_asked_for_their_own_series():
    history = ramp(100)

    assert mean_series(history).rates[-1] == 99.0
    assert max_series(history).rates[-1] == 198.0
    assert mean_series(history).start_at == 0.0


def test_a_maximum_is_never_below_the_mean():
    forecast = ExpertForecaster(Fixed(*RISING), Fixed(*(4.0,) * 7)).forecast(ramp(10), 2)

    assert forecast.mean_rps == (RISING, RISING)
    assert forecast.max_rps == ((4.0, 4.0, 4.0, 4.0, 5.0, 6.0, 7.0),) * 2
    assert (forecast.source, forecast.degraded) == ("fixed", None)


def test_no_history_gives_zeros_and_says_so():
    history = ramp(0)

    forecast = ExpertForecaster(Fixed(*RISING), Fixed(*RISING)).forecast(history, 3)

    assert_sane(forecast, history, 3)
    assert forecast.max_rps == ((0.0,) * len(LEVELS),) * 3
    assert forecast.label == "fixed: no history, zeros"


def test_the_first_minutes_are_planned_on_the_highest_of_them():
    forecast = ExpertForecaster(Fixed(*RISING, needs_units=90), Fixed(*RISING)).forecast(ramp(10), 2)

    assert forecast.mean_rps == ((9.0,) * len(LEVELS),) * 2
    assert forecast.max_rps == ((18.0,) * len(LEVELS),) * 2
    assert forecast.label == "fixed: under 90 units of history, last hour's maximum"


def test_after_half_an_hour_the_last_value_has_quantiles():
    history = first_units(daily_sine(60), 60)
    forecast = ExpertForecaster(Fixed(*RISING, needs_units=90), Fixed(*RISING)).forecast(history, 2)

    assert_sane(forecast, history, 2)
    assert forecast.mean_rps[0][0] < forecast.mean_rps[0][-1]
    assert (forecast.source, forecast.degraded) == ("fixed", "under 90 units of history, last value")


def test_an_expert_without_a_finite_answer_is_replaced():
    broken = Fixed(*(float("nan"),) * 7)
    history = daily_sine(60)
    forecast = ExpertForecaster(Fixed(*RISING), broken).forecast(history, 2)

    assert_sane(forecast, history, 2)
    assert forecast.label == "fixed: no finite answer, last value"


@pytest.mark.parametrize("horizon", [1, 60, 90])
@given(rates=st.lists(st.floats(0.0, 1e6), min_size=1, max_size=80))
@settings(max_examples=40)
def test_any_history_gives_a_sane_forecast(horizon, rates):
    history = Demand(end_at=6e5, mean_rps=tuple(rates), max_rps=tuple(1.5 * rate for rate in rates))
    forecaster = ExpertForecaster(PointExpert(MovingMeanRule()), PointExpert(MovingMeanRule()))

    assert_sane(forecaster.forecast(history, horizon), history, horizon)
