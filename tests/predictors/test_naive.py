from __future__ import annotations

import pytest

from mark.domain.demand import Demand
from mark.ports import ForecasterSetup
from mark.predictors.naive import LastValue, SeasonalNaive
from tests.predictors.builders import DAY, means, ramp

SETUP = ForecasterSetup(history=ramp(0), seed=1)


def test_last_value_repeats_mean_and_maximum():
    forecast = LastValue(SETUP).forecast(ramp(8), 3)

    assert means(forecast) == (7.0, 7.0, 7.0)
    assert forecast.max_at(0.5) == (14.0, 14.0, 14.0)


@pytest.mark.parametrize("units", [DAY, DAY + 1, 2 * DAY + 17])
def test_seasonal_gives_the_same_minute_of_the_day_before(units):
    forecast = SeasonalNaive(SETUP).forecast(ramp(units), 60)

    expected = tuple(float(units + lead - DAY) for lead in range(60))
    assert means(forecast) == expected
    assert forecast.max_at(0.5) == tuple(2 * value for value in expected)
    assert forecast.label == "seasonal-naive"


def test_seasonal_uses_the_part_of_a_day_that_it_has():
    units = DAY - 10

    forecast = SeasonalNaive(SETUP).forecast(ramp(units), 60)

    assert means(forecast)[:10] == (float(units - 1),) * 10
    assert means(forecast)[10:] == tuple(float(i) for i in range(50))
    assert forecast.label == "seasonal-naive: under a day of history, last value for 10 of 60 units"


def test_seasonal_is_the_last_value_where_no_lead_reaches_back():
    forecast = SeasonalNaive(SETUP).forecast(ramp(100), 60)

    assert means(forecast) == (99.0,) * 60


def test_seasonal_repeats_the_last_day_beyond_it():
    forecast = SeasonalNaive(SETUP).forecast(ramp(DAY), DAY + 2)

    assert means(forecast)[-3:] == (1439.0, 0.0, 1.0)


def test_season_follows_the_unit():
    quarter_hours = Demand(end_at=0.0, mean_rps=tuple(map(float, range(96))), max_rps=(0.0,) * 96, unit_s=900.0)

    assert means(SeasonalNaive(SETUP).forecast(quarter_hours, 2)) == (0.0, 1.0)
