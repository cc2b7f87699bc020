"""The planner of a pool within a budget."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured, PlanInfeasible
from mark.domain.load.size_window import SizeWindow
from mark.domain.load.sizes import size_distribution
from mark.domain.offerings.offering import Offering
from mark.domain.plan import Plan, PlanRequest
from mark.domain.plans.pool_policy import PoolPolicy
from mark.planner.kairos.budget_pool import _within_budget, check_budget, plan_pool
from tests.planner.builders import SLO, offering, request

SMALL_SIZES = size_distribution("small", {1: 0.9, 4: 0.1})
LARGE_SIZES = size_distribution("large", {1: 0.1, 4: 0.9})
FAST = offering("fast", rps=10.0, usd_per_hour=0.5, points={1: 0.05, 4: 0.2})
SLOW = offering("slow", rps=2.0, usd_per_hour=0.1, points={1: 0.2, 4: 1.2})
POLICY = PoolPolicy(budget_usd_per_hour=2.0, sizes=SMALL_SIZES)


def asked(
    *offerings: Offering, running: dict[str, int] | None = None, refused: tuple[str, ...] = ()
) -> PlanRequest:
    return replace(request([5.0] * 3, offerings or (FAST, SLOW), running=running), refused=refused)


def counts(plan: Plan) -> dict[str, int]:
    return {item.offering: item.count for item in plan.counts}


def test_unlike_types_are_mixed_and_the_load_has_no_part_in_it() -> None:
    plan = plan_pool(POLICY)(asked())
    assert set(counts(plan)) == {FAST.name, SLOW.name}
    assert plan.usd_per_hour <= POLICY.budget_usd_per_hour
    assert counts(plan_pool(POLICY)(replace(asked(), forecast=request([500.0], (FAST,)).forecast))) == counts(plan)


def test_the_pool_follows_the_sizes() -> None:
    dear = replace(POLICY, budget_usd_per_hour=3.0)
    small = counts(plan_pool(dear)(asked()))
    large = counts(plan_pool(replace(dear, sizes=LARGE_SIZES))(asked(running=small)))
    assert large[FAST.name] > small[FAST.name]


def test_the_pool_follows_the_sizes_that_were_measured_once_enough_are_known() -> None:
    given = replace(POLICY, budget_usd_per_hour=3.0, size_window=1000)
    few, enough = (SizeWindow(newer=((1, n // 10), (4, n - n // 10))) for n in (99, 100))
    small = plan_pool(given)(asked())
    assert plan_pool(given)(replace(asked(), sizes=few)) == small
    large = plan_pool(given)(replace(asked(), sizes=enough))
    assert counts(large) == counts(plan_pool(replace(given, sizes=LARGE_SIZES))(asked())) != counts(small)
    assert "measured: 3.7 items a request, 4 at most" in large.reason
    off = replace(given, size_window=0)
    assert plan_pool(off)(replace(asked(), sizes=enough)) == plan_pool(off)(asked())


def test_a_measured_size_is_at_most_the_largest_that_is_served() -> None:
    given = replace(POLICY, size_window=10)
    beyond = replace(asked(), sizes=SizeWindow(newer=((1, 90), (5, 10))))  # a bin may end above the profile
    at_most = replace(asked(), sizes=SizeWindow(newer=((1, 90), (4, 10))))
    assert counts(plan_pool(given)(beyond)) == counts(plan_pool(given)(at_most)) != {}


def test_a_pool_whose_bound_is_nearly_the_best_is_kept() -> None:
    best = counts(plan_pool(POLICY)(asked()))
    present = best | {SLOW.name: best[SLOW.name] - 1}
    patient, strict = replace(POLICY, drift=0.5), replace(POLICY, drift=0.0)
    assert counts(plan_pool(patient)(asked(running=present))) == present
    assert counts(plan_pool(strict)(asked(running=present))) == best


def test_of_a_refused_type_there_is_never_more_than_runs() -> None:
    for there in (0, 2):
        running = {FAST.name: 1, SLOW.name: there}
        plan = plan_pool(POLICY)(asked(running=running, refused=(SLOW.name,)))
        assert counts(plan).get(SLOW.name, 0) <= there
        assert counts(plan)[FAST.name] >= 3


def test_what_runs_stays_within_the_budget_where_no_base_type_can_be_had() -> None:
    running = {SLOW.name: 30}
    plan = plan_pool(POLICY)(asked(running=running, refused=(FAST.name,)))
    assert counts(plan) == {SLOW.name: 20}
    dear = FAST.at_price(5.0)
    assert counts(plan_pool(POLICY)(asked(dear, SLOW, running={dear.name: 1, SLOW.name: 3}))) == {SLOW.name: 3}


def test_a_profile_that_ends_below_the_largest_size_takes_no_part() -> None:
    short = offering("short", points={1: 0.01})
    plan = plan_pool(POLICY)(asked(FAST, short))
    assert short.name not in counts(plan)
    assert "its profile ends at 1" in next(e.reason for e in plan.excuses if e.offering == short.name)


def test_a_budget_that_buys_nothing_is_refused_with_the_cheapest_type() -> None:
    with pytest.raises(PlanInfeasible, match=r"0\.05 USD/h buys no instance: the cheapest type, slow"):
        check_budget((FAST, SLOW), replace(POLICY, budget_usd_per_hour=0.05), SLO)
    with pytest.raises(PlanInfeasible, match="the cheapest type that serves the largest sizes in time, fast"):
        check_budget((FAST, SLOW), replace(POLICY, budget_usd_per_hour=0.2), SLO)
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(Misconfigured, match="above 0 USD/h"):
            replace(POLICY, budget_usd_per_hour=wrong)


@settings(max_examples=60, deadline=None)
@given(
    prices=st.tuples(st.floats(0.05, 3.0), st.floats(0.05, 3.0)),
    budget=st.floats(0.05, 4.0),
    running=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    refused=st.sets(st.sampled_from((FAST.name, SLOW.name))),
    drift=st.floats(0.0, 1.0),
)
def test_a_plan_never_costs_more_than_the_budget(
    prices: tuple[float, float], budget: float, running: tuple[int, int], refused: set[str], drift: float
) -> None:
    offerings = (FAST.at_price(prices[0]), SLOW.at_price(prices[1]))
    there = {item.name: count for item, count in zip(offerings, running, strict=True)}
    policy = PoolPolicy(budget_usd_per_hour=budget, sizes=SMALL_SIZES, drift=drift)
    given_ = asked(*offerings, running=there, refused=tuple(sorted(refused)))
    plan = plan_pool(policy)(given_)
    assert plan.usd_per_hour <= budget * (1 + 1e-8)
    assert all(count <= there[name] for name, count in counts(plan).items() if name in refused)
    assert plan == plan_pool(policy)(replace(given_, offerings=offerings[::-1]))


def test_what_runs_is_paid_for_by_the_instance_the_cheapest_first() -> None:
    running = {SLOW.name: 3, FAST.name: 5}
    assert _within_budget(running, (FAST, SLOW), 1.8) == {SLOW.name: 3, FAST.name: 3}
