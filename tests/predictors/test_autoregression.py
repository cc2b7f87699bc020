from __future__ import annotations

import numpy as np
import pytest
from statsmodels.tsa.ar_model import AutoReg

from mark.predictors.classical.autoregression import ArWeights, fit_autoregression, in_blocks, lags_of, unrolled
from tests.predictors.series import DAY, noisy_days, until


def test_the_unrolled_recursion_is_statsmodels():
    rng = np.random.default_rng(4)
    noise = rng.normal(0.0, 1.0, 400)
    series = np.zeros(400)
    for unit in range(12, 400):
        series[unit] = (
            0.3 + 0.5 * series[unit - 1] - 0.2 * series[unit - 3] + 0.4 * series[unit - 12] + noise[unit]
        )
    lags = (1, 3, 12)
    fitted = AutoReg(series, lags=list(lags), trend="c").fit()

    used, matrix, constants = unrolled(ArWeights(float(fitted.params[0]), lags, tuple(fitted.params[1:])), 30)

    assert used.max() <= 12
    np.testing.assert_allclose(series[len(series) - used] @ matrix + constants, fitted.forecast(30), rtol=1e-9)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 130])
def test_a_row_gives_the_same_bits_alone_as_among_others(rows):
    rng = np.random.default_rng(rows)
    values, matrix = rng.normal(size=(rows, 41)), rng.normal(size=(41, 60))

    together = in_blocks(values, matrix)

    np.testing.assert_allclose(together, values @ matrix, rtol=1e-9, atol=1e-12)
    for row in (0, rows // 2, rows - 1):
        np.testing.assert_array_equal(in_blocks(values[row : row + 1], matrix)[0], together[row])


def test_it_learns_from_three_days_on():
    days = noisy_days(3 * DAY)

    found = fit_autoregression(days)

    assert found is not None
    assert found.lags == lags_of(days)
    assert found.weights[0] > 0
    assert fit_autoregression(until(days, 3 * DAY - 1)) is None
