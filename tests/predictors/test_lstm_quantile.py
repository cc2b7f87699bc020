"""The quantile LSTM: what it learns, that it is repeatable, and what it owes as an expert."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from mark.predictors.classical.points import LastValueRule
from mark.predictors.classical.residuals import PointExpert
from mark.predictors.expert import LEVELS, Floats, Series
from mark.predictors.lstm.quantile import training
from mark.predictors.lstm.quantile.features import build_inputs
from mark.predictors.lstm.quantile.forward_pass import QuantileForward, QuantileWeights
from mark.predictors.lstm.quantile.lstm_quantile import LstmQuantile, can_learn, fit_lstm
from mark.predictors.lstm.quantile.settings import QuantileSettings
from mark.predictors.lstm.quantile.trained_networks import read_arrays
from mark.predictors.lstm.quantile.training import train_quantiles
from mark.predictors.mixture.scores import pinball, targets
from tests.predictors.series import DAY, noisy_days

TINY = QuantileSettings(hidden=8, width=8, epochs=1, least_batches=1, share=0.2, seeds=1)


def daily(days: float, *, seed: int = 1) -> Series:
    return noisy_days(round(days * DAY), seed=seed)


SERIES = daily(2.3)


@pytest.fixture(scope="module")
def tiny() -> LstmQuantile:
    return fit_lstm(SERIES, TINY, kind="mean", seed=1)


def answers(expert: LstmQuantile, series: Series = SERIES, ends: tuple[int, ...] = (1600, 2000, 3312)) -> Floats:
    return expert.forecast(series, np.array(ends), 60)


def arrays_of(weights: QuantileWeights) -> dict[str, Floats]:
    return {name: getattr(weights, name) for name in QuantileWeights.__dataclass_fields__}


def assert_same(one: QuantileWeights, other: QuantileWeights) -> None:
    for name, array in arrays_of(one).items():
        np.testing.assert_array_equal(array, getattr(other, name), err_msg=name)


def test_it_learns_a_day_and_what_runs_by_the_clock():
    series = daily(3.5)
    known = Series(rates=series.rates[: 3 * DAY], start_at=0.0)
    settings = replace(TINY, epochs=4, share=0.3)
    ends = np.arange(3 * DAY, round(3.5 * DAY) - 60, 31)
    actual = targets(series.rates, ends, 60)

    def loss(expert: LstmQuantile | PointExpert) -> float:
        return float(pinball(actual, expert.forecast(series, ends, 60)).mean())

    assert loss(fit_lstm(known, settings, kind="mean", seed=1)) < 0.35 * loss(PointExpert(LastValueRule()))


def test_forward_pass_agrees_with_torch():
    settings = TINY
    networks: list[training.QuantileNetwork] = []
    made = training.weights_of

    def caught(network, *args, **rest):
        networks.append(network)
        return made(network, *args, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "weights_of", caught)
        trained = train_quantiles(SERIES, settings, seed=3)
    ends = np.array([200, 1559, 1560, 3000])
    inputs = build_inputs(
        SERIES, ends, floor_rps=float(trained.weights.floor_rps), window=120, horizon=60, sees_days=True
    )
    examples = training.examples_of(SERIES, inputs, np.arange(len(ends)), settings)
    with torch.inference_mode():
        expected = networks[0].eval()(examples).numpy()

    found = QuantileForward([trained.weights])(inputs, 120) - inputs.levels[:, :1, None]

    assert trained.weights.sees_days == 1
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-5)


def test_answers_are_those_of_each_origin_alone(tiny):
    together = answers(tiny)

    for row, end in enumerate((1600, 2000, 3312)):
        alone = tiny.forecast(Series(rates=SERIES.rates[:end], start_at=0.0), np.array([end]), 60)
        np.testing.assert_allclose(alone[0], together[row], rtol=1e-9)


def test_eight_days_and_some_hours_are_all_that_it_looks_at(tiny):
    series, dropped = daily(10), DAY + 333
    ends = np.array([len(series.rates)])
    shorter = Series(rates=series.rates[dropped:], start_at=60.0 * dropped)

    np.testing.assert_allclose(
        tiny.forecast(shorter, ends - dropped, 60), tiny.forecast(series, ends, 60), rtol=1e-9
    )


@pytest.mark.parametrize("end", [120, 1000, 1559, 1560, 3000])
def test_what_comes_after_an_origin_changes_nothing_there(tiny, end):
    changed = Series(rates=SERIES.rates.copy(), start_at=0.0)
    changed.rates[end:] *= 5

    np.testing.assert_array_equal(answers(tiny, ends=(end,)), answers(tiny, changed, (end,)))


def test_quantiles_rise_and_are_no_less_than_nothing(tiny):
    for rates in (SERIES.rates, np.zeros(2000), SERIES.rates * 1e6, np.where(np.arange(2000) % 400, 0.0, 1e5)):
        answer = tiny.forecast(Series(rates=rates, start_at=0.0), np.arange(120, len(rates) + 1, 97), 60)

        assert np.isfinite(answer).all()
        assert (np.diff(answer, axis=-1) >= 0).all()
        assert (answer >= 0).all()


def test_it_is_unavailable_below_its_window_and_repeats_its_last_lead(tiny):
    answer = tiny.forecast(SERIES, np.array([119, 120]), 70)

    assert np.isnan(answer[0]).all()
    assert np.isfinite(answer[1]).all()
    np.testing.assert_array_equal(answer[1, 60:], np.broadcast_to(answer[1, 59], (10, len(LEVELS))))


def test_a_day_is_needed_and_enough():
    assert not can_learn(daily(0.999))
    series = daily(1)
    assert can_learn(series)

    expert = fit_lstm(series, TINY, kind="mean", seed=1)

    # It never saw a day before: yesterday must say nothing to it then, however the day after looks.
    changed = daily(1.9, seed=2)
    whole = Series(rates=np.concatenate([changed.rates[:1000] * 3, changed.rates[1000:]]), start_at=0.0)
    np.testing.assert_array_equal(answers(expert, whole, (2700,)), answers(expert, changed, (2700,)))


def test_the_seed_decides_the_weights(tiny):
    again, other = (fit_lstm(SERIES, TINY, kind="mean", seed=seed) for seed in (1, 2))

    np.testing.assert_array_equal(answers(again), answers(tiny))
    assert (answers(other) != answers(tiny)).any()


def test_torch_is_found_again_as_it_was():
    threads = torch.get_num_threads()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)

    train_quantiles(daily(1), TINY, seed=1)

    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads


def test_interrupted_training_goes_on_and_ends_at_the_same_weights(tmp_path):
    settings, interrupted_after = replace(TINY, epochs=3, seeds=2), 2
    whole = fit_lstm(SERIES, settings, kind="mean", seed=1)
    told: list[float] = []

    def stop(_: str, share: float) -> None:
        told.append(share)
        if len(told) == interrupted_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_lstm(SERIES, settings, kind="mean", seed=1, cache_dir=tmp_path, progress=stop)
    told.clear()
    gone_on = fit_lstm(
        SERIES, settings, kind="mean", seed=1, cache_dir=tmp_path, progress=lambda _, share: told.append(share)
    )

    assert told[0] == pytest.approx((interrupted_after + 1) / 3 / 2)
    assert told == sorted(told)
    assert told[-1] == 1.0
    np.testing.assert_array_equal(answers(gone_on), answers(whole))
    assert not list(tmp_path.glob("*.part.npz"))


def test_what_was_learned_is_cached_with_a_card(tmp_path, monkeypatch):
    first = fit_lstm(SERIES, replace(TINY, seeds=2), kind="max", seed=1, cache_dir=tmp_path / "new")
    monkeypatch.setattr(training, "train_quantiles", None)

    again = fit_lstm(SERIES, replace(TINY, seeds=2), kind="max", seed=1, cache_dir=tmp_path / "new")

    np.testing.assert_array_equal(answers(again), answers(first))
    (path,) = (tmp_path / "new").glob("*.json")
    assert json.loads(path.read_bytes()) == json.loads(json.dumps(asdict(first.card)))
    assert again.card == first.card
    assert first.card.kind == "max"
    assert first.card.trained_until == 60.0 * len(SERIES.rates)
    assert first.out_of_sample_from == first.card.trained_until - 60.0 * round(0.1 * len(SERIES.rates))
    assert len(first.card.seeds) == len(first.card.epochs) == len(first.card.held_out_loss) == 2
    assert json.loads(path.read_text())["settings"]["hidden"] == 8


@pytest.mark.parametrize(
    ("series", "settings"),
    [(daily(2.3, seed=2), TINY), (SERIES, replace(TINY, epochs=2)), (replace(SERIES, start_at=60.0), TINY)],
    ids=["history", "settings", "time"],
)
def test_other_inputs_are_learned_anew(tmp_path, series, settings):
    fit_lstm(SERIES, TINY, kind="mean", seed=1, cache_dir=tmp_path)
    fit_lstm(series, settings, kind="mean", seed=1, cache_dir=tmp_path)

    assert len(list(tmp_path.glob("*.npz"))) == 2


@pytest.mark.parametrize("damage", ["truncated", "other arrays", "nan"])
def test_damaged_weights_are_learned_again(tmp_path, tiny, damage):
    fit_lstm(SERIES, TINY, kind="mean", seed=1, cache_dir=tmp_path)
    (path,) = tmp_path.glob("*.npz")
    match damage:
        case "truncated":
            path.write_bytes(path.read_bytes()[:5000])
        case "other arrays":
            np.savez(path, w_step=np.zeros(3))
        case "nan":
            arrays = read_arrays(path)
            assert arrays is not None
            np.savez(path, **{**arrays, "skip": np.full_like(arrays["skip"], np.nan)})

    again = fit_lstm(SERIES, TINY, kind="mean", seed=1, cache_dir=tmp_path)

    np.testing.assert_array_equal(answers(again), answers(tiny))


def test_a_cache_that_cannot_be_written_costs_a_warning_only(tmp_path):
    (tmp_path / "file").write_text("in the way")

    with pytest.warns(UserWarning, match="nothing cached"):
        expert = fit_lstm(daily(1), TINY, kind="mean", seed=1, cache_dir=tmp_path / "file")

    assert np.isfinite(answers(expert, ends=(1600,))).all()


def test_the_end_of_the_history_is_never_learned_from():
    split = len(SERIES.rates) - round(0.1 * len(SERIES.rates))
    changed = Series(rates=SERIES.rates.copy(), start_at=0.0)
    changed.rates[split:] *= 7
    # Patience 0: whichever loss the held-out end has, the weights are those of least squares.
    start = replace(TINY, patience=0)

    known, other = (train_quantiles(series, start, seed=1) for series in (SERIES, changed))

    assert_same(known.weights, other.weights)
    assert known.held_out_loss != other.held_out_loss


def test_only_training_needs_torch(tmp_path, monkeypatch):
    first = fit_lstm(SERIES, TINY, kind="mean", seed=1, cache_dir=tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "mark.predictors.lstm.quantile.training")

    again = fit_lstm(SERIES, TINY, kind="mean", seed=1, cache_dir=tmp_path)

    np.testing.assert_array_equal(answers(again), answers(first))
    with pytest.raises(ImportError):
        fit_lstm(SERIES, TINY, kind="mean", seed=2, cache_dir=tmp_path)
