"""Bursts by the clock: what is one, when the next one comes, and what a forecast makes of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.demand import Demand
from mark.plugins.load import build_forecaster
from mark.ports import ForecasterSetup
from mark.predictors.classical.points import LastValueRule
from mark.predictors.classical.residuals import PointExpert
from mark.predictors.clock_bursts.bursts import extend_bursts, find_bursts
from mark.predictors.clock_bursts.clock_bursts import ClockBursts
from mark.predictors.clock_bursts.onsets import learn_hazard
from mark.predictors.expert import LEVELS, Expert, Floats, Ints, Series
from mark.predictors.mixture.build import EXPERTS
from mark.predictors.mixture.mixture import Mixture
from mark.predictors.mixture.scores import pinball, targets
from tests.predictors.series import DAY, until

BASE, HEIGHT, LASTS = 50.0, 150.0, 8
MEDIAN, HIGH = LEVELS.index(0.5), LEVELS.index(0.95)


def bursting(onsets: Ints, units: int, *, seed: int = 1) -> Series:
    """A calm load with 5 % of noise, and bursts of eight minutes."""
    rng = np.random.default_rng(seed)
    rates = BASE * rng.normal(1.0, 0.05, units)
    for onset in onsets:
        rates[onset : onset + LASTS] += HEIGHT * rng.normal(1.0, 0.05, len(rates[onset : onset + LASTS]))
    return Series(rates=rates, start_at=0.0)


def by_clock(days: int) -> Ints:
    """Minute 32 of every other hour."""
    return np.arange(92, days * DAY, 120)


def at_random(days: int, *, seed: int = 1) -> Ints:
    """As many as `by_clock`, at any time."""
    gaps = 20 + np.random.default_rng(seed).exponential(100.0, days * 12)
    onsets = np.cumsum(gaps).astype(np.int64)
    return onsets[onsets < days * DAY - LASTS]


def asked(series: Series, end: int, horizon: int = 60) -> Floats:
    return ClockBursts().forecast(series, np.array([end]), horizon)[0]


def loss(expert: Expert, series: Series, ends: Ints) -> float:
    return float(pinball(targets(series.rates, ends, 60), expert.forecast(series, ends, 60)).mean())


def test_bursts_are_found_with_their_onset_length_and_size():
    onsets = by_clock(2)[1:]
    series = bursting(onsets, 2 * DAY)

    found = find_bursts(series)

    np.testing.assert_array_equal(found.onsets, onsets)
    np.testing.assert_array_equal(found.ends, onsets + LASTS)
    np.testing.assert_allclose(found.sizes(2 * DAY), HEIGHT * LASTS, rtol=0.1)
    np.testing.assert_allclose(found.calm, BASE, rtol=0.25)


def test_a_level_that_stays_becomes_the_base():
    rates = np.concatenate([np.full(300, 50.0), np.full(300, 200.0)])

    found = find_bursts(Series(rates=rates, start_at=0.0))

    assert len(found.onsets) == 1
    assert found.ends[0] < 380
    np.testing.assert_array_equal(found.calm[400:], 200.0)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 99), end=st.integers(1, 900))
def test_whether_a_unit_is_in_a_burst_depends_on_the_units_up_to_it_alone(seed, end):
    rng = np.random.default_rng(seed)
    series = Series(rates=rng.gamma(0.7, 50.0, 900), start_at=60.0 * seed)

    whole, known = find_bursts(series), find_bursts(until(series, end))

    begun = whole.onsets < end
    np.testing.assert_array_equal(known.onsets, whole.onsets[begun])
    np.testing.assert_array_equal(known.ends, np.minimum(whole.ends[begun], end))
    np.testing.assert_array_equal(known.calm, whole.calm[:end])
    extended = extend_bursts(known, series)
    np.testing.assert_array_equal(extended.onsets, whole.onsets)
    np.testing.assert_array_equal(extended.ends, whole.ends)
    np.testing.assert_array_equal(extended.calm, whole.calm)


def test_the_hazard_follows_the_clock_that_bursts_keep_to():
    series = bursting(by_clock(3), 3 * DAY)

    hazard = learn_hazard(series, 0, find_bursts(series), 0, 3 * DAY).clock

    assert hazard[92] > 0.5
    assert hazard[[32, 90, 94, 152]].max() < 0.05


def test_without_a_clock_the_hazard_is_the_same_at_all_times():
    series = bursting(at_random(4), 4 * DAY)

    hazard = learn_hazard(series, 0, find_bursts(series), 0, 4 * DAY)

    assert hazard.clock.max() < 5 * hazard.clock.mean()


def test_refractory_bursts_have_no_hazard_soon_after_the_last_one():
    onsets = np.cumsum(np.random.default_rng(2).integers(110, 190, 40))
    series = bursting(onsets, int(onsets[-1]) + 100)

    hazard = learn_hazard(series, 0, find_bursts(series), 0, len(series.rates))

    soon, later = hazard.at(np.array([0, 0]), np.array([40, 150]))
    assert later > 10 * soon


def test_a_burst_is_expected_at_its_minute_and_not_before():
    series = bursting(by_clock(3), 3 * DAY)
    end = 2 * DAY + 70  # 22 minutes before one

    found = asked(series, end)

    assert found[10, HIGH] < 1.3 * BASE
    assert found[25, MEDIAN] > BASE + 0.7 * HEIGHT
    assert found[45, HIGH] < 1.3 * BASE


def test_a_burst_under_way_goes_on_as_long_as_others_did():
    series = bursting(by_clock(3), 3 * DAY)
    end = 2 * DAY + 92 + 3

    found = asked(series, end)

    assert found[1, MEDIAN] > BASE + 0.7 * HEIGHT
    assert found[LASTS - 3 + 2, MEDIAN] < 1.3 * BASE


def test_the_first_burst_ever_may_last_as_long_again():
    series = bursting(np.array([400]), 410)

    found = asked(series, 404)

    assert found[0, MEDIAN] > BASE + 0.7 * HEIGHT
    assert found[1, HIGH] > BASE + 0.7 * HEIGHT
    assert found[30, MEDIAN] < 1.3 * BASE


def test_regular_bursts_halve_the_loss():
    series, ends = bursting(by_clock(4), 4 * DAY), np.arange(2 * DAY, 4 * DAY - 60, 7)

    assert loss(ClockBursts(), series, ends) < 0.5 * loss(PointExpert(LastValueRule()), series, ends)


def test_irregular_bursts_cost_no_more_than_the_last_value():
    series, ends = bursting(at_random(4), 4 * DAY), np.arange(2 * DAY, 4 * DAY - 60, 7)

    assert loss(ClockBursts(), series, ends) <= loss(PointExpert(LastValueRule()), series, ends)


def test_the_mixture_follows_it_where_bursts_are_regular():
    series = bursting(by_clock(3), 3 * DAY)

    weights = Mixture([PointExpert(LastValueRule()), ClockBursts()]).weights(series)

    assert ClockBursts.name in EXPERTS
    assert (weights[1, 2:, MEDIAN:] > 0.9).all()


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 99),
    end=st.integers(40, 2000),
    scale=st.sampled_from([1e-3, 1.0, 1e5]),
    start=st.integers(0, 200),
)
def test_any_load_gives_quantiles_that_rise_and_scale_with_it(seed, end, scale, start):
    rng = np.random.default_rng(seed)
    rates = rng.gamma(rng.choice([0.1, 1.0, 20.0]), 10.0, end)

    once = asked(Series(rates=rates, start_at=60.0 * start), end)
    scaled = asked(Series(rates=scale * rates, start_at=60.0 * start), end)

    assert (once >= 0).all()
    assert (np.diff(once, axis=-1) >= 0).all()
    np.testing.assert_allclose(scaled, scale * once, rtol=1e-5, atol=1e-6 * scale * rates.max())


@pytest.mark.parametrize("units", [0, 1, 30, 200, 2 * DAY])
def test_as_a_forecaster_it_answers_with_any_history(units):
    rates = tuple(bursting(by_clock(3), 3 * DAY).rates[:units].tolist())
    history = Demand(end_at=60.0 * units, mean_rps=rates, max_rps=tuple(1.1 * rate for rate in rates))

    forecast = build_forecaster("clock-bursts", ForecasterSetup(history=history, seed=1)).forecast(history, 60)

    assert forecast.source == "clock-bursts"
    assert (forecast.degraded is None) == (units >= 39)
    assert len(forecast) == 60
    assert np.isfinite(forecast.max_rps).all()
