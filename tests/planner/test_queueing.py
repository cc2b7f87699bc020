from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.models.objective import Slo
from mark.planner.queueing import MAX_SERVERS, mean_wait_s, usable_rps, utilisation_cap
from tests.planner.builders import offering


def simulated_wait_s(load: float, servers: int, count: int, rng: np.random.Generator) -> float:
    """Kiefer and Wolfowitz: every arrival takes the server that is free first; unit services."""
    free_at = [0.0] * servers
    waited, counted = 0.0, 0
    for index, now in enumerate(np.cumsum(rng.exponential(1 / (load * servers), count)).tolist()):
        start = max(now, heapq.heappop(free_at))
        heapq.heappush(free_at, start + 1.0)
        if index >= count // 10:
            waited += start - now
            counted += 1
    return waited / counted


@pytest.mark.parametrize("load", [0.05, 0.3, 0.7, 0.95])
def test_one_server_is_exact(load: float) -> None:
    pollaczek_khinchine = load * 0.2 / (2 * (1 - load))
    assert mean_wait_s(load / 0.2, 0.2, 1) == pytest.approx(pollaczek_khinchine, rel=1e-12)


def test_erlang_c_behind_it() -> None:
    # Two servers at load 0.75: Erlang C = 9/14, W(M/M/2) = 9/7 services; f by hand.
    factor = 0.5 * (1 + 0.25 * (math.sqrt(14) - 2) / (16 * 2 * 0.75))
    assert mean_wait_s(1.5, 1.0, 2) == pytest.approx(factor * 9 / 7, rel=1e-12)


@pytest.mark.parametrize(("load", "servers"), [(0.6, 2), (0.8, 4), (0.9, 10), (0.9, 40)])
def test_against_simulation(load: float, servers: int) -> None:
    # 250,000 arrivals leave a standard error of some 2 %; with Cosmetatos' 2 %, 6 % is three of them.
    found = simulated_wait_s(load, servers, 250_000, np.random.default_rng(7))
    assert mean_wait_s(load * servers, 1.0, servers) == pytest.approx(found, rel=0.06)


@pytest.mark.parametrize(("load", "mean_latency_s"), [(0.4, 0.3), (0.9, 1.1)])
def test_the_cap_of_one_server_by_hand(load: float, mean_latency_s: float) -> None:
    """W = load T / (2 (1 - load)), so the load of a wait W is W / (W + T / 2)."""
    service_s = mean_latency_s / (1.0 + load / (2.0 * (1.0 - load)))
    wait_s = mean_latency_s - service_s
    assert wait_s / (wait_s + service_s / 2.0) == pytest.approx(load)
    assert utilisation_cap(service_s, 1, mean_latency_s) == pytest.approx(load, abs=1e-6)


def test_light_traffic_is_not_overestimated_without_limit() -> None:
    """Cosmetatos' factor grows without limit as the load falls; it is held at servers / (servers + 1)."""
    servers, load = 20, 0.05
    offered = servers * load
    busy = offered**servers / math.factorial(servers) / (1 - load)
    erlang_c = busy / (sum(offered**k / math.factorial(k) for k in range(servers)) + busy)
    wait_of_exponential = erlang_c / (servers * (1 - load))
    assert mean_wait_s(load * servers, 1.0, servers) == pytest.approx(
        servers / (servers + 1) * wait_of_exponential, rel=1e-9
    )


def test_no_wait_without_arrivals_and_no_end_of_it_when_overloaded() -> None:
    assert mean_wait_s(0.0, 1.0, 3) == 0.0
    assert mean_wait_s(3.0, 1.0, 3) == math.inf


@settings(deadline=None)  # the first example waits for the compiler
@given(st.floats(0.01, 1.0), st.integers(1, 300), st.floats(0.02, 3.0))
def test_the_cap_is_the_largest_load_that_keeps_the_mean(
    service_s: float, servers: int, mean_latency_s: float
) -> None:
    cap = utilisation_cap(service_s, servers, mean_latency_s)
    assert 0 <= cap <= 1
    if service_s >= mean_latency_s:
        assert cap == 0
        return
    counted = min(servers, MAX_SERVERS)
    latency_s = service_s + mean_wait_s(cap * counted / service_s, service_s, counted)
    assert latency_s <= mean_latency_s * (1 + 1e-9)
    beyond = cap * (1 + 1e-6) + 1e-9
    assert service_s + mean_wait_s(beyond * counted / service_s, service_s, counted) > mean_latency_s


@settings(deadline=None)  # the first example waits for the compiler
@given(st.integers(1, 250), st.floats(0.05, 0.28))
def test_larger_pools_may_be_busier(servers: int, service_s: float) -> None:
    assert utilisation_cap(service_s, servers + 1, 0.3) >= utilisation_cap(service_s, servers, 0.3) - 1e-12


def test_usable_is_capacity_times_the_cap_of_its_own_fleet() -> None:
    type_ = offering(rps=10.0, batch=2)  # T_b = 0.2 s
    slo = Slo(latency_s=0.6, target=0.98)
    assert usable_rps(type_, slo, 35.0) == pytest.approx(10 * utilisation_cap(0.2, 8, 0.3))
    assert usable_rps(type_, slo, 0.0) == pytest.approx(10 * utilisation_cap(0.2, 2, 0.3))
    assert usable_rps(type_, Slo(latency_s=0.3, target=0.98), 35.0) == 0.0
