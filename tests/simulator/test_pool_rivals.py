"""Rivals of Kairos+ find the same pool with the same prunings, and differ in what they measure."""

from __future__ import annotations

import numpy as np
import pytest

from mark.planner.kairos.pool_choice import RankedPools, cutoff_rates, rank_pools, throughput_bounds
from mark.planner.kairos.pool_search import search_pools
from mark.simulator.fixed.pool_rivals import SEARCHES, proposals

RATES = cutoff_rates(
    np.array([[5.0, 20.0, 40.0], [10.0, 45.0, 200.0], [20.0, 120.0, 300.0]]), np.array([0.5, 0.3, 0.2]), 50.0
)
PRICES = np.array([0.5, 0.3, 0.1])


def evaluate(counts: np.ndarray) -> float:
    """Half to nine tenths of the bound, more with more instances."""
    return float(throughput_bounds(RATES, counts[None, :])[0]) * (0.9 - 0.4 / (1 + counts.sum()))


@pytest.fixture(scope="module")
def pools() -> RankedPools:
    return rank_pools(RATES, PRICES, 2.0)


@pytest.mark.parametrize("method", SEARCHES)
def test_every_search_finds_the_best_pool_and_is_its_seed(pools: RankedPools, method: str) -> None:
    found, other = (search_pools(pools, evaluate, proposals(method, np.random.default_rng(5))) for _ in range(2))

    assert found.best_qps == max(evaluate(row) for row in pools.counts)
    assert len(set(found.ranks)) == len(found.ranks) < len(pools)
    assert found.ranks == other.ranks


def test_kairos_plus_measures_fewest(pools: RankedPools) -> None:
    def mean_measured(method: str) -> float:
        runs = (search_pools(pools, evaluate, proposals(method, np.random.default_rng(seed))) for seed in range(2))
        return sum(len(run.ranks) for run in runs) / 2

    measured = {method: mean_measured(method) for method in SEARCHES}

    assert min(measured, key=measured.__getitem__) == "kairos+"


def test_a_space_of_one_type_is_searched_too() -> None:
    one = rank_pools(cutoff_rates(np.array([[5.0]]), np.array([1.0]), 50.0), np.array([0.5]), 2.0)
    for method in SEARCHES:
        found = search_pools(one, lambda counts: float(counts[0]), proposals(method, np.random.default_rng(0)))
        assert one.counts[found.best_rank].tolist() == [4]
