"""The classical forecasters by name: what they learn, where they keep it, and what they say."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from mark.domain.demand import Demand
from mark.domain.errors import Misconfigured
from mark.plugins.load import forecaster_names, load_forecaster
from mark.ports import ForecasterSetup
from mark.predictors.classical.boosted import BoostedSettings
from mark.predictors.classical.expert_factory import CLASSICAL, classical_expert, why_not_learned
from mark.predictors.expert import LEVELS, Expert, Series
from mark.predictors.mixture.scores import targets
from mark.simulator.scores import SCORED_LEVELS, absolute_percentage, weighted_quantile_loss
from tests.predictors.series import DAY, last_units, noisy_days, until
from tests.predictors.test_adapter import assert_sane

LEARNED = 4 * DAY
DAYS = noisy_days(LEARNED + 400)
LEARNERS = ("holt-winters", "autoregression", "ridge", "boosted")
NAMED = tuple(name for name in CLASSICAL if name not in {"last-value", "seasonal-naive"})
TEST_ENDS = np.arange(LEARNED, len(DAYS.rates) - 60, 13)


def demand(series: Series) -> Demand:
    means = tuple(series.rates.tolist())
    return Demand(
        end_at=series.start_at + len(means) * 60.0, mean_rps=means, max_rps=tuple(1.3 * mean for mean in means)
    )


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees that are trained in half a second."""
    monkeypatch.setattr(
        "mark.predictors.classical.expert_factory.BoostedSettings", lambda: BoostedSettings(rows=6_000, trees=15)
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("learned")


def expert(name: str, cache: Path, series: Series = DAYS) -> Expert:
    found = classical_expert(name, until(series, LEARNED), cache_dir=cache)
    assert found is not None
    return found


@pytest.mark.parametrize("name", CLASSICAL)
def test_quantiles_rise_and_following_gives_what_a_fresh_one_gives(name, cache):
    follower = expert(name, cache)
    for end in range(LEARNED, LEARNED + 8):
        found = follower.forecast(until(DAYS, end), np.array([end]), 60)

    np.testing.assert_array_equal(
        found, expert(name, cache).forecast(until(DAYS, LEARNED + 7), np.array([LEARNED + 7]), 60)
    )
    assert found.shape == (1, 60, len(LEVELS))
    assert np.isfinite(found).all()
    assert (np.diff(found, axis=-1) >= 0).all()


@pytest.mark.parametrize("name", LEARNERS)
def test_what_comes_later_changes_nothing(name, cache):
    other = Series(rates=DAYS.rates.copy(), start_at=0.0)
    other.rates[LEARNED + 300 :] = 1e4
    ends = np.array([LEARNED, LEARNED + 299, LEARNED + 300])

    np.testing.assert_array_equal(
        expert(name, cache).forecast(other, ends, 60), expert(name, cache).forecast(DAYS, ends, 60)
    )


@pytest.mark.parametrize("name", CLASSICAL)
@pytest.mark.parametrize("unit_s", [57.0, 300.0])
def test_units_of_another_length(name, unit_s):
    series = Series(rates=noisy_days(4 * DAY).rates, start_at=0.0, unit_s=unit_s)
    end = round(3.5 * 86_400 / unit_s) if unit_s < 60 else 8 * 288
    other = Series(rates=series.rates[: end + 90].copy(), start_at=0.0, unit_s=unit_s)
    other.rates[end:] = 1e4
    found = classical_expert(name, Series(rates=series.rates[:end], start_at=0.0, unit_s=unit_s))
    assert found is not None
    ends = np.arange(end - 8, end + 1)

    rows = found.forecast(other, ends, 60)

    assert np.isfinite(rows).all()
    np.testing.assert_array_equal(rows, found.forecast(series, ends, 60))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_thousand_times_the_load_gives_a_thousand_times_the_forecast(name, cache):
    found = expert(name, cache).forecast(DAYS, TEST_ENDS[:3], 60)
    more = Series(rates=1000 * DAYS.rates, start_at=0.0)

    np.testing.assert_allclose(expert(name, cache).forecast(more, TEST_ENDS[:3], 60), 1000 * found, rtol=1e-6)


def scored(actual: np.ndarray, quantiles: np.ndarray) -> tuple[float, float]:
    """WAPE and wQL of forecasts of shape (origins, horizon, levels)."""
    columns = [LEVELS.index(level) for level in SCORED_LEVELS]
    came, rows = actual.ravel(), quantiles.reshape(-1, len(LEVELS))
    wql = weighted_quantile_loss(came, rows[:, columns], SCORED_LEVELS)
    return absolute_percentage(came, rows[:, LEVELS.index(0.5)]), wql


@pytest.mark.parametrize("name", LEARNERS)
def test_learning_beats_the_last_value(name, cache):
    actual = targets(DAYS.rates, TEST_ENDS, 60)
    simple = expert("last-value", cache).forecast(DAYS, TEST_ENDS, 60)
    found = expert(name, cache).forecast(DAYS, TEST_ENDS, 60)

    for learned, repeated in zip(scored(actual, found), scored(actual, simple), strict=True):
        assert learned < 0.7 * repeated


@pytest.mark.parametrize("name", LEARNERS)
def test_what_was_learned_is_kept_and_found_again(name, tmp_path):
    history = until(DAYS, 3 * DAY)
    first = classical_expert(name, history, cache_dir=tmp_path)
    (kept,) = tmp_path.iterdir()
    written = kept.stat().st_mtime_ns
    again = classical_expert(name, history, cache_dir=tmp_path)
    afresh = classical_expert(name, history)

    assert kept.stat().st_mtime_ns == written
    assert first is not None
    expected = first.forecast(DAYS, TEST_ENDS[:2], 60)
    for other in (again, afresh):
        assert other is not None
        np.testing.assert_array_equal(other.forecast(DAYS, TEST_ENDS[:2], 60), expected)


def test_another_history_or_seed_is_kept_apart(tmp_path):
    days = until(DAYS, 3 * DAY)
    for history, seed in ((days, 1), (until(days, 2 * DAY), 1), (last_units(days, 2 * DAY), 1), (days, 2)):
        classical_expert("holt-winters", history, seed=seed, cache_dir=tmp_path)

    assert len(list(tmp_path.iterdir())) == 4


def test_a_broken_file_is_learned_anew(tmp_path):
    history = until(DAYS, 3 * DAY)
    first = classical_expert("holt-winters", history, cache_dir=tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_text(kept.read_text()[:-5])

    again = classical_expert("holt-winters", history, cache_dir=tmp_path)

    assert first is not None
    assert again is not None
    np.testing.assert_array_equal(again.forecast(DAYS, TEST_ENDS[:1], 5), first.forecast(DAYS, TEST_ENDS[:1], 5))


def test_a_cache_that_cannot_be_written_costs_a_warning(tmp_path):
    (tmp_path / "file").write_text("")

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = classical_expert("holt-winters", until(DAYS, 2 * DAY), cache_dir=tmp_path / "file")

    assert found is not None
    assert any("not cached" in str(warning.message) for warning in seen)


def test_progress_is_told_for_what_takes_long():
    told: list[tuple[str, float]] = []

    classical_expert("boosted", until(DAYS, 2 * DAY), progress=lambda label, share: told.append((label, share)))

    shares = [share for _, share in told]
    assert {label for label, _ in told} == {"boosted"}
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf")])
def test_a_history_that_is_none_is_refused(rate):
    with pytest.raises(Misconfigured, match="negative or no numbers"):
        classical_expert("ridge", Series(rates=np.array([1.0, rate]), start_at=0.0))


@pytest.mark.parametrize("name", NAMED)
def test_every_name_is_a_forecaster_with_quantiles(name):
    history = demand(until(DAYS, 2 * DAY + 60))
    forecaster = load_forecaster(name)(ForecasterSetup(history=history, seed=1))

    assert name in forecaster_names()
    for horizon in (1, 60, 90):
        assert_sane(forecaster.forecast(history, horizon), history, horizon)
    if name != "autoregression":  # it takes three days to learn
        assert forecaster.forecast(history, 60).label == name


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("units", [0, 1, 30, DAY])
def test_any_length_of_history_gives_a_sane_forecast(name, units):
    history = demand(until(DAYS, units))
    forecaster = load_forecaster(name)(ForecasterSetup(history=history, seed=1))

    forecast = forecaster.forecast(history, 60)

    assert_sane(forecast, history, 60)
    if units < 30:
        assert "no history" in forecast.label or "last hour's maximum" in forecast.label
    if name in {"autoregression", "ridge", "boosted"} and units >= 30:
        days = 3 if name == "autoregression" else 2
        assert forecast.label == f"{name}: it needs {days} days of history, last value"


@pytest.mark.parametrize("name", CLASSICAL)
def test_a_load_of_zeros_is_forecast_as_zeros_or_not_learned(name):
    series = Series(rates=np.zeros(3 * DAY), start_at=0.0)
    found = classical_expert(name, series)

    if found is None:
        assert name in {"autoregression", "ridge", "boosted"}
        assert why_not_learned(name, series) == "its history is zeros"
    else:
        np.testing.assert_allclose(found.forecast(series, np.array([3 * DAY]), 60), 0.0, atol=1e-9)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_constant_load_is_learned_as_it_is(name):
    series = Series(rates=np.full(4 * DAY, 30.0), start_at=0.0)
    found = classical_expert(name, series)

    assert found is not None
    np.testing.assert_allclose(found.forecast(series, np.array([4 * DAY]), 60), 30.0, rtol=1e-3)
