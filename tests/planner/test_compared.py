"""The planners against the optimum, found by enumeration."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import mean

import pytest

from mark.planner.exact.milp import cheapest_schedule, plan_milp
from mark.planner.greedy import plan_greedy
from tests.planner.enumeration import INSTANCES, Enumeration, small_requests

A_FEW = 20


@pytest.mark.parametrize("count", [A_FEW, pytest.param(INSTANCES, marks=pytest.mark.slow)])
def test_milp_is_optimal_and_greedy_above_it(count: int) -> None:
    gaps = []
    for request in small_requests(count):
        seen = Enumeration(request)
        assert cheapest_schedule(request).usd == pytest.approx(seen.optimum_usd, rel=1e-6)
        assert seen.gap(plan_milp(request)) == pytest.approx(0.0, abs=1e-6)
        gaps.append(seen.gap(plan_greedy(request)))
    assert all(-1e-9 <= gap < math.inf for gap in gaps)
    assert mean(gaps) > 1e-3, "instances on which nothing can go wrong compare nothing"


def test_the_gap_is_that_of_the_first_fleet() -> None:
    seen = Enumeration(small_requests(1)[0])
    plan = plan_milp(seen.request)
    assert seen.gap(plan) == pytest.approx(0.0, abs=1e-6)
    (largest, *others) = sorted(plan.counts, key=lambda item: -item.count)
    larger = replace(plan, counts=(replace(largest, count=largest.count + 1), *others))
    assert seen.gap(larger) > 1e-3
    assert seen.gap(replace(plan, counts=())) == math.inf
