from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import PlanInfeasible
from mark.domain.models.objective import Slo
from mark.domain.plan import Plan, PlanRequest
from mark.planner.exact.milp import EVERY_UNIT, MilpPolicy, cheapest_schedule, plan_milp
from mark.planner.exact.solver import SearchLimits
from mark.planner.queueing import usable_rps
from tests.planner.builders import SLO, offering, request

SMALL = offering("small", rps=10.0, usd_per_hour=0.36, latency_s=0.1, launch_usd=0.015)
LARGE = offering("large", rps=100.0, usd_per_hour=2.7, latency_s=0.1, launch_usd=0.11)
S, L = "small:on-demand", "large:on-demand"
KINDS = st.tuples(st.floats(1.0, 60.0), st.floats(0.05, 2.0), st.floats(0.0, 0.05), st.floats(0.02, 0.35))


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    """Requests that can be met."""
    offerings = tuple(
        offering(f"t{i}", rps=rps, usd_per_hour=price, launch_usd=launch, latency_s=latency_s)
        for i, (rps, price, launch, latency_s) in enumerate(draw(st.lists(KINDS, max_size=3)))
    )
    quick = offering("quick", rps=20.0, usd_per_hour=1.0, latency_s=0.05)
    return request(
        draw(st.lists(st.floats(0.0, 200.0), min_size=1, max_size=8)),
        (*offerings, quick),
        running={"gone": 3} | {item.name: draw(st.integers(0, 5)) for item in offerings},
        lead_units=draw(st.integers(0, 3)),
    )


def counts(plan: Plan) -> dict[str, tuple[int, int]]:
    return {item.offering: (item.count, item.kept) for item in plan.counts}


def planned(rates: list[float], **changes: object) -> dict[str, tuple[int, int]]:
    return counts(plan_milp(request(rates, (SMALL, LARGE), **changes)))  # type: ignore[arg-type]


def single_type_usd(wanted: PlanRequest, name: str) -> float:
    """Least cost of carrying every rate with one offering: per level, each gap is bridged or not. Word by word."""
    item = next(item for item in wanted.offerings if item.name == name)
    rates = wanted.forecast.max_at(0.5)
    tau = min(wanted.lead_units, len(rates) - 1)
    usable = usable_rps(item, wanted.slo, rates[tau])
    if usable <= 0:
        return math.inf
    needed = [max(0, math.ceil((rate - 1e-9) / usable)) for rate in rates[tau:]]
    rent = item.usd_per_hour * wanted.forecast.unit_s / 3600.0
    there = dict(wanted.running).get(name, 0)
    total = 0.0
    for level in range(1, max(needed) + 1):
        on, off = (0.0, 0.0) if level <= there else (math.inf, 0.0)
        for need in needed:
            on, off = min(on, off + item.launch_usd) + rent, math.inf if need >= level else min(on, off)
        total += min(on, off)
    return total


@settings(deadline=None)  # the first example waits for the compiler
@given(requests())
def test_it_carries_every_rate_for_no_more_than_any_single_type(wanted: PlanRequest) -> None:
    found = cheapest_schedule(wanted)
    rates = wanted.forecast.max_at(0.5)
    tau = min(wanted.lead_units, len(rates) - 1)
    items = sorted(wanted.offerings, key=lambda item: item.name)
    usable = np.array([usable_rps(item, wanted.slo, rates[tau]) for item in items])
    assert (found.counts @ usable >= np.array(rates[tau:]) - 1e-6).all()
    singles = [single_type_usd(wanted, item.name) for item in items]
    assert found.usd <= min(singles) * (1 + 1e-6) + 1e-12
    rent = np.array([item.usd_per_hour * wanted.forecast.unit_s / 3600.0 for item in items])
    launch = np.array([item.launch_usd for item in items])
    there = np.array([[dict(wanted.running).get(item.name, 0) for item in items]])
    started = np.maximum(0, np.diff(found.counts, axis=0, prepend=there)).sum(axis=0)
    assert found.usd == pytest.approx(found.counts.sum(axis=0) @ rent + started @ launch, abs=1e-6)


@settings(deadline=None)
@given(requests())
def test_a_search_that_ends_at_once_is_no_dearer_than_a_single_type(wanted: PlanRequest) -> None:
    hasty = MilpPolicy(limits=SearchLimits(max_nodes=0))
    found, exact = cheapest_schedule(wanted, hasty), cheapest_schedule(wanted)
    assert found.usd <= min(single_type_usd(wanted, item.name) for item in wanted.offerings) * (1 + 1e-6) + 1e-12
    assert found.usd * (1.0 - found.gap) <= exact.usd * (1 + 1e-6) + 1e-12


@settings(deadline=None)
@given(requests())
def test_one_type_alone_needs_no_search(wanted: PlanRequest) -> None:
    able = [item for item in wanted.offerings if usable_rps(item, SLO, 1.0) > 0]
    alone = replace(wanted, offerings=tuple(able[:1]))
    found = cheapest_schedule(alone)
    assert found.nodes == 0
    assert found.usd == pytest.approx(single_type_usd(alone, alone.offerings[0].name), rel=1e-8)


def test_a_hand_computed_plan() -> None:
    # 70/s need eight small ones (0.048 USD a minute, 0.12 to start) or one large one (0.045 and 0.11).
    assert planned([70.0] * 62) == {L: (1, 0)}
    # Leaving eight small ones for it saves 0.003 a minute and costs 0.11: not in 30 minutes, but in 60.
    assert planned([70.0] * 32, running={S: 8}) == {S: (8, 8)}
    assert planned([70.0] * 62, running={S: 8}) == {L: (1, 0)}


def test_instances_are_kept_through_a_valley_where_that_is_cheaper() -> None:
    # A small one rents for 0.006 a minute and starts for 0.015: two minutes are bridged, three are not.
    def counts_over_time(valley: int) -> list[int]:
        found = cheapest_schedule(request([10.0] + [0.0] * valley + [10.0], (SMALL,), lead_units=0))
        return [int(row[0]) for row in found.counts]

    assert counts_over_time(2) == [2, 2, 2, 2]
    assert counts_over_time(3) == [2, 0, 0, 0, 2]


def test_the_rates_after_the_lead_move_the_plan() -> None:
    assert planned([20.0] * 3 + [70.0] * 40) != planned([20.0] * 43)


def test_price_launch_lead_and_objective_move_the_plan() -> None:
    rates = [30.0, 50.0, 70.0, 90.0] + [110.0] * 20
    base = planned(rates)
    dear = replace(LARGE, usd_per_hour=27.0)
    slow_start = replace(LARGE, launch_usd=11.0)
    tight = Slo(latency_s=0.6, target=0.98, mean_latency_s=0.101)
    assert counts(plan_milp(request(rates, (SMALL, dear)))) != base
    assert counts(plan_milp(request(rates, (SMALL, slow_start)))) != base
    assert planned(rates, lead_units=4) != base
    assert planned(rates, slo=tight) != base


def test_the_weight_of_launch_latency_favours_what_comes_soon() -> None:
    """HetSev's objective: cost plus a weight times the time that launches take."""
    soon, slow = replace(SMALL, boot_s=10.0), replace(LARGE, boot_s=600.0)
    wanted = request([90.0] * 60, (soon, slow), lead_units=0)
    assert L in counts(plan_milp(wanted))
    weighed = replace(wanted, launch_weight_usd_per_s=0.01)
    assert set(counts(plan_milp(weighed))) == {S}
    plain = cheapest_schedule(replace(weighed, offerings=(soon,), launch_weight_usd_per_s=0.0))
    alone = cheapest_schedule(replace(weighed, offerings=(soon,)))
    assert alone.usd == pytest.approx(plain.usd), "the weight is nothing that anybody pays"
    there = replace(weighed, running=((L, 1),))
    assert counts(plan_milp(there))[L] == (1, 1)


def test_a_refused_offering_is_kept_but_not_launched() -> None:
    wanted = request([70.0] * 60, (SMALL, LARGE))
    assert counts(plan_milp(replace(wanted, refused=(L,)))) == {S: (8, 0)}
    kept = replace(wanted, refused=(L,), running=((L, 1),))
    assert counts(plan_milp(kept)) == {L: (1, 1)}
    # It may be had again by then: better than nothing.
    assert counts(plan_milp(replace(wanted, offerings=(LARGE,), refused=(L,)))) == {L: (1, 0)}
    (excuse,) = (e for e in plan_milp(replace(wanted, refused=(L,))).excuses if e.offering == L)
    assert excuse.reason == "refused just now"


def test_what_is_not_taken_is_excused_with_its_numbers() -> None:
    slow = offering("slow", rps=50.0, usd_per_hour=0.01, latency_s=0.4)
    plan = plan_milp(request([0.0, 0.0] + [5.0] * 4, (slow, SMALL, LARGE)))
    assert counts(plan) == {S: (1, 0)}
    large, too_slow = plan.excuses
    assert large.offering == L
    assert "in none of the fleets" in large.reason
    assert "USD per million requests" in large.reason
    assert too_slow.offering == "slow:on-demand"
    assert "400 ms" in too_slow.reason
    assert "USD over 4 minutes" in plan.reason
    assert "gap" in plan.reason


def test_an_offering_that_is_wanted_later_says_when() -> None:
    plan = plan_milp(request([5.0] * 3 + [95.0] * 60, (SMALL, LARGE)))
    (excuse,) = plan.excuses
    assert excuse.offering == L
    assert "first wanted 1 minutes after the lead" in excuse.reason


def test_infeasible_says_the_fastest_latency() -> None:
    slow = offering("slow", rps=50.0, latency_s=0.4)
    with pytest.raises(PlanInfeasible, match=r"slow:on-demand, takes 400 ms"):
        plan_milp(request([5.0] * 4, (slow,)))
    with pytest.raises(PlanInfeasible, match="no offering is left"):
        plan_milp(request([5.0] * 4, ()))


def test_nothing_expected_needs_nothing() -> None:
    slow = offering("slow", rps=50.0, latency_s=0.4)
    assert plan_milp(request([0.0] * 4, (slow,))).counts == ()
    quiet = plan_milp(request([0.0] * 4, (SMALL, LARGE)))
    assert quiet.counts == ()
    assert {item.reason for item in quiet.excuses} == {"nothing is expected from one lead on"}


def test_a_broken_forecast_is_refused() -> None:
    with pytest.raises(PlanInfeasible, match="forecast"):
        plan_milp(request([math.inf] * 4, (SMALL,)))
    with pytest.raises(PlanInfeasible, match="forecast"):
        plan_milp(request([], (SMALL,)))


def test_large_fleets_are_planned_to_a_small_gap() -> None:
    rates = [20_000.0 + 5_000.0 * math.sin(k / 9.0) for k in range(60)]
    found = cheapest_schedule(request(rates, (SMALL, LARGE)), MilpPolicy(limits=SearchLimits(max_nodes=20)))
    assert 0.0 <= found.gap < 5e-3


def test_blocks_cost_no_more_than_their_gap_says() -> None:
    agile = offering("agile", rps=25.0, usd_per_hour=0.99, latency_s=0.1, launch_usd=0.001)
    rates = [40.0 + 35.0 * math.sin(k / 2.0) for k in range(12)]
    wanted = request(rates, (SMALL, LARGE, agile), running={S: 2}, lead_units=0)
    exact, quick = cheapest_schedule(wanted, EVERY_UNIT), cheapest_schedule(wanted)
    assert exact.gap < 1e-6
    assert exact.usd <= quick.usd * (1 + 1e-9)
    assert quick.usd * (1.0 - quick.gap) <= exact.usd * (1 + 1e-9)
