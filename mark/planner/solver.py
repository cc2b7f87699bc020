"""Solvers of the integer programs that PuLP builds: a port and its two adapters, HiGHS and CBC.

A search is bounded by nodes and by the relative gap between the best fleet found and what none can undercut, never
by seconds, and runs on one thread with a fixed seed: the same program has the same answer on any machine, however
busy. HiGHS solves in memory and is the default. CBC is a program of its own that PuLP feeds with files in the
temporary folder: it is there to check HiGHS, not for a service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import highspy
import pulp

from mark.domain.errors import PlanInfeasible

SEED = 1
FEASIBILITY = 1e-9
"""A row or a whole number may be off by this much; the solvers' own default, 1e-6, is a request/s in a million."""


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

    `nodes` of the search tree were looked at; None where the solver does not say. Without a solution (the search
    ended too early) `values` is empty and `objective` infinite.
    """

    values: Mapping[str, float]
    objective: float
    bound: float
    nodes: int | None


class MilpSolver(Protocol):
    """Minimises a PuLP problem whose costs are not negative."""

    def solve(self, problem: pulp.LpProblem, limits: SearchLimits) -> Solved:
        """The best solution found. PlanInfeasible where there is none, or where the solver fails."""
        ...


class HighsSolver:
    """HiGHS, in memory."""

    def solve(self, problem: pulp.LpProblem, limits: SearchLimits) -> Solved:
        """Solve; PuLP's own reading of the result does not know a search that ended at its nodes."""
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
            return _unsolved(info.mip_dual_bound, info.mip_node_count)
        columns = model.getSolution().col_value
        return Solved(
            values={item.name: columns[item.index] for item in problem.variables()},
            objective=info.objective_function_value,
            bound=info.mip_dual_bound if problem.isMIP() else info.objective_function_value,
            nodes=info.mip_node_count,
        )


class CbcSolver:
    """CBC, the program that PuLP brings along. It does not report its bound: see `solve`."""

    def solve(self, problem: pulp.LpProblem, limits: SearchLimits) -> Solved:
        """Solve. The bound is the requested gap below a proven solution, and that of the relaxation otherwise."""
        found = self._run(
            problem, gapRel=limits.relative_gap, gapAbs=0.0, maxNodes=limits.max_nodes, options=_TOLERANCES
        )
        if problem.sol_status == pulp.LpSolutionOptimal:
            return Solved(
                values=found,
                objective=float(pulp.value(problem.objective)),
                bound=float(pulp.value(problem.objective)) * (1.0 - limits.relative_gap),
                nodes=None,
            )
        if problem.sol_status == pulp.LpSolutionInfeasible:
            raise PlanInfeasible("CBC found no fleet: infeasible")
        solved = problem.sol_status == pulp.LpSolutionIntegerFeasible
        objective = float(pulp.value(problem.objective)) if solved else 0.0
        self._run(problem, mip=False, options=_TOLERANCES)
        bound = float(pulp.value(problem.objective))
        return (
            Solved(values=found, objective=objective, bound=bound, nodes=None)
            if solved
            else _unsolved(bound, None)
        )

    def _run(self, problem: pulp.LpProblem, **options: Any) -> dict[str, float]:
        """PuLP's own run. COIN_CMD with the path of the program: PULP_CBC_CMD itself is deprecated."""
        try:
            problem.solve(pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, msg=False, **options))
        except (pulp.PulpSolverError, OSError) as error:
            raise PlanInfeasible(f"CBC could not be run: {error}; use HiGHS") from error
        return {item.name: item.varValue or 0.0 for item in problem.variables()}


_TOLERANCES = [f"primalT {FEASIBILITY}", f"integerT {FEASIBILITY}", f"randomSeed {SEED}", f"randomCbcSeed {SEED}"]


def _unsolved(bound: float, nodes: int | None) -> Solved:
    return Solved(values={}, objective=float("inf"), bound=bound, nodes=nodes)
