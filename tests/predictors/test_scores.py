from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mark.predictors.expert import LEVELS
from mark.predictors.mixture.scores import pinball, targets
from mark.simulator import scores


def test_an_unknown_target_or_quantile_has_no_loss():
    loss = pinball(np.array([[np.nan, 1.0]]), np.array([[[1.0], [np.nan]]]), (0.5,))

    assert np.isnan(loss).all()


def test_targets_end_with_the_series():
    found = targets(np.arange(5.0), np.array([0, 3, 5]), 3)

    np.testing.assert_array_equal(found, [[0, 1, 2], [3, 4, np.nan], [np.nan] * 3])
    assert np.isnan(targets(np.zeros(0), np.array([0]), 3)).all()


@given(st.lists(st.floats(0.0, 1e4), min_size=7, max_size=7), st.floats(0.0, 1e4))
def test_the_mixture_judges_as_a_backtest_does(quantiles, actual):
    ours = pinball(np.array([[actual]]), np.array([[quantiles]]))

    np.testing.assert_allclose(ours[0], scores.pinball(np.array([actual]), np.array([quantiles]), LEVELS))
