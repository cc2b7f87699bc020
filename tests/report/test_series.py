"""Cutting series down keeps peaks, means and totals."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mark.report.runs.series import arrivals_band, capacity_steps, forecast_steps, missed_steps, thinned_ccdf
from mark.simulator.results import Latency, MinuteSeries, SecondSeries


def seconds(arrivals: list[int], missed: list[int] | None = None) -> SecondSeries:
    counts = np.array(arrivals, dtype=np.int64)
    late = np.array(missed if missed is not None else [0] * len(arrivals), dtype=np.int64)
    return SecondSeries(
        arrivals=counts, answered=counts, missed=late, to_lambda=counts * 0,
        latency_sum_s=np.zeros(counts.size), latency_max_s=np.zeros(counts.size),
    )  # fmt: skip


def minutes(capacity: np.ndarray, offerings: tuple[str, ...], forecast: list[float] | None = None) -> MinuteSeries:
    expected = np.array(forecast if forecast is not None else [np.nan] * len(capacity))
    return MinuteSeries(
        offerings=offerings,
        ready=np.zeros(capacity.shape, dtype=np.int64),
        capacity_rps=capacity,
        forecast_max_rps=expected,
    )


@given(st.lists(st.integers(0, 500), min_size=1, max_size=400), st.integers(1, 40))
def test_band_keeps_the_extreme_5_s_rates(arrivals: list[int], points: int) -> None:
    band = arrivals_band(seconds(arrivals), points=points)
    rates = [sum(arrivals[i : i + 5]) / len(arrivals[i : i + 5]) for i in range(0, len(arrivals), 5)]
    assert len(band.at_s) <= points
    assert band.high_rps.max() == max(rates)
    assert band.low_rps.min() == min(rates)
    assert (np.diff(band.at_s) > 0).all()


def test_steps_leave_out_repeats_and_sum_what_has_no_name() -> None:
    capacity = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [4.0, 2.0, 3.0]])
    steps = capacity_steps(minutes(capacity, ("a", "b", "c")), ("a",), end_s=170.0)
    assert steps.from_s.tolist() == [0.0, 120.0, 170.0]
    assert steps.values.tolist() == [[1.0, 5.0], [4.0, 5.0], [4.0, 5.0]]


def test_long_forecast_keeps_its_peak_and_its_gaps() -> None:
    values = [float("nan")] * 10_080
    values[5000] = 77.0
    steps = forecast_steps(minutes(np.zeros((10_080, 1)), ("a",), values), end_s=604_800.0)
    assert np.nanmax(steps.values) == 77.0
    assert np.isnan(steps.values[0, 0])


def test_missed_share_is_of_the_arrivals_and_0_where_nobody_came() -> None:
    steps = missed_steps(seconds([10] * 60 + [0] * 60, [1] * 60 + [0] * 60))
    assert steps.values[:, 0].tolist() == [0.1, 0.0, 0.0]
    assert steps.from_s.tolist() == [0.0, 60.0, 120.0]


def test_thinned_ccdf_keeps_its_ends() -> None:
    at_s = np.linspace(0.1, 9.0, 5000)
    share = np.linspace(1.0, 0.0, 5000)
    latency = Latency(mean_s=1, p50_s=1, p95_s=1, p99_s=1, ccdf_s=at_s, ccdf_share=share)
    thin_s, thin_share = thinned_ccdf(latency, points=200)
    assert thin_s.size <= 200
    assert thin_s[0] == at_s[0]
    assert thin_share[-1] == share[-2]
    assert set(thin_share) <= set(share)
