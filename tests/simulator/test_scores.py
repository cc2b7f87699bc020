"""Scores against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mark.simulator import scores

RATES = st.floats(0, 1e6, allow_nan=False)


def test_a_quantile_costs_its_level_below_and_the_rest_above() -> None:
    loss = scores.pinball(np.array([10.0, 10.0]), np.array([[8.0, 12.0], [10.0, 10.0]]), (0.5, 0.9))

    assert loss == pytest.approx(np.array([[1.0, 0.2], [0.0, 0.0]]))


def test_weighted_quantile_loss() -> None:
    # 10 and 30 came; medians 8 and 33, 90 % quantiles 12 and 27
    # median: 0.5 * 2 + 0.5 * 3 = 2.5; 90 %: 0.1 * 2 + 0.9 * 3 = 2.9; 2 * mean / 40
    found = scores.weighted_quantile_loss(
        np.array([10.0, 30.0]), np.array([[8.0, 12.0], [33.0, 27.0]]), (0.5, 0.9)
    )

    assert found == pytest.approx(2 * 2.7 / 40)


def test_the_weighted_loss_of_the_median_alone_is_the_absolute_percentage_error() -> None:
    actual, median = np.array([10.0, 30.0]), np.array([8.0, 33.0])

    assert scores.absolute_percentage(actual, median) == 5 / 40
    assert scores.weighted_quantile_loss(actual, median[:, None], (0.5,)) == pytest.approx(5 / 40)


def test_errors_are_scaled_by_those_of_a_season_before() -> None:
    history = np.array([1.0, 2.0, 3.0, 5.0])  # two units before: off by 2 and 3

    naive = scores.seasonal_error(history, 2)

    assert naive == 2.5
    assert scores.scaled_error(np.array([10.0, 30.0]), np.array([8.0, 33.0]), naive_error=naive) == 1.0


def test_coverage_counts_what_is_at_or_below() -> None:
    quantiles = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])

    assert scores.coverage(np.array([0.5, 1.0, 1.5, 3.0]), quantiles).tolist() == [0.5, 0.75]


def test_without_load_or_history_there_is_no_score() -> None:
    nothing = np.zeros(0)

    assert math.isnan(scores.absolute_percentage(np.zeros(2), np.ones(2)))
    assert math.isnan(scores.weighted_quantile_loss(nothing, np.zeros((0, 2)), (0.5, 0.9)))
    assert math.isnan(scores.seasonal_error(np.ones(2), 2))
    assert math.isnan(scores.seasonal_error(np.ones(9), 2))
    assert math.isnan(scores.scaled_error(nothing, nothing, naive_error=1.0))
    assert np.isnan(scores.coverage(nothing, np.zeros((0, 3)))).all()


def test_levels_between_those_that_are_there_lie_on_straight_lines() -> None:
    rates = np.array([[10.0, 20.0, 40.0]])

    found = scores.at_levels(rates, (0.5, 0.75, 0.95), (0.1, 0.5, 0.6, 0.75, 0.9, 0.95, 0.99))

    assert found[0] == pytest.approx([10.0, 10.0, 14.0, 20.0, 35.0, 40.0, 40.0])


def test_a_point_stands_at_every_level() -> None:
    assert scores.at_levels(np.array([[3.0], [4.0]]), (0.5,), (0.1, 0.9)).tolist() == [[3.0, 3.0], [4.0, 4.0]]


@given(arrays(np.float64, (4, 3), elements=RATES), st.lists(st.floats(0.01, 0.99), min_size=1, max_size=6))
def test_levels_in_between_stay_in_between_and_rise(rates: np.ndarray, wanted: list[float]) -> None:
    rates = np.sort(rates, axis=1)

    found = scores.at_levels(rates, (0.1, 0.5, 0.9), sorted(wanted))

    slack = 1e-9 * rates.max()
    assert (found >= rates[:, :1] - slack).all()
    assert (found <= rates[:, -1:] + slack).all()
    assert (np.diff(found, axis=1) >= -slack).all()


@given(arrays(np.float64, 12, elements=st.floats(0.1, 100)), st.floats(0.1, 10))
def test_no_constant_has_a_smaller_loss_than_the_quantile_of_what_came(
    actual: np.ndarray, constant: float
) -> None:
    levels = (0.5, 0.9)
    best = np.quantile(actual, levels, method="inverted_cdf")

    of_best = scores.weighted_quantile_loss(actual, np.tile(best, (12, 1)), levels)

    assert of_best <= scores.weighted_quantile_loss(actual, np.full((12, 2), constant), levels) + 1e-12


@given(
    arrays(np.float64, 6, elements=st.floats(1, 1e4)),
    arrays(np.float64, (6, 2), elements=st.floats(1, 1e4)),
    st.floats(0.01, 1e3),
)
def test_scores_have_no_unit(actual: np.ndarray, quantiles: np.ndarray, factor: float) -> None:
    def found(times: float) -> list[float]:
        came, rows = times * actual, times * quantiles
        return [
            scores.absolute_percentage(came, rows[:, 0]),
            scores.weighted_quantile_loss(came, rows, (0.5, 0.9)),
            scores.scaled_error(came, rows[:, 0], naive_error=times),
        ]

    assert found(factor) == pytest.approx(found(1.0))


@given(arrays(np.float64, 6, elements=st.floats(0.1, 1e4)))
def test_a_perfect_forecast_scores_nothing_and_covers_all(actual: np.ndarray) -> None:
    quantiles = np.repeat(actual[:, None], 2, axis=1)

    assert scores.absolute_percentage(actual, actual) == 0.0
    assert scores.weighted_quantile_loss(actual, quantiles, (0.5, 0.9)) == 0.0
    assert scores.coverage(actual, quantiles).tolist() == [1.0, 1.0]


def test_a_silent_forecaster_has_no_score() -> None:
    silent = np.array([[1.0], [np.nan]])

    assert math.isnan(scores.absolute_percentage(np.ones(2), silent[:, 0]))
    assert math.isnan(scores.weighted_quantile_loss(np.ones(2), silent, (0.5,)))
