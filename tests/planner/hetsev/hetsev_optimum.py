"""The optimum of HetSev's program, of which `mark.planner.hetsev.scaling` states the constraints by number.

With n_i = N_i + X_i and u_i >= n_i - N_i, u_i >= 0 the objective is sum C_i n_i + lambda C_i O_i u_i less the
constant sum C_i N_i, and no cost is negative.
"""

from __future__ import annotations

import math

import pulp

from mark.domain.errors import PlanInfeasible
from mark.planner.exact.solver import SearchLimits, solve
from mark.planner.hetsev.scaling import Scaling

EXACT = SearchLimits(max_nodes=10_000)


def optimal_actions(state: Scaling, *, grow_only: bool = False) -> dict[str, int]:
    """The cheapest X by kind; zeros are left out. With `grow_only` nothing that runs goes, as in the heuristic.

    PlanInfeasible where no actions meet the constraints.
    """
    problem = pulp.LpProblem("hetsev", pulp.LpMinimize)
    counts, cost = {}, []
    used: dict[str, list[tuple[pulp.LpVariable, float]]] = {name: [] for name in state.left}
    for i, kind in enumerate(state.kinds):
        most = None if kind.latency_s <= state.slo_s else kind.running
        count = problem.add_variable(f"n{i:03d}", kind.running if grow_only else 0, most, cat=pulp.LpInteger)
        grown = problem.add_variable(f"u{i:03d}", 0)
        problem += count - grown <= kind.running
        cost += [(count, kind.cost), (grown, state.launch_weight * kind.cost * kind.launch_s)]
        counts[kind.name] = count
        for name, need in kind.needs.items():
            used.setdefault(name, []).append((count, need))
    for name, terms in used.items():
        held = math.fsum(kind.needs.get(name, 0.0) * kind.running for kind in state.kinds)
        if terms:
            problem += pulp.LpAffineExpression(terms) <= state.left.get(name, 0.0) + held
    carried = [(counts[kind.name], kind.capacity_rps) for kind in state.kinds]
    problem += pulp.LpAffineExpression(carried) >= state.rate_rps
    problem.setObjective(pulp.LpAffineExpression(cost))
    values = solve(problem, EXACT).values
    if not values:
        raise PlanInfeasible(
            f"the search for HetSev's optimum ended after {EXACT.max_nodes:,} nodes without a fleet"
        )
    actions = {kind.name: round(values[counts[kind.name].name]) - kind.running for kind in state.kinds}
    return {name: x for name, x in actions.items() if x}
