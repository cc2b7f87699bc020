"""What every planner keeps, whoever asks: found by name, as a policy names it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mark.controller.plan_request import plan_fleet, planner_names
from mark.controller.policy import ControllerPolicy
from mark.domain.errors import PlanInfeasible
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Offering
from mark.domain.plan import Backup, Plan, PlanRequest
from tests.planner.builders import offering, request

PLANNERS = sorted(
    {*planner_names()} - {"kairos"}
)  # it plans a budget, not a load: tests/planner/kairos/test_budget_pool.py
SLOS = (
    Slo(latency_s=0.6, target=0.98),
    Slo(latency_s=0.2, target=0.98),
    Slo(latency_s=0.6, target=0.98, mean_latency_s=0.1),
)
KINDS = st.tuples(
    st.floats(1.0, 60.0),
    st.floats(0.05, 2.0),
    st.floats(0.0, 0.05),
    st.sampled_from([1, 1, 4]),
    st.floats(0.02, 0.9),
)
RATES = st.just(0.0) | st.floats(1e-6, 300.0)  # fewer are taken for none
QUICK = offering("quick", rps=20.0, usd_per_hour=1.0, latency_s=0.02)
"""Keeps every objective here, so that a load that it is offered for can be met: by enough of these alone."""

SAME_A_REQUEST = offering("alike", rps=1.0, usd_per_hour=0.05, latency_s=0.5)
"""Costs as much a request, but for a rounding that depends on the scale."""


@st.composite
def backups(draw: st.DrawFn) -> Backup:
    """Lambda in time, late or not there; standbys asleep or none."""
    rps, price, launch, batch, latency_s = draw(KINDS)
    standby = offering("by", rps=rps, usd_per_hour=price, launch_usd=launch, batch=batch, latency_s=latency_s)
    return Backup(
        lambda_usd=draw(st.sampled_from([math.inf, 1e-6, 20e-6])),
        relieves=draw(st.booleans()),
        standby=draw(st.sampled_from([None, standby])),
        asleep_usd_per_hour=draw(st.floats(0.0, 0.01)),
        standbys=draw(st.integers(0, 5)),
    )


@st.composite
def requests(draw: st.DrawFn, quick: bool = True) -> PlanRequest:
    """On and off the minute, with refusals and strangers running; without `quick`, many that nothing can meet."""
    drawn = tuple(
        offering(f"t{i}", rps=rps, usd_per_hour=price, launch_usd=launch, batch=batch, latency_s=latency_s)
        for i, (rps, price, launch, batch, latency_s) in enumerate(draw(st.lists(KINDS, max_size=4)))
    )
    offerings = (*drawn, QUICK) if quick else drawn
    names = [item.name for item in offerings]
    minutes = draw(st.lists(RATES, max_size=20))
    wanted = request(
        draw(st.lists(st.floats(0.5, 300.0) if quick else RATES, min_size=1, max_size=12)),
        offerings,
        running={"gone:spot": 3} | {name: draw(st.integers(0, 6)) for name in names},
        slo=draw(st.sampled_from(SLOS)),
        lead_units=draw(st.integers(0, 6)),
        history=tuple(minutes),
        ready_history=tuple(draw(st.lists(st.integers(0, 8), max_size=20))),
        recent_rps=tuple(draw(st.lists(RATES, max_size=12))),
    )
    refused = tuple(name for name in names if draw(st.sampled_from([False, False, True])))
    return replace(
        wanted,
        now=draw(st.sampled_from([0.0, 37.5])),
        refused=refused,
        backup=draw(backups()),
        hazards=tuple((name, draw(st.floats(0.0, 2.0))) for name in names if draw(st.booleans())),
    )


def planned(planner: str, wanted: PlanRequest) -> Plan:
    policy = ControllerPolicy(
        name=planner, planner=planner, slo=wanted.slo, offerings=wanted.offerings, static_count=3
    )
    return plan_fleet(wanted, policy)


def counts(plan: Plan) -> list[tuple[str, int, int]]:
    return [(item.offering, item.count, item.kept) for item in plan.counts]


def priced(item: Offering, factor: float) -> Offering:
    return replace(item, usd_per_hour=item.usd_per_hour * factor, launch_usd=item.launch_usd * factor)


def test_all_planners_are_held_to_it() -> None:
    assert set(PLANNERS) >= {"greedy", "hedged", "milp", "nothing", "static", "target-tracking", "two-windows"}


@pytest.mark.parametrize("planner", PLANNERS)
@settings(deadline=None, max_examples=20)  # the first example waits for the compiler
@example(wanted=request([1.0], (SAME_A_REQUEST, QUICK)), factor=1000.0, order=1)
@example(wanted=request([2.0], (SAME_A_REQUEST, QUICK), lead_units=0, history=(288.0,)), factor=0.25, order=1)
@given(wanted=requests(), factor=st.sampled_from([0.25, 0.9, 7.3, 1000.0]), order=st.integers(0, 99))
def test_the_order_of_offerings_and_the_scale_of_prices_are_irrelevant(
    planner: str, wanted: PlanRequest, factor: float, order: int
) -> None:
    plan = planned(planner, wanted)
    rng = np.random.default_rng(order)
    offerings = tuple(wanted.offerings[i] for i in rng.permutation(len(wanted.offerings)))
    running = tuple(wanted.running[i] for i in rng.permutation(len(wanted.running)))
    assert planned(planner, replace(wanted, offerings=offerings, running=running)) == plan
    backup = wanted.backup
    scaled = replace(
        wanted,
        offerings=tuple(priced(item, factor) for item in wanted.offerings),
        backup=replace(
            backup,
            lambda_usd=backup.lambda_usd * factor,
            standby=backup.standby and priced(backup.standby, factor),
            asleep_usd_per_hour=backup.asleep_usd_per_hour * factor,
        ),
    )
    assert counts(planned(planner, scaled)) == counts(plan)


@pytest.mark.parametrize("planner", PLANNERS)
@settings(deadline=None, max_examples=20)
@given(wanted=requests())
def test_a_planner_is_deterministic_and_every_offering_is_taken_or_excused(
    planner: str, wanted: PlanRequest
) -> None:
    plan = planned(planner, wanted)
    assert planned(planner, wanted) == plan
    taken, excused = [item.offering for item in plan.counts], [item.offering for item in plan.excuses]
    assert sorted({*taken, *excused}) == sorted(item.name for item in wanted.offerings)
    assert all(item.reason for item in plan.excuses)
    running = dict(wanted.running)
    assert all(0 <= item.kept <= min(item.count, running.get(item.offering, 0)) for item in plan.counts)


def expected_rps(wanted: PlanRequest) -> float:
    """What is forecast for when a launch of now serves."""
    rates = wanted.forecast.max_at(0.5)
    return rates[min(wanted.lead_units, len(rates) - 1)]


@pytest.mark.parametrize("planner", ["greedy", "milp"])
@settings(deadline=None)
@given(wanted=requests())
def test_the_demand_is_met(planner: str, wanted: PlanRequest) -> None:
    plan = planned(planner, wanted)
    assert plan.required_rps == expected_rps(wanted) > 0
    carried = sum(item.count * item.usable_rps for item in plan.counts)
    assert plan.capacity_rps == pytest.approx(carried)
    assert carried + plan.shortfall_rps >= plan.required_rps - 1e-6


@pytest.mark.parametrize("planner", ["target-tracking", "two-windows", "static"])
@settings(deadline=None)
@given(wanted=requests())
def test_baselines_keep_an_instance_of_what_keeps_the_objective(planner: str, wanted: PlanRequest) -> None:
    (fleet,) = planned(planner, wanted).counts
    assert fleet.count >= 1
    (item,) = (item for item in wanted.offerings if item.name == fleet.offering)
    assert item.profile.latency_s(1) <= wanted.slo.latency_s


@pytest.mark.parametrize("planner", ["greedy", "milp"])
@settings(deadline=None)
@given(wanted=requests(quick=False))
def test_no_plan_is_said_where_and_only_where_nothing_keeps_the_mean(planner: str, wanted: PlanRequest) -> None:
    able = any(item.latency_s < wanted.slo.mean_latency_s for item in wanted.offerings)
    if expected_rps(wanted) > 0 and not able:
        with pytest.raises(PlanInfeasible):
            planned(planner, wanted)
    else:
        plan = planned(planner, wanted)
        if expected_rps(wanted) > 0:
            assert plan.counts
        elif not any(wanted.forecast.max_at(0.5)):
            assert not plan.counts
