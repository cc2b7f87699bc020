"""What models gain by sharing: curves never promise more than the model costs alone, and who shares fits."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.controller.hosts.sharing import (
    MOST_BUSY,
    MOST_BUSY_BACKED,
    Sharer,
    expected_load,
    host_types,
    in_blocks,
    memory_gib,
    need_of,
    own_history,
    share_instances,
    share_rps,
    shared_offering,
    shared_offerings,
    usd_per_hour_alone,
)
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments, PlanKind, ReservedInstances, SavingsPlan
from mark.domain.demand import Demand
from mark.domain.fleet.placement import Tenant
from mark.domain.models.objective import ModelSpec, Slo
from mark.domain.models.profile import AlsoMeasured, LatencyPoint, Parallelism
from mark.domain.offerings.offering import BurstCredits, Market, as_tenant
from tests.planner.builders import offering
from tests.simulator.engines import batching, lambda_offering

LARGE = offering("c5.large", rps=20.0, usd_per_hour=0.085)
XLARGE = offering("c5.xlarge", rps=35.0, usd_per_hour=0.17)


def sharer(name: str, *, latency_s: float = 0.6, **fields: object) -> Sharer:
    """A model that takes 50 ms on a c5.large."""
    slo = Slo(latency_s=latency_s, target=0.98)
    given: dict[str, object] = {
        "model": ModelSpec(name=name, slo=slo, memory_gib=0.5),
        "slo": slo,
        "offerings": (LARGE, XLARGE),
        "overflow": lambda_offering(latency_s=0.4),
    }
    return Sharer(**{**given, **fields})  # type: ignore[arg-type]


def load(*rates: float) -> Demand:
    """Rates by minute."""
    return Demand(end_at=0.0, mean_rps=rates, max_rps=tuple(2.0 * rate for rate in rates))


@given(rates=st.lists(st.floats(0.0, 50.0), min_size=1, max_size=50), with_lambda=st.booleans())
def test_capacity_saves_no_more_than_the_model_costs_alone(rates: list[float], with_lambda: bool) -> None:
    one = sharer("a", overflow=lambda_offering(latency_s=0.2) if with_lambda else None)
    need = need_of(one, load(*rates))
    alone_usd = usd_per_hour_alone(one, in_blocks(np.array(rates)))
    assert np.all(np.diff(need.saved_usd_per_hour) >= -1e-12)
    assert need.saved_usd_per_hour[0] == 0.0
    assert need.saved_usd_per_hour[-1] <= alone_usd * (1.0 + 1e-9)
    if sum(rates) > 0:
        assert need.saved_usd_per_hour[-1] == pytest.approx(alone_usd)


def test_peaks_of_seconds_change_no_need() -> None:
    one, calm = sharer("a"), load(1.0, 2.0, 4.0)
    need, other = need_of(one, calm), need_of(one, dataclasses.replace(calm, max_rps=calm.mean_rps))
    assert need.levels.tolist() == other.levels.tolist()
    assert need.saved_usd_per_hour.tolist() == other.saved_usd_per_hour.tolist()


def test_lambda_counts_only_where_it_is_in_time() -> None:
    rates = np.array([0.01])
    late, quick = lambda_offering(latency_s=2.0), lambda_offering(latency_s=0.2)
    assert usd_per_hour_alone(sharer("a", overflow=late), rates) == LARGE.usd_per_hour
    assert usd_per_hour_alone(sharer("a", overflow=quick), rates) < 0.01 * LARGE.usd_per_hour


def test_batches_shrink_for_neighbours() -> None:
    slo = Slo(latency_s=0.4, target=0.98)
    shared = shared_offering(batching(8, 0.05, 0.19), slo)
    assert shared is not None
    assert shared.batch.max_batch == 3
    assert shared.latency_s <= 0.1
    assert shared.capacity_rps == pytest.approx(3 / shared.latency_s)
    assert shared_offering(offering(rps=4.0), slo) is None, "half of the objective is too long for any neighbour"


def test_twenty_small_models_share_few_instances_and_each_is_placed_once() -> None:
    """Two may be left to Lambda, where one more instance would not be full enough to pay."""
    sharers = [sharer(f"m{number:02}") for number in range(20)]
    packing = share_instances(sharers, [load(*[0.4] * 60) for _ in sharers])
    placed = [tenant.model for host in packing.hosts for tenant in host.tenants]
    assert len(set(placed)) == len(placed) >= 18
    assert 1 <= len(packing.hosts) <= 5
    for host in packing.hosts:
        item = next(one for one in (LARGE, XLARGE) if one.name == host.offering)
        assert sum(0.5 for _ in host.tenants) <= memory_gib(item.instance_type)
        assert sum(0.4 / item.capacity_rps for _ in host.tenants) <= MOST_BUSY_BACKED


def test_a_model_that_shares_with_nobody_has_no_shared_instance() -> None:
    sharers = [
        sharer("a", alone=True),
        sharer("b"),
        sharer("c", team="blue"),
        sharer("d", team="blue"),
    ]
    packing = share_instances(sharers, [load(*[1.0] * 60) for _ in sharers])
    assert [sorted(tenant.model for tenant in host.tenants) for host in packing.hosts] == [["c", "d"]]


def test_whom_lambda_does_not_answer_in_time_shares_no_spot_instance() -> None:
    spot = dataclasses.replace(LARGE, market=Market.SPOT, usd_per_hour=0.03)
    sharers = [
        sharer("a", offerings=(LARGE, spot), overflow=None),
        sharer("b", offerings=(LARGE, spot), overflow=lambda_offering(latency_s=0.7)),
        sharer("c", offerings=(LARGE, spot)),
    ]
    assert [[item.name for item in shared_offerings(one)] for one in sharers] == [
        [LARGE.name],
        [LARGE.name],
        [LARGE.name, spot.name],
    ]


def test_a_device_on_demand_is_fuller_where_lambda_answers_all_its_tenants() -> None:
    """A share is the load that a model may take while its neighbours leave it the rest of the whole device."""
    sharers = {name: sharer(name) for name in "ab"} | {"c": sharer("c", overflow=None)}
    tenants = [Tenant(model=name, capacity_rps=4.0) for name in "abc"]
    assert share_rps("a", tenants[:2], sharers) == 4.0 / MOST_BUSY_BACKED
    assert share_rps("a", tenants, sharers) == 4.0 / MOST_BUSY
    assert share_rps("b", tenants[:1], sharers) == 0.0
    spot = dataclasses.replace(LARGE, market=Market.SPOT)
    assert sharer("d", offerings=(LARGE, spot)).most_busy == MOST_BUSY


def test_a_part_of_the_load_saves_nothing_where_a_fleet_must_serve_the_rest() -> None:
    need = need_of(sharer("a", overflow=None), load(*[5.0] * 60))
    saved = np.interp([4.0, 5.0], need.levels, need.saved_usd_per_hour)
    assert saved == pytest.approx([0.0, LARGE.usd_per_hour])


def test_idle_models_that_lambda_does_not_answer_share_what_each_would_keep_alone() -> None:
    """Each is given some capacity: a share of none would mean that it is handed over."""
    idle = [sharer(name, overflow=None) for name in "abc"]
    (host,) = share_instances(idle, [load(*[0.0] * 60)] * 3).hosts
    assert [tenant.model for tenant in host.tenants] == ["a", "b", "c"]
    assert all(tenant.capacity_rps > 0.0 for tenant in host.tenants)
    assert not share_instances([sharer(name) for name in "abc"], [load(*[0.0] * 60)] * 3).hosts


def test_a_load_that_rises_is_expected_to_go_on() -> None:
    yesterday, hour = [2.0] * 1440, [2.0] * 30 + [6.0] * 30
    history = load(*yesterday, *hour)
    assert set(expected_load(history).mean_rps) == {2.0}
    assert set(expected_load(history, rising=True).mean_rps) == {4.0}
    falling = load(*yesterday, *[1.0] * 60)
    assert set(expected_load(falling, rising=True).mean_rps) == {2.0}


@given(
    rates=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=40),
    planned_rps=st.one_of(st.just(0.0), st.floats(0.1, 120.0)),
)
def test_what_is_left_for_a_models_own_fleet_and_what_shared_instances_took_is_the_whole_load(
    rates: list[float], planned_rps: float
) -> None:
    """A running service decides again by it."""
    history = load(*rates)
    assert own_history(history, planned_rps).whole.mean_rps == pytest.approx(history.mean_rps)


def test_a_decision_stands_when_it_is_made_again() -> None:
    sharers = [sharer(f"m{number}") for number in range(6)]
    loads = [load(*(2.0 + np.sin(np.arange(60) / 10.0 + number)).tolist()) for number in range(6)]
    first = share_instances(sharers, loads)
    there = [dataclasses.replace(host, name=f"i-{place}") for place, host in enumerate(first.hosts)]
    again = share_instances(sharers, loads, there=there)
    assert sorted(again.hosts) == sorted(there)


def test_what_is_refused_is_kept_but_not_launched() -> None:
    sharers = [sharer(f"m{number}") for number in range(4)]
    loads = [load(*[0.4] * 60) for _ in sharers]
    barred = [LARGE.name, XLARGE.name]
    assert share_instances(sharers, loads, refused=barred).hosts == ()
    there = [
        dataclasses.replace(host, name=f"i-{place}")
        for place, host in enumerate(share_instances(sharers, loads).hosts)
    ]
    assert share_instances(sharers, loads, there=there, refused=barred).hosts == tuple(there)


def test_types_with_credits_and_types_of_one_model_are_not_shared() -> None:
    credit = BurstCredits(vcpus=2, earn_per_hour=24.0, max_balance=576.0, baseline=0.2)
    burst = dataclasses.replace(LARGE, instance_type=dataclasses.replace(LARGE.instance_type, credits=credit))
    assert host_types([sharer("a", offerings=(burst,)), sharer("b", offerings=(burst,))]) == ()
    found = host_types([sharer("a", offerings=(LARGE,)), sharer("b")])
    assert [item.offering for item in found] == [LARGE.name]


def test_a_model_shares_as_one_replica_where_that_was_measured() -> None:
    """Alone it has two, for twice the requests/s."""
    two = Parallelism(2, 1)
    replicas = dataclasses.replace(LARGE, profile=dataclasses.replace(LARGE.profile, parallelism=two))
    assert host_types([sharer("a", offerings=(replicas,)), sharer("b")]) == ()
    slow, quick = (
        AlsoMeasured(parallelism=one, points=(LatencyPoint(batch=1, latency_s=seconds),))
        for one, seconds in ((Parallelism(1, 1), 0.1), (Parallelism(1, 2), 0.08))
    )
    known = dataclasses.replace(replicas.profile.provenance, also_measured=(slow, quick))
    replicas = dataclasses.replace(replicas, profile=dataclasses.replace(replicas.profile, provenance=known))
    one = sharer("a", offerings=(replicas,))
    (found,) = shared_offerings(one)
    assert (found.profile.parallelism, found.capacity_rps) == (Parallelism(1, 2), pytest.approx(12.5))
    assert as_tenant(replicas, 1) == found, "who loads it runs what was planned"
    assert [item.offering for item in host_types([one, sharer("b")])] == [LARGE.name]
    assert usd_per_hour_alone(one, np.array([12.0])) == usd_per_hour_alone(sharer("a"), np.array([12.0]))


def test_a_model_that_needs_more_memory_than_shared_instances_have_keeps_its_own() -> None:
    """The system takes 1 GiB of the 4; alone on an instance the model may still fit."""
    large = sharer("large", model=ModelSpec(name="large", slo=Slo(latency_s=0.6, target=0.98), memory_gib=3.5))
    sharers = [large, sharer("a"), sharer("b")]
    packing = share_instances(sharers, [load(*[2.0] * 60) for _ in sharers])
    assert [sorted(tenant.model for tenant in host.tenants) for host in packing.hosts] == [["a", "b"]]
    assert host_types([large, sharer("a")]) == ()


def test_the_order_of_models_changes_nothing() -> None:
    sharers = [sharer(f"m{number}", latency_s=0.3 + 0.1 * number) for number in range(4)]
    loads = [load(*[0.5 + number] * 30) for number in range(4)]
    found = {
        share_instances([sharers[n] for n in order], [loads[n] for n in order]).hosts
        for order in itertools.permutations(range(4))
    }
    assert len(found) == 1


RESERVED = ReservedInstances(name="r", instance_type="c5.xlarge", zone="us-east-1a", count=1.0, usd_per_hour=0.1)
PLAN = SavingsPlan(name="p", kind=PlanKind.COMPUTE, usd_per_hour=0.2)


@pytest.mark.parametrize(
    ("owned", "rps", "kinds"),
    [
        (NO_COMMITMENTS, 6.0, ["c5.large"]),
        (Commitments(reservations=(RESERVED,)), 6.0, ["c5.xlarge"]),
        (NO_COMMITMENTS, 0.1, []),
        (Commitments(reservations=(RESERVED,)), 0.1, ["c5.xlarge"]),
        (Commitments(plans=(PLAN,)), 0.1, ["c5.large"]),
        (Commitments(plans=(dataclasses.replace(PLAN, usd_per_hour=0.001),)), 0.1, []),
    ],
)
def test_what_is_paid_for_draws_models_as_far_as_it_goes(owned: Commitments, rps: float, kinds: list[str]) -> None:
    """A model of 0.1 requests/s is worth no instance at its list price."""
    sharers = [sharer("a"), sharer("b")]
    found = share_instances(sharers, [load(*[rps / 2] * 60)] * 2, owned=owned)
    assert [host.offering.partition(":")[0] for host in found.hosts] == kinds


@given(rates=st.lists(st.floats(0.0, 50.0), min_size=1, max_size=20), more=st.floats(1.0, 3.0))
def test_a_model_costs_alone_no_more_than_by_any_one_means_and_no_less_for_more_load(
    rates: list[float], more: float
) -> None:
    load_rps, calls = np.array(rates), lambda_offering(latency_s=0.2)
    usd = usd_per_hour_alone(sharer("a", overflow=calls), load_rps)
    assert usd <= usd_per_hour_alone(sharer("a", overflow=None), load_rps)
    assert usd <= usd_per_hour_alone(sharer("a", offerings=(XLARGE,), overflow=calls), load_rps)
    assert usd <= usd_per_hour_alone(sharer("a", offerings=(), overflow=calls), load_rps) * (1.0 + 1e-9)
    assert usd <= usd_per_hour_alone(sharer("a", overflow=calls), more * load_rps) * (1.0 + 1e-6)
