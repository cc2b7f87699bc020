"""The packing problem as an integer program: what no packing is worth more than, for a few models and types.

    max   sum saved[m,k] y[m,k,h]  -  sum cost[h] z[h]  -  sum load[m] a[m,h]
    s.t.  b[m,k] <= sum over h of y[m,k,h] <= b[m,k-1]                   pieces of the levels, from below
          sum over k of width[m,k] y[m,k,h] <= most[m] capacity[m,h] a[m,h]
          sum over m, k of busy[m,k,h,u] y[m,k,h] <= top z[h] - (top - most[n]) a[n,h]   every unit, every n
          y[m,k,h] <= a[m,h] <= z[h],   sum over m of memory[m] a[m,h] <= memory[h]
          a[m,h] + a[n,h] <= 1                                           pairs that may not share
          z, a, b whole

top is the largest most[n]. Where a piece is served in part, the program lets it bring that part of its load, which
is less than it brings: no packing is worth more. Curves must be concave. Hosts are new, and have one device each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
import pulp

from mark.planner.exact.solver import SearchLimits, solve
from mark.planner.shared.packing import HostType, Need

LIMITS = SearchLimits(max_nodes=2_000, relative_gap=1e-3)


def most_worth(needs: Sequence[Need], types: Sequence[HostType], *, hours: float) -> tuple[float, float]:
    """Worth of the best packing found, and what none is worth more than, USD an hour."""
    problem, served, costs = pulp.LpProblem("packing", pulp.LpMinimize), [], []
    parts: dict[tuple[int, int], list[pulp.LpVariable]] = {}
    for t, kind in enumerate(types):
        fits = {m: fit for m, need in enumerate(needs) for fit in need.fits if fit.offering == kind.offering}
        before, top = None, max((needs[m].most_busy for m in fits), default=0.0)
        for h in range(_most_hosts(needs, kind)):
            rented = problem.add_variable(f"z{t}_{h}", cat="Binary")
            if before is not None:
                problem += rented <= before
            before = rented
            costs.append((kind.usd_per_hour + kind.launch_usd / hours) * rented)
            there = {m: problem.add_variable(f"a{t}_{h}_{m}", cat="Binary") for m in fits}
            problem += pulp.lpSum(needs[m].memory_gib * a for m, a in there.items()) <= kind.memory_gib * rented
            busy: list[list[pulp.LpAffineExpression]] = [[] for _ in needs[0].load_rps]
            for m, a in there.items():
                need, fit = needs[m], fits[m]
                problem += a <= rented
                costs.append(need.load_usd / hours * a)
                widths = np.diff(need.levels)
                pieces = [problem.add_variable(f"y{t}_{h}_{m}_{k}", 0, 1) for k in range(len(widths))]
                for k, y in enumerate(pieces):
                    problem += y <= a
                    parts.setdefault((m, k), []).append(y)
                    served.append(float(need.saved_usd_per_hour[k + 1] - need.saved_usd_per_hour[k]) * y)
                    load = np.clip(need.load_rps - need.levels[k], 0.0, widths[k]) / fit.capacity_rps
                    for u in np.flatnonzero(load):
                        busy[u].append(float(load[u]) * y)
                carried = pulp.lpSum(float(w) * y for w, y in zip(widths, pieces, strict=True))
                problem += carried <= need.most_busy * fit.capacity_rps * a
            less = ((top - needs[m].most_busy) * a for m, a in there.items() if needs[m].most_busy < top)
            for terms, cut in product(busy, (0.0, *less)):
                problem += pulp.lpSum(terms) <= top * rented - cut
            for m, n in combinations(there, 2):
                if not _may_share(needs[m], needs[n], fits[m].full_batch_s + fits[n].full_batch_s):
                    problem += there[m] + there[n] <= 1
    for (m, k), pieces in parts.items():
        full = problem.add_variable(f"b{m}_{k}", cat="Binary")
        problem += pulp.lpSum(pieces) <= 1
        problem += pulp.lpSum(pieces) >= full
        problem += pulp.lpSum(parts.get((m, k + 1), [])) <= full
    if not served:
        return 0.0, 0.0
    problem += pulp.lpSum(costs) - pulp.lpSum(served)
    solved = solve(problem, LIMITS)
    return -solved.objective, -solved.bound


def _most_hosts(needs: Sequence[Need], kind: HostType) -> int:
    """More are never worth it."""
    fits = [(need, fit) for need in needs for fit in need.fits if fit.offering == kind.offering]
    able = sum(int(np.ceil(need.levels[-1] / (need.most_busy * fit.capacity_rps))) for need, fit in fits)
    worth = sum(float(need.saved_usd_per_hour[-1]) for need, _ in fits)
    return min(able, int(worth / kind.usd_per_hour))


def _may_share(one: Need, other: Need, both_s: float) -> bool:
    shared = one.team == other.team and not one.alone and not other.alone
    return shared and both_s <= min(one.slo.latency_s, other.slo.latency_s)
