"""A service's cap: plans are cut to their models' parts, and not touched while everything fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.controller.limits.service_cap import CapDivider, cap_instances, used_by
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.plan import NO_BACKUP, Plan, PlannedCount, PlanRequest
from mark.domain.plans.capacity_schedule import CapacityBounds
from mark.domain.plans.service_cap import NOTHING, ServiceCap, Takes
from mark.planner.shared.cap_division import CapStep
from tests.planner.builders import SLO, offering, request

BOX = offering("box", rps=10.0, usd_per_hour=0.1)
HALF = ServiceCap(vcpus=12)


def asked(rps: float = 40.0, *, there: int = 0, lambda_usd: float = 1e-4, min_rps: float = 0.0) -> PlanRequest:
    found = request([rps] * 20, (BOX,), running={BOX.name: there} if there else {})
    backup = replace(NO_BACKUP, lambda_usd=lambda_usd)
    return replace(found, backup=backup, slo=SLO, bounds=CapacityBounds(min_rps=min_rps))


def plan(count: int, kept: int = 0) -> Plan:
    counts = PlannedCount(
        offering=BOX.name, count=count, kept=kept, usable_rps=10.0, usd_per_hour=0.1, launch_usd=0.0
    )
    return Plan(at=0.0, counts=(counts,) if count else (), required_rps=10.0 * count, capacity_rps=10.0 * count)


def counts(plan: Plan) -> int:
    return sum(item.count for item in plan.counts)


def test_a_plan_stays_the_same_while_all_that_is_wanted_and_there_fits() -> None:
    divider = CapDivider(HALF, {})
    wanted = plan(3)
    assert divider.divide("a", asked(), wanted) is wanted
    assert divider.divide("b", asked(), wanted) is wanted


def test_equal_models_get_equal_parts_and_a_heavier_one_gets_more() -> None:
    for weights, parts in (({}, [3, 3]), ({"a": 50.0}, [4, 2])):
        divider = CapDivider(HALF, weights)
        for name in "ab":
            divider.claim(name, asked(), plan(4))
        cut = [divider.divide(name, asked(), plan(4)) for name in "ab"]
        assert [counts(one) for one in cut] == parts
        assert [one.limit_rps for one in cut] == [10.0 * part for part in parts]


def test_what_is_there_beyond_a_plan_is_to_go_at_once_where_another_waits_for_it() -> None:
    divider = CapDivider(HALF, {})
    divider.claim("b", asked(), plan(4))
    kept = divider.divide("a", asked(10.0, there=4), plan(2, kept=2))
    assert (counts(kept), kept.limit_rps) == (2, 20.0)


def test_an_instance_that_is_there_goes_before_an_equal_one_that_boots() -> None:
    divider = CapDivider(ServiceCap(vcpus=8), {})
    divider.claim("a", asked(), plan(4))
    assert counts(divider.divide("b", asked(there=4), plan(4, kept=4))) == 4
    assert counts(divider.divide("a", asked(), plan(4))) == 0


def test_a_floor_is_kept_whatever_others_are_worth() -> None:
    divider = CapDivider(HALF, {"b": 1000.0})
    divider.claim("b", asked(100.0), plan(10))
    assert counts(divider.divide("a", asked(min_rps=20.0), plan(4))) == 2
    assert counts(divider.divide("c", asked(lambda_usd=float("inf")), plan(4))) == 1


def test_shared_instances_are_a_claimant_too() -> None:
    divider = CapDivider(HALF, {})
    divider.claim("a", asked(), plan(6))
    steps = [CapStep(takes=Takes(vcpus=4.0), saves=saves) for saves in (0.0, 1000.0)]
    assert divider.divide_shared(steps, NOTHING) == (1,)
    assert counts(divider.divide("a", asked(), plan(6))) == 4
    assert divider.shared_count == 1


def test_instances_save_less_the_higher_the_level_that_they_serve() -> None:
    steps = [item.step for item in cap_instances(asked(), plan(5, kept=1))]
    assert [step.takes.vcpus for step in steps] == [2.0] * 5
    saves = [step.saves for step in steps]
    assert saves == sorted(saves, reverse=True)
    assert saves[0] == pytest.approx(10.0 * 3600 * 1e-4, rel=0.05), "Lambda's price of ten requests a second"


def test_what_sleeps_takes_nothing_of_the_cap() -> None:
    states = (InstanceState.READY, InstanceState.PENDING, InstanceState.DRAINING, InstanceState.STOPPED)
    fleet = FleetView(
        instances=tuple(
            Instance(id=str(n), offering=BOX.name, state=state, role=Role.SERVING)
            for n, state in enumerate(states)
        )
    )
    assert used_by(fleet, {BOX.name: BOX}) == pytest.approx((0.3, 6.0, 0.0))
