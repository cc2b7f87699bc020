"""What every forecaster owes, whatever it knows."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest

from mark.domain.demand import Demand, Forecast
from mark.plugins.load import build_forecaster
from mark.ports import Forecaster, ForecasterSetup
from mark.predictors.lstm import vanilla
from tests.predictors.builders import DAY, SMALL, daily_sine, first_units, means

DAYS = daily_sine(2 * DAY)
HISTORY = first_units(DAYS, DAY + 200)
SETUP = ForecasterSetup(history=HISTORY, seed=1)
HORIZON = 60


def trained(setup: ForecasterSetup) -> Forecaster:
    return vanilla.build(setup, settings=SMALL)


def untrained(setup: ForecasterSetup) -> Forecaster:
    return vanilla.build(ForecasterSetup(history=first_units(DAYS, 300), seed=setup.seed))


FACTORIES: dict[str, Callable[[ForecasterSetup], Forecaster]] = {
    "last-value": partial(build_forecaster, "last-value"),
    "seasonal-naive": partial(build_forecaster, "seasonal-naive"),
    "oracle": lambda setup: build_forecaster("oracle", setup.with_truth(DAYS)),
    "lstm-vanilla": trained,
    "lstm-vanilla, under a day": untrained,
}


@pytest.fixture(scope="module", params=sorted(FACTORIES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def forecaster(name: str) -> Forecaster:
    return FACTORIES[name](SETUP)


def assert_sane(forecast: Forecast, history: Demand, horizon: int) -> None:
    assert forecast.start_at == history.end_at
    assert forecast.quantiles == (0.5,)
    assert forecast.source
    for rows in (forecast.mean_rps, forecast.max_rps):
        assert len(rows) == horizon
        assert all(len(row) == 1 for row in rows)
        assert all(math.isfinite(value) and value >= 0 for row in rows for value in row)
    assert all(top >= mean for top, mean in zip(forecast.max_at(0.5), means(forecast), strict=True))


@pytest.mark.parametrize(("units", "horizon"), [(1, 60), (59, 1), (60, 60), (1439, 90), (1441, 60), (1640, 90)])
def test_forecast_is_sane_with_any_length_of_history(forecaster, units, horizon):
    history = first_units(DAYS, units)

    assert_sane(forecaster.forecast(history, horizon), history, horizon)


def test_empty_history_gives_zeros_and_says_so(name, forecaster):
    history = first_units(DAYS, 0)

    forecast = forecaster.forecast(history, HORIZON)

    assert_sane(forecast, history, HORIZON)
    if name == "oracle":  # it knows the load without any history
        assert means(forecast) == DAYS.mean_rps[:HORIZON]
    else:
        assert forecast.max_at(0.5) == (0.0,) * HORIZON
        assert "no history" in forecast.label


def test_same_setup_and_history_give_the_same_forecast(name, forecaster):
    first = forecaster.forecast(HISTORY, HORIZON)

    assert forecaster.forecast(HISTORY, HORIZON) == first
    assert FACTORIES[name](SETUP).forecast(HISTORY, HORIZON) == first


@pytest.mark.parametrize("rps", [0.0, 1e6])
def test_loads_never_seen_before_give_sane_forecasts(forecaster, rps):
    history = Demand(end_at=HISTORY.end_at, mean_rps=(rps,) * 120, max_rps=(rps,) * 120)

    assert_sane(forecaster.forecast(history, HORIZON), history, HORIZON)
