from __future__ import annotations

import numpy as np
import pytest
from statsmodels.tsa.holtwinters import ExponentialSmoothing

from mark.predictors.classical.exponential import HoltWinters, Smoothing, first_state, fit_smoothing, logs_of
from mark.predictors.expert import Series
from tests.predictors.series import DAY, noisy_days, until


@pytest.mark.parametrize(
    "smoothing",
    [Smoothing(), Smoothing(level=0.3, trend=0.1, seasonal=0.4, damping=0.9), Smoothing(level=0.01)],
)
def test_the_filter_is_statsmodels(monkeypatch, smoothing):
    """The same parameters and start give statsmodels' forecast: ours is Holt-Winters, not something like it."""
    monkeypatch.setattr("mark.predictors.classical.exponential.SMOOTH", 0)
    series = noisy_days(3 * DAY)
    floor, first = logs_of(series.rates[:DAY])
    level, season = first_state(first, DAY)
    model = ExponentialSmoothing(
        np.log(series.rates[DAY:] + floor),
        trend="add",
        damped_trend=True,
        seasonal="add",
        seasonal_periods=DAY,
        initialization_method="known",
        initial_level=level,
        initial_trend=0.0,
        initial_seasonal=season,
    )
    fitted = model.fit(
        smoothing_level=smoothing.level,
        smoothing_trend=smoothing.trend,
        smoothing_seasonal=smoothing.seasonal,
        damping_trend=smoothing.damping,
        optimized=False,
    )
    # Just before midnight the state began one day before the day before: the first day starts it.
    found = HoltWinters(smoothing).points(series, np.array([3 * DAY - 1]), 1)
    expected = np.exp(fitted.fittedvalues[-1]) - floor

    assert found[0, 0] == pytest.approx(expected, rel=1e-9)


def test_a_load_that_drifts_is_followed():
    rates = np.concatenate((np.full(2 * DAY, 20.0), np.full(600, 60.0)))
    series = Series(rates=rates, start_at=0.0)

    found = HoltWinters(Smoothing(level=0.05)).points(series, np.array([2 * DAY, len(rates)]), 10)

    np.testing.assert_allclose(found[0], 20.0, rtol=1e-6)
    np.testing.assert_allclose(found[1], 60.0, rtol=0.02)


def test_the_season_is_foreseen():
    series = noisy_days(5 * DAY, seed=3)
    ends = np.arange(4 * DAY, 5 * DAY - 60, 30)

    found = HoltWinters(Smoothing()).points(series, ends, 60)

    actual = series.rates[ends[:, None] + np.arange(60)]
    assert np.abs(found - actual).sum() / actual.sum() < 0.15


def test_parameters_are_fitted_and_within_reason():
    found = fit_smoothing(noisy_days(5 * DAY))

    assert found != Smoothing()
    assert all(0 <= value <= 1 for value in (found.level, found.trend, found.seasonal, found.damping))


def test_under_four_days_the_defaults_stand():
    assert fit_smoothing(until(noisy_days(4 * DAY), 4 * DAY - 1)) == Smoothing()
