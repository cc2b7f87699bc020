from __future__ import annotations

import pulp
import pytest

from mark.domain.errors import PlanInfeasible
from mark.planner.exact.milp import MilpPolicy, cheapest_schedule
from mark.planner.exact.solver import SearchLimits, solve
from tests.planner.enumeration import Enumeration, small_requests


def knapsack(least: float, *, most: int | None = None) -> pulp.LpProblem:
    """Carry `least` with items of 3 (cost 4) and 5 (cost 6)."""
    problem = pulp.LpProblem("knapsack", pulp.LpMinimize)
    three, five = (problem.add_variable(name, 0, most, cat=pulp.LpInteger) for name in ("three", "five"))
    problem += 3 * three + 5 * five >= least
    problem.setObjective(4 * three + 6 * five)
    return problem


def test_it_solves() -> None:
    solved = solve(knapsack(11.0), SearchLimits())
    assert {name: round(value) for name, value in solved.values.items()} == {"three": 2, "five": 1}
    assert solved.objective == pytest.approx(14.0)
    assert solved.bound == pytest.approx(14.0, rel=1e-5)


def test_it_says_the_same_again() -> None:
    assert solve(knapsack(11.0), SearchLimits()) == solve(knapsack(11.0), SearchLimits())


def test_no_solution_is_infeasible() -> None:
    with pytest.raises(PlanInfeasible, match="found no fleet"):
        solve(knapsack(11.0, most=1), SearchLimits())


def test_it_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    solve(knapsack(11.0), SearchLimits())
    assert capfd.readouterr() == ("", "")


def test_the_bound_of_a_search_that_ended_early_holds() -> None:
    for request in small_requests(3, seed=1):
        found = cheapest_schedule(request, MilpPolicy(limits=SearchLimits(max_nodes=1)))
        assert found.usd * (1.0 - found.gap) <= Enumeration(request).optimum_usd * (1 + 1e-6)
        assert 0.0 <= found.gap < 1.0


def test_it_finds_the_optimum() -> None:
    for request in small_requests(5, seed=2):
        found = cheapest_schedule(request)
        assert found.usd == pytest.approx(Enumeration(request).optimum_usd, rel=1e-6)
