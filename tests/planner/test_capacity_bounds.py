"""A plan within bounds: kept where they allow, filled with what is cheapest, cut to what is allowed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.plan import Plan, PlannedCount, PlanRequest
from mark.domain.plans.capacity_schedule import CapacityBounds
from mark.planner.capacity_bounds import within_bounds
from mark.planner.greedy import plan_greedy
from mark.planner.hedged import plan_hedged
from tests.planner.builders import SLO, demand, forecast, offering

SMALL = offering("small", rps=10.0, usd_per_hour=0.10, launch_usd=0.01)
LARGE = offering("large", rps=45.0, usd_per_hour=0.40, launch_usd=0.04)
DEAR = offering("dear", rps=100.0, usd_per_hour=9.0, launch_usd=0.9)
ALL = (DEAR, LARGE, SMALL)
EXACT = 1e-6


def request(
    bounds: CapacityBounds,
    *,
    rate: float = 30.0,
    running: tuple[tuple[str, int], ...] = (),
    refused: tuple[str, ...] = (),
) -> PlanRequest:
    return PlanRequest(
        now=0.0,
        history=demand((rate,) * 60),
        forecast=forecast((rate,) * 60),
        offerings=ALL,
        running=running,
        slo=SLO,
        refused=refused,
        bounds=bounds,
    )


def planned(counts: dict[str, int]) -> Plan:
    kinds = {item.name: item for item in ALL}
    return Plan(
        at=0.0,
        counts=tuple(
            PlannedCount(
                offering=name,
                count=count,
                kept=0,
                usable_rps=kinds[name].capacity_rps,
                usd_per_hour=kinds[name].usd_per_hour,
                launch_usd=kinds[name].launch_usd,
            )
            for name, count in sorted(counts.items())
            if count
        ),
        required_rps=sum(kinds[name].capacity_rps * count for name, count in counts.items()),
        capacity_rps=sum(kinds[name].capacity_rps * count for name, count in counts.items()),
        reason="wanted",
    )


def names() -> list[str]:
    return [item.name for item in ALL]


FLEETS = st.dictionaries(st.sampled_from(names()), st.integers(0, 6))
RATES = st.floats(min_value=0.0, max_value=700.0)


@given(FLEETS, FLEETS, RATES, st.none() | RATES, st.sets(st.sampled_from(names())))
def test_the_bounds_are_kept_and_the_plan_stays_whole(
    wanted: dict[str, int], running: dict[str, int], low: float, high: float | None, refused: set[str]
) -> None:
    bounds = CapacityBounds(min_rps=low if high is None else min(low, high), max_rps=high)
    asked = request(bounds, running=tuple(sorted(running.items())), refused=tuple(sorted(refused)))
    found = within_bounds(planned(wanted), asked)
    kinds = {item.name: item for item in ALL}
    assert found.capacity_rps == pytest.approx(sum(item.count * item.usable_rps for item in found.counts))
    assert all(0 <= item.kept <= item.count for item in found.counts)
    assert high is None or found.capacity_rps <= high + EXACT
    assert found.limit_rps == high
    can_launch = refused < set(kinds)
    if (high is None or high >= low + DEAR.capacity_rps) and can_launch:
        assert found.capacity_rps >= low - EXACT
    for item in found.counts:
        most = max(wanted.get(item.offering, 0), running.get(item.offering, 0))
        assert item.offering not in refused or item.count <= most


@given(FLEETS, RATES)
def test_a_plan_that_keeps_the_bounds_stays_as_it_is(wanted: dict[str, int], spare: float) -> None:
    plan = planned(wanted)
    bounds = CapacityBounds(min_rps=plan.capacity_rps, max_rps=plan.capacity_rps + spare)
    assert within_bounds(plan, request(bounds)) == replace(plan, limit_rps=bounds.max_rps)


def test_a_minimum_is_filled_with_what_costs_least_for_it() -> None:
    found = within_bounds(planned({SMALL.name: 1}), request(CapacityBounds(min_rps=55.0)))
    assert {item.offering: item.count for item in found.counts} == {LARGE.name: 1, SMALL.name: 1}
    assert "at least 55 requests/s by schedule" in found.reason


def test_what_runs_goes_before_a_launch_unless_it_is_much_dearer() -> None:
    bounds = CapacityBounds(min_rps=10.0)
    kept = within_bounds(planned({}), request(bounds, running=((DEAR.name, 1), (SMALL.name, 1))))
    assert [(item.offering, item.count, item.kept) for item in kept.counts] == [(SMALL.name, 1, 1)]


def test_above_a_maximum_the_dearest_goes_and_what_is_left_of_it_is_used() -> None:
    found = within_bounds(planned({DEAR.name: 1, SMALL.name: 2}), request(CapacityBounds(max_rps=80.0)))
    assert {item.offering: item.count for item in found.counts} == {LARGE.name: 1, SMALL.name: 3}
    assert found.shortfall_rps == pytest.approx(45.0)
    assert "at most 80 requests/s by schedule" in found.reason


@pytest.mark.parametrize("planner", [plan_greedy, plan_hedged])
def test_planners_are_held_to_bounds_whatever_they_forecast(planner) -> None:
    for rate in (0.0, 30.0, 400.0):
        asked = request(CapacityBounds(min_rps=60.0, max_rps=100.0), rate=rate)
        found = within_bounds(planner(asked), asked)
        assert 60.0 - EXACT <= found.capacity_rps <= 100.0 + EXACT
