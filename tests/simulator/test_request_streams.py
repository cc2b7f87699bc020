"""Streams of requests: their rates, their gaps, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.simulator.request_streams import accelerating_rates, arrivals_of_rates, bursty_arrivals


@given(st.integers(0, 2**32 - 1), st.floats(0, 300), st.floats(1, 300), st.sampled_from([0.0, 0.5, 1.0, 8.0]))
def test_a_stream_rises_within_its_time(seed: int, base_rps: float, burst_rps: float, cv2: float):
    arrived_s = bursty_arrivals(base_rps, burst_rps, cv2, 3.0, np.random.default_rng(seed))
    assert (np.diff(arrived_s) >= 0).all()
    assert ((arrived_s >= 0) & (arrived_s <= 3.0)).all()


@pytest.mark.parametrize("cv2", [2.0, 8.0])
def test_gaps_vary_and_come_as_often_as_said(cv2: float):
    gaps = np.diff(bursty_arrivals(0, 5000, cv2, 60.0, np.random.default_rng(1)))
    assert 1 / gaps.mean() == pytest.approx(5000, rel=0.03)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(cv2, rel=0.05)


def test_an_even_stream_has_no_variation():
    assert bursty_arrivals(10, 0.0, 2.0, 1.0, np.random.default_rng(0)).tolist() == pytest.approx(
        [tenth / 10 for tenth in range(10)]
    )


def test_a_rate_rises_by_its_acceleration_and_stays():
    rates, edges_s = accelerating_rates(100, 300, 50, begins_s=1.0, duration_s=10.0)
    assert len(edges_s) == len(rates) + 1
    assert rates[edges_s[1:] <= 1.0].max() <= 100 + 1e-9
    assert rates[np.searchsorted(edges_s, 3.0)] == pytest.approx(200, abs=1)
    assert rates[edges_s[:-1] >= 5.0].min() == pytest.approx(300)
    arrived_s = arrivals_of_rates(rates, edges_s, 0.0, np.random.default_rng(0))
    assert arrived_s.size == pytest.approx(rates.sum() * 0.01, abs=1)


def test_rates_that_fall_or_are_none_are_refused():
    with pytest.raises(Misconfigured, match="rises"):
        accelerating_rates(300, 100, 50, begins_s=1.0, duration_s=10.0)
    with pytest.raises(Misconfigured, match="0 or more"):
        arrivals_of_rates(np.array([-1.0]), np.array([0.0, 1.0]), 1.0, np.random.default_rng(0))
