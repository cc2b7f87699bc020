from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.expert import LEVELS
from predictors.scores import (
    WQL_LEVELS,
    coverage,
    mase,
    mase_scale,
    pinball,
    score,
    scored_targets,
    targets,
    wape,
    wql,
)

RATE = st.just(0.0) | st.floats(1e-3, 1e4)
RATES = st.lists(RATE, min_size=4, max_size=4).map(lambda values: np.array(values).reshape(2, 2))


def flat(median: np.ndarray) -> np.ndarray:
    """Quantiles that are all the median."""
    return np.repeat(median[..., None], len(LEVELS), axis=-1)


def test_pinball_by_hand():
    loss = pinball(np.array([[10.0]]), np.array([[[8.0, 10.0, 14.0]]]), (0.5, 0.75, 0.9))

    assert loss[0, 0] == pytest.approx([0.5 * 2, 0.0, 0.1 * 4])


def test_wql_by_hand():
    actual = np.array([[10.0, 30.0]])
    quantiles = np.array([[[8.0, 12.0], [30.0, 34.0]]])

    # level .5: 2 * (1 + 0) / 40 = .05; level .9: 2 * (.1 * 2 + .1 * 4) / 40 = .03
    assert wql(actual, quantiles, levels=(0.5, 0.9), at=(0.5, 0.9)) == pytest.approx(0.04)


def test_wape_and_mase_by_hand():
    actual, median = np.array([[10.0, 30.0]]), np.array([[12.0, 27.0]])

    assert wape(actual, median) == pytest.approx(5 / 40)
    assert mase(actual, median, scale_rps=5.0) == pytest.approx(0.5)


def test_mase_scale_is_the_error_of_the_day_before():
    history = np.array([1.0, 2.0, 3.0, 2.0, 4.0, 3.0])
    left_out = np.array([False, False, False, False, True, False])

    assert mase_scale(history, season=3) == pytest.approx((1 + 2 + 0) / 3)
    assert mase_scale(history, season=3, left_out=left_out) == pytest.approx((1 + 0) / 2)
    assert math.isnan(mase_scale(history, season=6))


def test_coverage_by_hand():
    actual = np.array([[1.0, 2.0, 3.0, 4.0]])
    quantiles = np.array([[[0.0, 1.0], [2.0, 2.0], [2.0, 5.0], [5.0, 6.0]]])

    assert coverage(actual, quantiles) == (0.5, 1.0)
    assert coverage(actual, quantiles, scored=np.array([[True, True, False, False]])) == (0.5, 1.0)
    assert all(math.isnan(share) for share in coverage(actual, quantiles, scored=np.zeros((1, 4), bool)))


def test_targets_end_with_the_series():
    found = targets(np.arange(5.0), np.array([0, 3, 5]), 3)

    np.testing.assert_array_equal(found, [[0, 1, 2], [3, 4, np.nan], [np.nan] * 3])


def test_units_left_out_count_in_no_score():
    units = np.array([10.0, 10.0, 99.0, 10.0])
    ends = np.array([0, 1])
    actual = targets(units, ends, 3)
    scored = scored_targets(actual, ends, np.array([False, False, True, False]))

    np.testing.assert_array_equal(scored, [[True, True, False], [True, False, True]])
    found = score(actual, flat(np.full((2, 3), 8.0)), scale_rps=4.0, scored=scored)
    assert (found.wape, found.mase) == (pytest.approx(0.2), pytest.approx(0.5))
    assert found.coverage == (0.0,) * len(LEVELS)
    assert found.wql == pytest.approx(0.2 * 2 * np.mean(WQL_LEVELS))


def test_a_silent_forecaster_has_no_score():
    found = score(np.ones((1, 2)), flat(np.array([[1.0, np.nan]])), scale_rps=1.0)

    assert all(math.isnan(value) for value in (found.wape, found.wql, found.mase, *found.coverage))


@pytest.mark.parametrize(("forecast", "expected"), [(0.0, 0.0), (1.0, math.inf)])
def test_a_load_of_zeros(forecast, expected):
    actual = np.zeros((1, 2))

    assert wql(actual, flat(actual + forecast)) == expected
    assert wape(actual, actual + forecast) == expected


@given(RATES, RATES)
def test_wql_at_the_median_is_wape(actual, median):
    if actual.sum() > 0:
        assert wql(actual, flat(median), at=(0.5,)) == pytest.approx(wape(actual, median))


@given(RATES, RATES, st.floats(0.01, 1e3))
def test_scores_have_no_unit(actual, median, factor):
    if actual.sum() > 0:
        assert wql(factor * actual, flat(factor * median)) == pytest.approx(wql(actual, flat(median)))
        assert wape(factor * actual, factor * median) == pytest.approx(wape(actual, median))


@given(st.lists(st.floats(0.0, 1e3), min_size=5, max_size=60), st.sampled_from(WQL_LEVELS), st.floats(0.0, 1e3))
def test_no_constant_beats_the_quantile(values, level, other):
    """The pinball loss is least where its level says: this is what makes it the score of a quantile."""
    actual = np.array(values)[:, None]
    quantile = np.quantile(actual, level, method="inverted_cdf")

    def loss(value: float) -> float:
        return float(pinball(actual, np.full((len(actual), 1, 1), value), (level,)).sum())

    assert loss(quantile) <= loss(other) + 1e-9 * (1 + loss(other))


@given(RATES)
def test_a_perfect_forecast_scores_nothing(actual):
    found = score(actual, flat(actual), scale_rps=1.0)

    assert (found.wape, found.wql, found.mase) == (0.0, 0.0, 0.0)
    assert found.coverage == (1.0,) * len(LEVELS)
