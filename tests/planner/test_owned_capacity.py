"""Planners take what commitments cover before they rent, and count each instance of it once."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.controller.plan_request import plan_fleet
from mark.controller.policy import ControllerPolicy
from mark.domain.commitments.eligible import Compute
from mark.domain.commitments.owned import (
    CapacityReservation,
    Commitments,
    PlanKind,
    ReservedInstances,
    SavingsPlan,
)
from mark.domain.offerings.offering import Market
from mark.domain.plan import Backup, Plan, PlannedCount, PlanRequest
from mark.domain.plans.capacity_schedule import CapacityBounds, CapacityWindow
from mark.planner.owned_capacity import _joined, owned_capacity
from tests.planner.builders import SLO, offering, request

CHEAP = offering("c5.large", rps=10.0, usd_per_hour=0.085, launch_usd=0.004)
DEAR = offering("m5.large", rps=10.0, usd_per_hour=0.096, launch_usd=0.004)
BIG = offering("c5.xlarge", rps=19.0, usd_per_hour=0.17, launch_usd=0.008)
ALL = (CHEAP, DEAR, BIG)
PLANNERS = ("greedy", "hedged", "milp")
LATE = Backup(lambda_usd=2e-5, relieves=True)
COMMITTED = {
    "rate": st.floats(0.0, 200.0),
    "plan_usd": st.floats(0.0, 1.0),
    "count": st.floats(0.0, 5.0),
    "running": st.integers(0, 6),
}
"""A load, an account's commitments, and what runs of one type."""


def reserved(kind: str, count: float, zone: str = "") -> ReservedInstances:
    return ReservedInstances(name=f"{kind}{zone}", instance_type=kind, count=count, usd_per_hour=0.05, zone=zone)


def plan_of(usd_per_hour: float) -> SavingsPlan:
    return SavingsPlan(
        name="plan", kind=PlanKind.COMPUTE, usd_per_hour=usd_per_hour, discounts=((Compute.EC2, 0.25),)
    )


def owned_by(plan_usd: float, count: float) -> Commitments:
    held = (reserved("m5.large", count),) if count else ()
    return Commitments(plans=(plan_of(plan_usd),), reservations=held)


def asked(rate: float, owned: Commitments, running: dict[str, int] | None = None) -> PlanRequest:
    plain = request([rate] * 12, ALL, running=running)
    there = owned_capacity(owned, ALL, running=running or {}, refused=())
    return replace(plain, backup=LATE, owned=there)


def planned(planner: str, given_request: PlanRequest) -> Plan:
    return plan_fleet(given_request, ControllerPolicy(name="p", planner=planner, slo=SLO, offerings=ALL))


@pytest.mark.parametrize("planner", PLANNERS)
def test_what_is_owned_is_taken_before_what_is_cheaper_on_the_list(planner: str) -> None:
    owned = Commitments(reservations=(reserved("m5.large", 3.0),))
    found = planned(planner, asked(28.0, owned))
    assert {item.offering: item.count for item in found.counts}["m5.large:on-demand"] == 3
    assert found.counts[-1].usd_per_hour < 1e-4


@pytest.mark.parametrize("planner", PLANNERS)
def test_reserved_capacity_is_taken_first_also_where_its_type_is_refused(planner: str) -> None:
    kept = CapacityReservation(
        name="cr", instance_type="m5.large", count=3.0, zone="us-east-1a", usd_per_hour=DEAR.usd_per_hour
    )
    owned = Commitments(capacity_reservations=(kept,), zones=3)
    there = owned_capacity(owned, ALL, running={}, refused=(DEAR.name,))
    assert [(item.of, item.count) for item in there] == [(DEAR, 3)]
    plain = request([95.0] * 12, ALL)
    found = planned(planner, replace(plain, backup=LATE, owned=there, refused=(DEAR.name,)))
    counts = {item.offering: item for item in found.counts}
    assert counts[DEAR.name].count == 3
    assert counts[DEAR.name].usd_per_hour < 1e-4
    assert sum(item.count for item in counts.values()) > 3


@pytest.mark.parametrize("planner", PLANNERS)
def test_what_is_beyond_the_owned_is_rented(planner: str) -> None:
    owned = Commitments(reservations=(reserved("m5.large", 2.0),))
    counts = {item.offering: item for item in planned(planner, asked(95.0, owned)).counts}
    assert counts["m5.large:on-demand"].count == 2
    assert sum(item.count * item.usable_rps for item in counts.values()) >= 80.0
    assert sum(item.count * item.usd_per_hour for item in counts.values()) > 0.5


@pytest.mark.parametrize("planner", PLANNERS)
def test_what_runs_and_is_owned_is_kept_and_the_rest_launched(planner: str) -> None:
    owned = Commitments(reservations=(reserved("m5.large", 3.0),))
    found = planned(planner, asked(28.0, owned, {"m5.large:on-demand": 1}))
    (item,) = (item for item in found.counts if item.offering == "m5.large:on-demand")
    assert (item.count, item.kept) == (3, 1)


@pytest.mark.parametrize("planner", PLANNERS)
@settings(deadline=None, max_examples=25)
@given(**COMMITTED)
def test_a_plan_with_commitments_names_types_once_and_keeps_no_more_than_runs(
    planner: str, rate, plan_usd, count, running
) -> None:
    there = {"c5.large:on-demand": running}
    covered = planned(planner, asked(rate, owned_by(plan_usd, count), there))
    if planner != "hedged":  # which leaves to Lambda what is not worth its rent
        assert covered.capacity_rps >= covered.required_rps - 1e-6
    names = [item.offering for item in covered.counts]
    assert len(names) == len(set(names))
    assert set(names) <= {item.name for item in ALL}
    assert all(item.kept <= there.get(item.offering, 0) for item in covered.counts)


@settings(deadline=None, max_examples=25)
@given(**COMMITTED)
def test_commitments_make_no_plan_of_least_cost_dearer(rate, plan_usd, count, running) -> None:
    """The solver may stop a thousandth above the least cost."""
    there = {"c5.large:on-demand": running}
    plain = planned("milp", asked(rate, Commitments(), there))
    covered = planned("milp", asked(rate, owned_by(plan_usd, count), there))
    assert covered.usd_per_hour <= plain.usd_per_hour * (1.0 + 1e-3) + 1e-6


@given(plan_usd=st.floats(0.0, 3.0), count=st.floats(0.0, 5.0), zones=st.integers(1, 3), running=st.integers(0, 9))
def test_no_more_is_counted_as_owned_than_the_commitments_cover(plan_usd, count, zones, running) -> None:
    held = tuple(item for item in (reserved("m5.large", count), reserved("c5.large", count, "a")) if item.count)
    owned = Commitments(plans=(plan_of(plan_usd),), reservations=held, zones=zones)
    found = owned_capacity(owned, ALL, running={"c5.large:on-demand": running}, refused=())
    saved = sum(item.count * (item.of.usd_per_hour - item.offering.usd_per_hour) for item in found)
    most = plan_usd / 0.75 + count * (0.096 + 0.085)
    assert saved <= most + 1e-6
    assert sum(item.running for item in found) <= running
    assert all(0 <= item.running <= item.count for item in found)


def test_a_savings_plan_goes_to_the_type_that_serves_most_for_it_and_then_to_parts() -> None:
    found = owned_capacity(Commitments(plans=(plan_of(0.16),)), ALL, running={}, refused=())
    first, second = found
    assert (first.of.name, first.count) == ("c5.large:on-demand", 2)
    assert (second.count, second.offering.usd_per_hour / second.of.usd_per_hour) == (
        1,
        pytest.approx(0.49, abs=0.02),
    )


def test_a_refused_offering_is_owned_as_far_as_it_runs() -> None:
    owned = Commitments(reservations=(reserved("m5.large", 3.0),))
    (item,) = owned_capacity(owned, ALL, running={"m5.large:on-demand": 1}, refused=("m5.large:on-demand",))
    assert (item.count, item.running) == (1, 1)


def test_on_spot_the_owned_twin_on_demand_is_taken_first() -> None:
    spot = replace(CHEAP, market=Market.SPOT, usd_per_hour=0.03)
    owned = owned_capacity(
        Commitments(reservations=(reserved("c5.large", 2.0),)), (spot, CHEAP), running={}, refused=()
    )
    asked_for = replace(request([18.0] * 12, (spot,)), backup=LATE, owned=owned)
    policy = ControllerPolicy(name="p", planner="hedged", slo=SLO, offerings=(spot,), fallbacks=(CHEAP,))
    counts = {item.offering: item.count for item in plan_fleet(asked_for, policy).counts}
    assert counts["c5.large:on-demand"] == 2


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize(("rate", "least", "most"), [(5.0, 60.0, math.inf), (95.0, 0.0, 40.0)])
def test_bounds_by_the_clock_hold_with_what_is_owned(planner: str, rate: float, least: float, most: float) -> None:
    owned = Commitments(reservations=(reserved("m5.large", 2.0),))
    bounds = CapacityBounds(min_rps=least, max_rps=most)
    window = CapacityWindow(min_rps=least, max_rps=most)
    policy = ControllerPolicy(name="p", planner=planner, slo=SLO, offerings=ALL, capacity=(window,))
    free = plan_fleet(asked(rate, owned), replace(policy, capacity=()))
    assert not least <= free.capacity_rps <= most, "without bounds it is another plan"
    bounded = plan_fleet(replace(asked(rate, owned), bounds=bounds), policy)
    assert least - 1e-6 <= bounded.capacity_rps <= most + 1e-6


def test_instances_of_one_offering_cost_what_each_costs_on_average() -> None:
    owned = PlannedCount(offering="owned", count=1, kept=0, usable_rps=9.0, usd_per_hour=0.0, launch_usd=0.01)
    rented = PlannedCount(offering="c5.large", count=3, kept=0, usable_rps=9.0, usd_per_hour=0.08, launch_usd=0.05)
    joined = _joined("c5.large", (owned, rented), running=2)
    assert (joined.count, joined.kept, joined.usable_rps) == (4, 2, 9.0)
    assert (joined.usd_per_hour, joined.launch_usd) == pytest.approx((0.06, 0.04))
