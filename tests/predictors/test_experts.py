"""What every classical expert owes, whatever its rule."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.predictors.classical.autoregression import ArWeights, Autoregression, lags_of
from mark.predictors.classical.boosted_features import LONGEST_LEAD, NAMES, ORIGIN_NAMES
from mark.predictors.classical.exponential import HoltWinters, Smoothing
from mark.predictors.classical.points import DriftRule, LastValueRule, MovingMeanRule, PointRule, first_unit
from mark.predictors.classical.points_seasonal import DayAgo, Seasonal
from mark.predictors.classical.residuals import PointExpert
from mark.predictors.classical.ridge import Direct
from mark.predictors.clock_bursts.clock_bursts import ClockBursts
from mark.predictors.expert import LEVELS, Expert, Floats, Series
from tests.predictors.series import DAY, last_units, noisy_days, until

HORIZON = 60
DAYS = noisy_days(4 * DAY)
LAGS = lags_of(DAYS)
RIDGE = np.zeros((LONGEST_LEAD, len(NAMES) + 6))
RIDGE[:, : len(ORIGIN_NAMES)] = np.random.default_rng(3).normal(0.0, 0.05, (LONGEST_LEAD, len(ORIGIN_NAMES)))
RULES: dict[str, type[PointRule] | functools.partial[PointRule]] = {
    "last-value": LastValueRule,
    "moving-mean": MovingMeanRule,
    "drift": DriftRule,
    "seasonal-naive": DayAgo,
    "seasonal": Seasonal,
    "seasonal-median": functools.partial(Seasonal, typical=True),
    "holt-winters": functools.partial(HoltWinters, Smoothing()),
    "ridge": functools.partial(Direct, RIDGE),
    "autoregression": functools.partial(
        Autoregression, ArWeights(0.01, LAGS, tuple(0.9 / len(LAGS) for _ in LAGS))
    ),
}


BURSTS = "clock-bursts"


@pytest.fixture(params=[*sorted(RULES), BURSTS])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fresh(name: str, window: int = 300) -> Expert:
    return ClockBursts() if name == BURSTS else PointExpert(RULES[name](), window=window)


def asked(expert: Expert, series: Series, *ends: int, horizon: int = HORIZON) -> Floats:
    return expert.forecast(series, np.array(ends), horizon)


def test_quantiles_rise_and_are_no_less_than_nothing(name):
    ends = range(2 * DAY, 4 * DAY, 231)
    found = asked(fresh(name), DAYS, *ends)

    assert found.shape == (len(ends), HORIZON, len(LEVELS))
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert (np.diff(found, axis=-1) >= 0).all()
    assert (found[..., -1] > found[..., 0]).any()


def test_what_comes_later_changes_nothing(name):
    ends = (2 * DAY, 2 * DAY + 1, 3 * DAY - 7)
    other = Series(rates=DAYS.rates.copy(), start_at=0.0)
    other.rates[ends[-1] :] = 1e5

    np.testing.assert_array_equal(asked(fresh(name), other, *ends), asked(fresh(name), DAYS, *ends))
    for end in ends:
        other.rates[end:] = 1e5
    known = [asked(fresh(name), until(DAYS, end), end)[0] for end in ends]
    np.testing.assert_array_equal(known, asked(fresh(name), DAYS, *ends))


def test_the_last_unit_is_seen(name):
    end = 3 * DAY
    other = until(DAYS, end)
    other.rates[-15:] *= 3

    before, after = asked(fresh(name), DAYS, end), asked(fresh(name), other, end)

    if name != "seasonal-naive":  # it looks at yesterday alone: its quantiles alone see today
        assert (after[0, 0] != before[0, 0]).any()
    assert (after != before).any()


@pytest.mark.parametrize("first", [2 * DAY - 10, 3 * DAY - 10])
def test_following_the_series_gives_what_a_fresh_one_gives(name, first):
    follower = fresh(name)
    for end in range(first, first + 20):
        found = asked(follower, until(DAYS, end), end)

    np.testing.assert_array_equal(found, asked(fresh(name), until(DAYS, first + 19), first + 19))


@given(
    rule=st.sampled_from([LastValueRule, MovingMeanRule, DriftRule]),
    start=st.integers(61, 300),
    steps=st.lists(st.integers(0, 70), min_size=1, max_size=8),
    forgotten=st.booleans(),
    spare=st.sampled_from([1, 8, 1024]),
)
@settings(max_examples=30)
def test_whatever_was_asked_before_a_fresh_one_gives_the_same(rule, start, steps, forgotten, spare):
    follower = PointExpert(rule(), window=50)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mark.predictors.classical.residuals.SPARE", spare)
        end = start + 2 * DAY * forgotten
        for step in steps:
            end += step
            shown = until(DAYS, end)
            if forgotten:  # more than the day and the errors that these rules look back
                shown = last_units(shown, 2 * DAY)
            found = asked(follower, shown, len(shown.rates), horizon=10)

    fresh_one = PointExpert(rule(), window=50)
    np.testing.assert_array_equal(found, asked(fresh_one, shown, len(shown.rates), horizon=10))


def test_many_origins_give_what_each_gives_alone(name):
    ends = (3 * DAY - 3, 3 * DAY, 3 * DAY + 1, 3 * DAY + 18)

    together = asked(fresh(name), DAYS, *ends)

    for end, row in zip(ends, together, strict=True):
        np.testing.assert_array_equal(row, asked(fresh(name), DAYS, end)[0])


def test_another_series_is_not_taken_for_the_one_before(name):
    used, other = fresh(name), noisy_days(3 * DAY + 1, seed=2)
    asked(used, until(DAYS, 3 * DAY), 3 * DAY)

    np.testing.assert_array_equal(asked(used, other, 3 * DAY + 1), asked(fresh(name), other, 3 * DAY + 1))


def test_a_history_that_forgets_its_oldest_units_gives_the_same(name):
    follower, days = fresh(name), noisy_days(12 * DAY)
    for end in (12 * DAY - 2, 12 * DAY - 1, 12 * DAY):
        shown = last_units(until(days, end), 11 * DAY)
        found = asked(follower, shown, 11 * DAY)

    np.testing.assert_array_equal(found, asked(fresh(name), shown, 11 * DAY))


def test_a_thousand_times_the_load_gives_a_thousand_times_the_forecast(name):
    ends = (2 * DAY + 5, 3 * DAY)

    found = asked(fresh(name), noisy_days(3 * DAY, factor=1000.0), *ends)

    np.testing.assert_allclose(found, 1000 * asked(fresh(name), noisy_days(3 * DAY), *ends), rtol=1e-6)


def test_under_its_history_it_says_nothing(name):
    expert = fresh(name)
    needed = expert.needs_units

    found = asked(expert, DAYS, 0, 1, needed - 1, needed, needed + 1)

    assert np.isnan(found[:3]).all()
    assert np.isfinite(found[3:]).all()


@pytest.mark.parametrize("start_at", [0.0, 30.0, 1.7e9 + 30.0, 1.7e9 + 0.1, 1.7e9 + 59.7])
def test_units_are_counted_one_by_one_wherever_they_start(start_at):
    series = [Series(rates=np.ones(1), start_at=start_at + 60.0 * k) for k in range(200)]

    assert [first_unit(one) for one in series] == list(range(first_unit(series[0]), first_unit(series[0]) + 200))


def test_no_history_at_all(name):
    found = asked(fresh(name), Series(rates=np.empty(0), start_at=0.0), 0)

    assert np.isnan(found).all()


@pytest.mark.parametrize("rps", [0.0, 7.0])
def test_a_constant_load_is_forecast_as_it_is(name, rps):
    rates = np.full(2 * DAY + 200, rps)
    expert = fresh(name)

    found = asked(expert, Series(rates=rates, start_at=0.0), len(rates))

    np.testing.assert_allclose(found, rps, rtol=1e-6, atol=1e-9)


def test_load_after_days_of_silence(name):
    rates = np.zeros(2 * DAY + 300)
    rates[2 * DAY + 100 :] = 50.0

    found = asked(fresh(name), Series(rates=rates, start_at=0.0), *range(2 * DAY, len(rates), 7))

    assert np.isfinite(found).all()
    assert (np.diff(found, axis=-1) >= 0).all()


def test_levels_hold_what_they_say_on_a_steady_load():
    rng = np.random.default_rng(5)
    series = Series(rates=rng.gamma(25.0, 4.0, 3000), start_at=0.0)
    ends = np.arange(1000, 2900)

    found = PointExpert(MovingMeanRule()).forecast(series, ends, 10)

    actual = series.rates[ends[:, None] + np.arange(10)]
    shares = (actual[..., None] <= found).mean(axis=(0, 1))
    np.testing.assert_allclose(shares, LEVELS, atol=0.03)


def test_a_lead_without_errors_of_its_own_borrows_the_shorter_ones():
    expert = fresh("last-value")
    found = asked(expert, DAYS, expert.needs_units)

    assert (found[0, -1, -1] - found[0, -1, 0]) > 0
    np.testing.assert_array_equal(found[0, -1], found[0, -2])


def test_a_fact_of_a_series_is_found_once():
    series, asked = Series(rates=np.ones(3), start_at=0.0), []

    def level(value):
        return lambda: asked.append(value) or value

    assert [series.once("a", level(1.0)), series.once("a", level(2.0)), series.once("b", level(3.0))] == [
        1.0,
        1.0,
        3.0,
    ]
    assert asked == [1.0, 3.0]
    assert Series(rates=np.ones(3), start_at=0.0).once("a", level(4.0)) == 4.0
