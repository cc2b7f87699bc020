"""Pods beside another stack: the plan, what stands in for it, and what is never told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.controller.outside_pods import Outlook, decide_pods, demand_of_rates
from mark.domain.demand import STALE_S, UNIT_S, Demand, Forecast, point_forecast
from mark.domain.errors import PlanInfeasible
from mark.domain.plans.pod_plan import PodCount, PodPlan
from tests.controller.builders import LARGE, POLICY, SMALL

ALONE = replace(POLICY, overflow=None)
BLIND = replace(ALONE, planner="hedged")
RATE = st.floats(0.1, 500) | st.just(0.0)
RATES = st.lists(RATE, min_size=1, max_size=30)
COUNTS = st.integers(0, 20)


def history(rates: list[float], start: int = 6000) -> Demand:
    return demand_of_rates({start + 60 * at: rate for at, rate in enumerate(rates)})


def going_on(past: Demand, rps: float) -> Forecast:
    return point_forecast(past.end_at, mean_rps=(rps,) * 60, max_rps=(rps,) * 60, source="test")


def told(small: int, large: int, at: float = 0.0) -> PodPlan:
    counts = sorted({SMALL.name: small, LARGE.name: large}.items())
    pods = tuple(PodCount(offering=name, count=count, reason="as told") for name, count in counts)
    return PodPlan(at=at, demand_end_at=at, pods=pods)


def capacity_rps(plan: PodPlan) -> float:
    return sum(item.capacity_rps * plan.of(item.name).count for item in POLICY.offerings)  # type: ignore[union-attr]


def counts(plan: PodPlan) -> dict[str, int]:
    return {one.offering: one.count for one in plan.pods}


@given(rates=RATES, small=COUNTS, large=COUNTS, expected=RATE)
def test_each_offering_has_one_answer_and_a_reason(rates: list[float], small: int, large: int, expected: float):
    past = history(rates)
    seen = Outlook(now=past.end_at, history=past, forecast=going_on(past, expected))
    plan = decide_pods(ALONE, seen, told(small, large))
    assert [one.offering for one in plan.pods] == sorted(item.name for item in POLICY.offerings)
    assert all(one.count >= 0 and one.reason for one in plan.pods)
    assert capacity_rps(plan) >= expected * 0.999
    assert plan == decide_pods(ALONE, seen, told(small, large))
    backwards = replace(ALONE, offerings=ALONE.offerings[::-1])
    assert counts(plan) == counts(decide_pods(backwards, seen, told(small, large)))


@pytest.mark.parametrize("policy", [ALONE, BLIND], ids=["greedy", "hedged"])
@given(rates=RATES)
def test_without_a_forecast_the_last_minutes_need_is_carried(policy, rates: list[float]):
    past = history(rates)
    plan = decide_pods(policy, Outlook(now=past.end_at, history=past, failure="it failed"), None)
    assert capacity_rps(plan) >= past.mean_rps[-1] * 0.999
    assert rates[-1] < 1 or all(
        "the last minute's need: it failed" in one.reason for one in plan.pods if one.count
    )


@given(rates=RATES, small=COUNTS, large=COUNTS)
def test_without_a_plan_nothing_goes_and_the_last_minute_is_carried(rates: list[float], small: int, large: int):
    past, last = history(rates), told(small, large)
    absurd = going_on(past, 1e12)
    plan = decide_pods(ALONE, Outlook(now=past.end_at, history=past, forecast=absurd), last)
    assert capacity_rps(plan) >= past.max_rps[-1] * 0.999
    assert all(counts(plan)[name] >= count for name, count in counts(last).items())
    assert counts(plan) == counts(last) or capacity_rps(last) < past.max_rps[-1]
    assert all("no plan: " in one.reason and "last minute's need" in one.reason for one in plan.pods)


@given(rates=RATES, age_s=st.floats(STALE_S + 1, 1e6), small=COUNTS, large=COUNTS)
def test_stale_demand_keeps_the_last_answer_and_says_so(rates: list[float], age_s: float, small: int, large: int):
    past, last = history(rates), told(small, large, at=100.0)
    seen = Outlook(now=past.end_at + age_s, history=past, trouble="no route", forecast=going_on(past, 400.0))
    plan = decide_pods(ALONE, seen, last)
    assert counts(plan) == counts(last)
    assert plan.demand_end_at == last.demand_end_at
    assert all("min old (no route): the last answer stays" in one.reason for one in plan.pods)
    with pytest.raises(PlanInfeasible, match="min old"):
        decide_pods(ALONE, seen, None)


def test_without_any_demand_there_is_no_answer_but_the_last():
    seen = Outlook(now=60.0, history=Demand(end_at=0.0, mean_rps=(), max_rps=()), trouble="refused")
    with pytest.raises(PlanInfeasible, match=r"no demand is known \(refused\)"):
        decide_pods(ALONE, seen, None)
    assert counts(decide_pods(ALONE, seen, told(2, 1))) == {SMALL.name: 2, LARGE.name: 1}


def test_an_offering_that_was_taken_away_or_added_is_no_trouble():
    past = history([50.0] * 5)
    seen = Outlook(now=past.end_at + 10 * STALE_S, history=past)
    only = replace(ALONE, offerings=(LARGE,))
    assert counts(decide_pods(only, seen, told(3, 2))) == {LARGE.name: 2}
    last = replace(told(0, 2), pods=told(0, 2).pods[:1])
    assert counts(decide_pods(ALONE, seen, last)) == {SMALL.name: 0, LARGE.name: 2}


@given(
    rates=st.dictionaries(st.integers(0, 200), st.floats(0, 1e4), min_size=1, max_size=60),
    start=st.integers(1, 10**6),
)
def test_a_gap_holds_the_rate_before_it(rates: dict[int, float], start: int):
    by_start = {60 * (start + minute): rate for minute, rate in rates.items()}
    found = demand_of_rates(by_start)
    first, last = min(by_start), max(by_start)
    assert found.end_at == last + UNIT_S
    assert len(found) == (last - first) // 60 + 1
    for place, rate in enumerate(found.mean_rps):
        at = first + 60 * place
        assert rate == by_start[max(known for known in by_start if known <= at)]
    assert all(high >= mean for high, mean in zip(found.max_rps, found.mean_rps, strict=True))
