from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from mark.domain.demand import Demand
from mark.domain.errors import Misconfigured
from mark.plugins.load import build_forecaster
from mark.ports import ForecasterSetup
from mark.predictors.lstm import vanilla_training
from mark.predictors.lstm.vanilla import build
from mark.predictors.lstm.vanilla_settings import LstmSettings
from mark.predictors.lstm.vanilla_training import train_lstm
from mark.predictors.lstm.vanilla_weights import LstmForward, LstmWeights, read_weights, write_weights
from mark.predictors.naive import LastValue
from tests.predictors.builders import DAY, SMALL, daily_sine, first_units, means

HISTORY = daily_sine(DAY)


def setup(**changes: object) -> ForecasterSetup:
    return replace(ForecasterSetup(history=HISTORY, seed=1), **changes)  # type: ignore[arg-type]


def rates(demand: Demand) -> np.ndarray:
    return np.array([demand.mean_rps, demand.max_rps], np.float32).T


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of the trainings that happened."""
    seeds: list[int] = []
    train = vanilla_training.train_lstm

    def counted(*args: object, seed: int, **rest: object) -> LstmWeights:
        seeds.append(seed)
        return train(*args, seed=seed, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(vanilla_training, "train_lstm", counted)
    return seeds


def test_it_learns_a_daily_sine_better_than_the_last_value():
    days = daily_sine(4 * DAY)
    known = first_units(days, 3 * DAY)
    settings = LstmSettings(hidden=16, batch=64, epochs=20)
    learned = build(ForecasterSetup(history=known, seed=1), settings=settings)
    naive = LastValue(ForecasterSetup(history=known, seed=1))

    def error(forecaster: object, column: str) -> float:
        total = 0.0
        for units in range(3 * DAY, 4 * DAY - 60, 60):
            forecast = forecaster.forecast(first_units(days, units), 60)  # type: ignore[attr-defined]
            truth = getattr(days, column)[units : units + 60]
            total += sum(abs(a - b[0]) for a, b in zip(truth, getattr(forecast, column), strict=True))
        return total

    assert error(learned, "mean_rps") < 0.25 * error(naive, "mean_rps")
    assert error(learned, "max_rps") < 0.25 * error(naive, "max_rps")


def test_numpy_forward_pass_agrees_with_torch():
    weights = train_lstm(rates(HISTORY), SMALL, seed=3, progress=None)
    lstm, head = torch.nn.LSTM(2, SMALL.hidden, batch_first=True), torch.nn.Linear(SMALL.hidden, 120)
    lstm.load_state_dict(
        {
            "weight_ih_l0": torch.from_numpy(weights.w_in),
            "weight_hh_l0": torch.from_numpy(weights.w_state),
            "bias_ih_l0": torch.from_numpy(weights.bias),
            "bias_hh_l0": torch.zeros(4 * SMALL.hidden),
        }
    )
    head.load_state_dict({"weight": torch.from_numpy(weights.w_out), "bias": torch.from_numpy(weights.b_out)})
    window = rates(HISTORY)[500:560]
    with torch.inference_mode():
        states, _ = lstm(torch.from_numpy((window - weights.centre) / weights.scale)[None])
        expected = head(states[0, -1]).numpy().reshape(60, 2) * weights.scale + weights.centre

    np.testing.assert_allclose(LstmForward(weights)(window), expected, rtol=1e-5, atol=1e-4)


def test_the_seed_decides_the_weights():
    forecasts = [build(setup(seed=seed), settings=SMALL).forecast(HISTORY, 60) for seed in (1, 1, 2)]

    assert forecasts[0] == forecasts[1]
    assert forecasts[0] != forecasts[2]


def test_the_history_after_the_held_out_units_is_never_learned_from():
    split = len(HISTORY) - round(0.1 * len(HISTORY))
    changed = rates(HISTORY)
    changed[split:] *= 7
    once = LstmSettings(hidden=4, epochs=1)

    known = train_lstm(rates(HISTORY), once, seed=1, progress=None)
    other = train_lstm(changed, once, seed=1, progress=None)

    assert all(
        np.array_equal(getattr(known, name), getattr(other, name))
        for name in ("w_in", "w_state", "w_out", "centre")
    )


def test_torch_is_found_again_as_it_was():
    threads = torch.get_num_threads()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)

    build(setup(), settings=SMALL)

    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads


def test_a_cache_hit_gives_the_same_forecast_without_training(tmp_path, trainings):
    first = build(setup(cache_dir=tmp_path / "new"), settings=SMALL).forecast(HISTORY, 60)
    again = build(setup(cache_dir=tmp_path / "new"), settings=SMALL).forecast(HISTORY, 60)

    assert again == first
    assert trainings == [1]
    assert len(list((tmp_path / "new").iterdir())) == 1


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({"seed": 2}, SMALL),
        ({"history": daily_sine(DAY + 1)}, SMALL),
        ({}, replace(SMALL, epochs=2)),
    ],
    ids=["seed", "history", "settings"],
)
def test_other_inputs_miss_the_cache(tmp_path, trainings, changes, settings):
    build(setup(cache_dir=tmp_path), settings=SMALL)
    build(setup(cache_dir=tmp_path, **changes), settings=settings)

    assert len(trainings) == 2


@pytest.mark.parametrize("damage", ["empty", "truncated", "bit", "other arrays", "nan"])
def test_a_damaged_cache_file_is_trained_again(tmp_path, trainings, damage):
    first = build(setup(cache_dir=tmp_path), settings=SMALL).forecast(HISTORY, 60)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    weights = read_weights(path)
    assert weights is not None
    match damage:
        case "empty":
            path.write_bytes(b"")
        case "truncated":
            path.write_bytes(whole[: len(whole) // 2])
        case "bit":
            path.write_bytes(whole[:200] + bytes([whole[200] ^ 0xFF]) + whole[201:])
        case "other arrays":
            np.savez(path, w_in=np.zeros(3))
        case "nan":
            write_weights(path, replace(weights, bias=np.full_like(weights.bias, np.nan)))

    again = build(setup(cache_dir=tmp_path), settings=SMALL).forecast(HISTORY, 60)

    assert again == first
    assert len(trainings) == 2
    assert read_weights(path) is not None


def test_a_cache_that_cannot_be_written_costs_a_warning_only(tmp_path):
    (tmp_path / "file").write_text("in the way")

    with pytest.warns(UserWarning, match="weights not cached"):
        forecaster = build(setup(cache_dir=tmp_path / "file"), settings=SMALL)

    assert forecaster.forecast(HISTORY, 60).label == "lstm-vanilla"


def test_under_a_day_it_plans_on_the_last_hour_and_does_not_train(trainings):
    short = daily_sine(DAY - 1)
    history = first_units(HISTORY, 900)

    forecast = build(setup(history=short)).forecast(history, 60)

    assert forecast.label == "lstm-vanilla: under a day of history, last hour's maximum"
    assert means(forecast) == (max(history.mean_rps[-60:]),) * 60
    assert forecast.max_at(0.5) == (max(history.max_rps[-60:]),) * 60
    assert trainings == []


def test_a_constant_history_is_forecast_as_it_is():
    flat = Demand(end_at=0.0, mean_rps=(40.0,) * DAY, max_rps=(50.0,) * DAY)

    forecast = build(setup(history=flat), settings=LstmSettings(hidden=4, epochs=10)).forecast(flat, 60)

    assert means(forecast) == pytest.approx((40.0,) * 60, abs=1.0)
    assert forecast.max_at(0.5) == pytest.approx((50.0,) * 60, abs=1.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_a_history_of_no_rates_is_refused(bad):
    broken = Demand(end_at=0.0, mean_rps=(bad, *HISTORY.mean_rps), max_rps=(1.0, *HISTORY.max_rps))

    with pytest.raises(Misconfigured, match="repair the trace"):
        build(setup(history=broken))


def test_an_answer_that_is_no_number_falls_back_to_the_last_hour():
    forecaster = build(setup(), settings=SMALL)
    spoilt = Demand(end_at=0.0, mean_rps=(*HISTORY.mean_rps, math.nan), max_rps=(*HISTORY.max_rps, 1.0))

    assert forecaster.forecast(spoilt, 60).label == "lstm-vanilla: no finite answer, last hour's maximum"


def test_progress_rises_to_one():
    seen: list[tuple[str, float]] = []

    build(setup(progress=lambda label, share: seen.append((label, share))), settings=SMALL)

    shares = [share for _, share in seen]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert {label for label, _ in seen} == {"training lstm-vanilla"}


def test_only_training_needs_torch(tmp_path, monkeypatch):
    first = build(setup(cache_dir=tmp_path), settings=SMALL).forecast(HISTORY, 60)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "mark.predictors.lstm.vanilla_training")

    assert build(setup(cache_dir=tmp_path), settings=SMALL).forecast(HISTORY, 60) == first
    with pytest.raises(Misconfigured, match=r"^lstm-vanilla needs torch: pip install 'mark-serving\[lstm\]'$"):
        build_forecaster("lstm-vanilla", setup())
