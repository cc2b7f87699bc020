"""What a small fleet of slow instances carries."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Offering
from mark.planner.hedging.small_fleet import derate_small_fleets
from tests.planner.builders import offering

WITHIN_S = 1.0


def steady(works_s: float, batch: int = 8) -> Offering:
    """Answers a batch of any size up to `batch` in the same time."""
    return offering(rps=batch / works_s, batch=batch, points={batch: works_s})


def share(item: Offering, load_rps: float) -> float:
    """Of its capacity that it covers in a fleet of its own."""
    [found] = derate_small_fleets([item], load_rps, Slo(latency_s=WITHIN_S, target=0.98))
    return found.capacity_rps / item.capacity_rps


def let_in(servers: int, works_s: float, batch: int, rate: float) -> float:
    """Share of 40,000 Poisson arrivals that find a place, soon enough, in a batch that begins next."""
    rng = np.random.default_rng(1)
    begins, waiting, good = [0.0] * servers, [0] * servers, 0
    arrivals = np.cumsum(rng.exponential(1.0 / rate, 40_000)).tolist()
    for now in arrivals:
        waiting = [0 if at <= now else count for at, count in zip(begins, waiting, strict=True)]
        ends = [at if at > now else max(now, at + works_s) for at in begins]
        i = min(range(servers), key=lambda n: ends[n] if waiting[n] < batch else math.inf)
        if ends[i] + works_s <= now + WITHIN_S and waiting[i] < batch:
            good += 1
            waiting[i] = 0 if ends[i] == now else waiting[i] + 1
            begins[i] = ends[i]
    return good / len(arrivals)


@pytest.mark.parametrize("works_s", [0.55, 0.63, 0.75])
@pytest.mark.parametrize("servers", [1, 4])
def test_a_simulated_fleet_lets_in_as_many_or_more(servers: int, works_s: float) -> None:
    """At three quarters of the capacity, where a server is hardly ever idle; several fall out of step."""
    item = steady(works_s)
    rate = 0.75 * servers * item.capacity_rps
    expected, simulated = share(item, servers * item.capacity_rps), let_in(servers, works_s, 8, rate)
    if servers == 1:
        assert expected == pytest.approx(simulated, abs=0.02)
    else:
        assert simulated - 0.2 < expected < simulated


@given(works_s=st.floats(0.3, 0.9), cvs=st.tuples(st.floats(0.0, 0.5), st.floats(0.0, 0.5)))
def test_the_more_answers_vary_the_less_a_small_fleet_carries(works_s: float, cvs: tuple[float, float]) -> None:
    calm, wild = (share(replace(steady(works_s), cv=cv), 1.0) for cv in sorted(cvs))
    assert wild <= calm


def test_with_answers_of_half_the_objective_nothing_is_lost() -> None:
    assert share(steady(0.5), 1.0) == 1.0
    assert share(steady(0.2), 1.0) == 1.0


@given(works_s=st.floats(0.1, 2.0), batch=st.integers(1, 32), load_rps=st.floats(0.0, 1e4))
def test_a_larger_fleet_covers_more_and_never_nothing(works_s: float, batch: int, load_rps: float) -> None:
    item = steady(works_s, batch)
    assert 0.0 < share(item, load_rps) <= share(item, 2.0 * load_rps) <= 1.0


def test_a_large_fleet_carries_what_its_instances_can() -> None:
    item = steady(0.63)
    assert share(item, 100 * item.capacity_rps) == pytest.approx(1.0, abs=1e-6)


def test_small_batches_are_answered_sooner_and_leave_more_time() -> None:
    item = offering(rps=20.0, batch=16, points={1: 0.1, 4: 0.3, 16: 0.8})
    assert share(item, 2.0) == 1.0
    assert share(item, 20.0) == pytest.approx(0.25)
