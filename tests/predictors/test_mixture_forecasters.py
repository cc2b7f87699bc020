"""`lstm` and `mixture` as the controller meets them: built from a history, asked each minute."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import pytest

from mark.domain.demand import Demand, Forecast
from mark.plugins.load import load_forecaster
from mark.ports import BatchForecaster, Forecaster, ForecasterSetup
from mark.predictors.expert import LEVELS
from mark.predictors.lstm.quantile.settings import QuantileSettings
from mark.predictors.mixture.build import build, build_lstm
from tests.predictors.builders import first_units
from tests.predictors.series import DAY, noisy_days

TINY = QuantileSettings(hidden=4, width=4, epochs=1, least_batches=1, share=0.1, seeds=1)
FEW = ("last-value", "seasonal")


def demand(units: int) -> Demand:
    rates = noisy_days(units).rates.tolist()
    return Demand(end_at=60.0 * units, mean_rps=tuple(rates), max_rps=tuple(1.2 * rate for rate in rates))


DAYS = demand(2 * DAY)
HISTORY = first_units(DAYS, DAY + 300)


def setup(**changes: object) -> ForecasterSetup:
    return replace(ForecasterSetup(history=HISTORY, seed=1), **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def mixture() -> Forecaster:
    return build(setup(), experts=FEW, lstm=TINY)


@pytest.fixture(scope="module")
def lstm() -> Forecaster:
    return build_lstm(setup(), lstm=TINY)


@pytest.fixture(params=["mixture", "lstm"])
def forecaster(request: pytest.FixtureRequest) -> Forecaster:
    found: Forecaster = request.getfixturevalue(request.param)
    return found


def assert_sane(forecast: Forecast, history: Demand, horizon: int) -> None:
    assert forecast.start_at == history.end_at
    assert forecast.quantiles == LEVELS
    for rows in (forecast.mean_rps, forecast.max_rps):
        assert len(rows) == horizon
        assert all(math.isfinite(value) and value >= 0 for row in rows for value in row)
        assert all(list(row) == sorted(row) for row in rows)
    for means, maxima in zip(forecast.mean_rps, forecast.max_rps, strict=True):
        assert all(top >= mean for top, mean in zip(maxima, means, strict=True))


@pytest.mark.parametrize(
    ("units", "horizon"), [(0, 60), (1, 1), (60, 70), (119, 60), (120, 60), (1441, 70), (1800, 1)]
)
def test_forecasts_are_sane_with_any_length_of_history(forecaster, units, horizon):
    history = first_units(DAYS, units)

    assert_sane(forecaster.forecast(history, horizon), history, horizon)


def test_names_lead_to_them():
    assert load_forecaster("lstm") is build_lstm
    assert load_forecaster("mixture") is build


def test_the_source_names_the_experts_in_use(mixture, lstm):
    assert mixture.forecast(HISTORY, 60).label == "mixture"
    assert lstm.forecast(HISTORY, 60).label == "lstm"


def test_the_same_setup_gives_the_same_forecasts_minute_by_minute(mixture):
    again = build(setup(), experts=FEW, lstm=TINY)
    for units in range(len(HISTORY), len(HISTORY) + 5):
        followed = again.forecast(first_units(DAYS, units), 60)

    fresh = mixture.forecast(first_units(DAYS, len(HISTORY) + 4), 60)
    for one, other in ((followed.mean_rps, fresh.mean_rps), (followed.max_rps, fresh.max_rps)):
        for row, expected in zip(one, other, strict=True):
            assert row == pytest.approx(expected, rel=1e-9)


def test_many_instants_at_once_get_what_each_gets_alone(tmp_path):
    experts = ("last-value", "moving-mean", "seasonal", "clock-bursts")
    one_by_one, at_once = (build(setup(cache_dir=tmp_path), experts=experts, lstm=TINY) for _ in range(2))
    ends = range(len(HISTORY), len(HISTORY) + 4)

    assert isinstance(at_once, BatchForecaster)
    together = at_once.forecast_each(first_units(DAYS, len(HISTORY) + 50), ends, 60)

    assert together == [one_by_one.forecast(first_units(DAYS, end), 60) for end in ends]


def test_their_cards_say_what_they_were_trained_on(forecaster):
    assert set(forecaster.card) == {"lstm_mean", "lstm_max"}
    card = forecaster.card["lstm_max"]
    assert (card["kind"], card["units"], card["trained_until"]) == ("max", len(HISTORY), HISTORY.end_at)


def test_under_a_day_simple_rules_predict_and_the_source_says_so():
    history = first_units(DAYS, 600)

    for forecaster, why in (
        (
            build(setup(history=history), experts=FEW, lstm=TINY),
            "mixture: without lstm: it needs a day of history",
        ),
        (
            build_lstm(setup(history=history), lstm=TINY),
            "lstm: under a day of history, last-value and moving-mean",
        ),
    ):
        forecast = forecaster.forecast(history, 60)
        assert_sane(forecast, history, 60)
        assert forecast.label == why
        assert not forecaster.card


def test_experts_that_need_more_history_are_named():
    short = build(setup(history=first_units(DAYS, 600)), experts=("last-value", "ridge"), lstm=TINY)

    label = short.forecast(first_units(DAYS, 600), 60).label
    assert label == "mixture: without ridge: it needs 2 days of history; without lstm: it needs a day of history"


def test_without_torch_the_mixture_goes_on_and_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "mark.predictors.lstm.quantile.training", raising=False)
    monkeypatch.delitem(sys.modules, "mark.predictors.lstm.vanilla_training", raising=False)

    forecast = build(setup(), experts=FEW, lstm=TINY).forecast(HISTORY, 60)

    assert_sane(forecast, HISTORY, 60)
    assert forecast.label == "mixture: without lstm: torch is not installed"
    with pytest.raises(ImportError):
        build_lstm(setup(), lstm=TINY)


def test_what_was_learned_is_found_again_and_newer_history_is_learned_anew(tmp_path):
    def files() -> set[str]:
        return {path.name for path in tmp_path.glob("lstm-*.npz")}

    build_lstm(setup(cache_dir=tmp_path), lstm=TINY)
    first = files()
    build(setup(cache_dir=tmp_path), experts=FEW, lstm=TINY)
    assert files() == first
    assert len(first) == 2

    newer = build_lstm(setup(cache_dir=tmp_path, history=DAYS), lstm=TINY)

    assert len(files()) == 4
    assert newer.card["lstm_mean"]["trained_until"] == DAYS.end_at
