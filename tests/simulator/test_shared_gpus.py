"""Models that share GPUs, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.catalog.pairs import Pairs
from mark.domain.models.objective import Slo
from mark.planner.hetsev.gpu_placement import Cluster, Gpu, Needs, PlacementPolicy, Server
from mark.simulator.fixed.shared_gpus import (
    GpuPrices,
    SharedGpus,
    SharedLoad,
    SharedModel,
    SharedRun,
    SharingRules,
    Times,
)

PAIRS = Pairs(name="test", slowdowns={("a", "b"): 0.5, ("b", "a"): 0.25})
PRICES = GpuPrices(cost_gb_s={"T4": 1.0, "V100": 8.0}, usd_per_hour={"T4": 0.5, "V100": 3.0})
RULES = SharingRules(by_cost=True, placement=PlacementPolicy())


def model(name: str, *, best_rps: float = 1000.0) -> SharedModel:
    """0.1 s for a batch of 2 on a T4, half of that on a V100."""
    return SharedModel(
        name=name,
        batch=2,
        slo=Slo(latency_s=0.3, target=0.98),
        needs=Needs(gpu_gb=1.0, cores=1.0, memory_gb=1.0),
        times={
            "T4": Times(service_s=0.1, gpu_s=0.04, best_rps=best_rps),
            "V100": Times(service_s=0.05, gpu_s=0.02, best_rps=best_rps),
        },
    )


def cluster(*kinds: str) -> Cluster:
    gpus = {f"g{i}": Gpu(name=f"g{i}", kind=kind, gpu_gb=16.0, server="s") for i, kind in enumerate(kinds)}
    return Cluster(servers={"s": Server(name="s", cores=64.0, memory_gb=64.0)}, gpus=gpus, tenants={})


def run(
    there: Cluster, loads: dict[str, SharedLoad], rules: SharingRules = RULES, *, best_rps: float = 1000.0
) -> SharedRun:
    models = [(model(name, best_rps=best_rps), load) for name, load in loads.items()]
    return SharedGpus(there, models, rules, pairs=PAIRS, prices=PRICES, seed=1).run()


def clients(rps: float, intervals: int = 8) -> SharedLoad:
    return SharedLoad(rates_rps=np.full(intervals, rps), closed=True)


def test_a_client_alone_waits_for_the_service_time() -> None:
    found = run(cluster("T4"), {"a": clients(10.0)})
    assert found.models["a"].response_s == pytest.approx(0.1, rel=1e-6)
    assert found.busy == pytest.approx(np.full(8, 0.4), abs=0.01)


def test_neighbours_slow_each_other_by_their_pair() -> None:
    found = run(cluster("T4"), {"a": clients(10.0), "b": clients(10.0)})
    # The first batch starts beside an idle neighbour.
    assert found.models["a"].response_s[1:] == pytest.approx(0.15, rel=1e-6)
    assert found.models["b"].response_s[1:] == pytest.approx(0.125, rel=1e-6)


def test_a_gpu_does_no_more_than_it_can() -> None:
    # Each alone takes 20 of the 25 items/s that the GPU can: together 1.6 times as long.
    found = run(cluster("T4"), {"a": clients(10.0), "b": clients(10.0)}, best_rps=25.0)
    assert found.models["a"].response_s[5:] == pytest.approx(0.1 * 1.5 * 1.6, rel=1e-6)


def test_used_memory_is_paid_where_gpus_are_shared_and_all_of_it_where_not() -> None:
    alone = replace(RULES, placement=PlacementPolicy(share=False))
    shared, owned = (run(cluster("T4"), {"a": clients(10.0)}, rules) for rules in (RULES, alone))
    assert shared.models["a"].cost == pytest.approx(120.0 * 1.0)
    assert owned.models["a"].cost == pytest.approx(120.0 * 16.0)
    assert shared.rented_usd == owned.rented_usd == pytest.approx(0.5 * 120 / 3600)


def test_the_fleet_follows_the_load_and_what_is_late_counts() -> None:
    rates = np.concatenate([np.full(8, 10.0), np.full(32, 60.0), np.full(60, 5.0)])
    found = run(cluster(*["T4"] * 6), {"a": SharedLoad(rates_rps=rates)})
    instances = found.models["a"].instances
    assert instances[0] == 1
    assert max(instances) >= 4
    assert instances[-1] == 1
    assert 0.0 < found.models["a"].attained < 1.0
    assert run(cluster(*["T4"] * 6), {"a": SharedLoad(rates_rps=rates)}).models["a"].instances == instances


def test_no_more_than_the_most_instances() -> None:
    rules = replace(RULES, most_instances=3)
    loads = {name: SharedLoad(rates_rps=np.full(40, 60.0)) for name in ("a", "b")}
    found = run(cluster(*["T4"] * 6), loads, rules)
    assert max(a + b for a, b in zip(*(one.instances for one in found.models.values()), strict=True)) == 3
