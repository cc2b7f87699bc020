"""HiGHS solves the integer programs that PuLP builds.

A search is bounded by nodes and by the relative gap between the best fleet found and what none can undercut, never
by seconds, and runs on one thread with a fixed seed: the same program has the same answer on any machine, however
busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import highspy
import pulp

from mark.domain.errors import PlanInfeasible

SEED = 1
FEASIBILITY = 1e-9
"""A row or a whole number may be off by this much; HiGHS's own default, 1e-6, is a request/s in a million."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """Limits of a branch-and-bound search, which ends at the first that it reaches."""

    #: Nodes of the search tree.
    max_nodes: int = 200
    #: Distance between the best fleet found and the lower bound, as a share of the fleet's cost.
    relative_gap: float = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A solution: `values` by variable name, its `objective`, and a `bound` that no solution undercuts.

    `nodes` of the search tree were looked at. Without a solution (the search ended too early) `values` is empty
    and `objective` infinite.
    """

    values: Mapping[str, float]
    objective: float
    bound: float
    nodes: int


def solve(problem: pulp.LpProblem, limits: SearchLimits) -> Solved:
    """Minimise a PuLP problem whose costs are not negative. PlanInfeasible if there is no solution or HiGHS fails.

    PuLP's own reading of the result does not recognise a search that ended at its limit of nodes.
    """
    adapter = pulp.HiGHS(
        msg=False,
        threads=1,
        gapRel=limits.relative_gap,
        gapAbs=0.0,
        random_seed=SEED,
        presolve="off",  # the planner reduces its programs itself; HiGHS takes longer over it than it saves
        mip_max_nodes=limits.max_nodes,
        mip_feasibility_tolerance=FEASIBILITY,
        primal_feasibility_tolerance=FEASIBILITY,
    )
    adapter.createAndConfigureSolver(problem)
    adapter.buildSolverModel(problem)
    adapter.callSolver(problem)
    model: highspy.Highs = problem.solverModel
    status, info = model.getModelStatus(), model.getInfo()
    if status not in {highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kSolutionLimit}:
        raise PlanInfeasible(f"HiGHS found no fleet: {model.modelStatusToString(status)}")
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return Solved(values={}, objective=float("inf"), bound=info.mip_dual_bound, nodes=info.mip_node_count)
    columns = model.getSolution().col_value
    return Solved(
        values={item.name: columns[item.index] for item in problem.variables()},
        objective=info.objective_function_value,
        bound=info.mip_dual_bound if problem.isMIP() else info.objective_function_value,
        nodes=info.mip_node_count,
    )
