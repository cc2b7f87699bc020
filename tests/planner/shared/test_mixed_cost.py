"""Cost of instances and Lambda together: never more for a choice more, never less for more load."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.offerings.offering import Offering
from mark.planner.shared.mixed_cost import calls_rps, mixed_usd_per_hour
from tests.planner.builders import SLO, offering

LARGE = offering("c5.large", rps=4.7, usd_per_hour=0.085)
XLARGE = offering("c5.xlarge", rps=8.2, usd_per_hour=0.17)
LAMBDA_USD = 1.9e-5

loads = st.lists(st.floats(0.0, 60.0), min_size=1, max_size=12).map(np.array)
types = st.lists(
    st.builds(
        offering,
        rps=st.floats(1.0, 100.0),
        usd_per_hour=st.floats(0.01, 2.0),
        batch=st.integers(1, 8),
        latency_s=st.floats(0.01, 0.3),
    ),
    min_size=1,
    max_size=3,
)
prices = st.floats(1e-7, 1e-4)


@given(rates=loads, items=types, lambda_usd=prices)
def test_a_type_more_costs_no_more_and_all_on_lambda_is_the_most(
    rates: np.ndarray, items: list[Offering], lambda_usd: float
) -> None:
    most = mixed_usd_per_hour([], SLO, rates, lambda_usd)
    assert most == pytest.approx(rates.mean() * 3600.0 * lambda_usd)
    assert mixed_usd_per_hour(items, SLO, rates, lambda_usd) <= mixed_usd_per_hour(
        items[1:], SLO, rates, lambda_usd
    )
    assert mixed_usd_per_hour(items, SLO, rates, lambda_usd) <= most


@given(rates=loads, more=loads, items=types, lambda_usd=prices)
def test_more_load_costs_no_less(
    rates: np.ndarray, more: np.ndarray, items: list[Offering], lambda_usd: float
) -> None:
    usd = [
        mixed_usd_per_hour(items, SLO, load, lambda_usd) for load in (rates, rates + np.resize(more, len(rates)))
    ]
    assert usd[0] <= usd[1] * (1.0 + 1e-6)


def test_lambda_carries_what_one_instance_does_not() -> None:
    """A seventh of 3.8 requests/s finds one c5.large full; a second would cost more."""
    steady = np.full(36, 3.8)
    usd = mixed_usd_per_hour([LARGE, XLARGE], SLO, steady, LAMBDA_USD)
    assert usd == pytest.approx(LARGE.usd_per_hour + 0.15 * 3.8 * 3600.0 * LAMBDA_USD, rel=0.05)
    assert usd < 2 * LARGE.usd_per_hour


@given(rate=st.floats(0.0, 1e5), capacity=st.floats(0.1, 1e5), wait_s=st.floats(0.001, 10.0))
def test_calls_are_at_least_what_exceeds_the_capacity(rate: float, capacity: float, wait_s: float) -> None:
    assert calls_rps(np.array([rate]), np.array([capacity]), wait_s)[0, 0] >= (rate - capacity) * (1.0 - 1e-6)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.6), (1, 0.8), (2, 0.9), (2, 1.2), (8, 0.95), (8, 1.1)])
def test_calls_are_those_of_a_queue_that_few_may_wait_in(servers: int, load: float) -> None:
    """Poisson arrivals, equal times of work, and no request that would wait for longer."""
    works_s, wait_s, rate = 0.2, 0.3, load * servers / 0.2
    free_at, calls = np.zeros(servers), 0
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1.0 / rate, 20_000))
    for now in arrivals:
        first = free_at.argmin()
        if free_at[first] - now <= wait_s:
            free_at[first] = max(free_at[first], now) + works_s
        else:
            calls += 1
    found = calls_rps(np.array([rate]), np.array([servers / works_s]), wait_s)[0, 0]
    assert found / rate == pytest.approx(calls / len(arrivals), abs=0.01)
