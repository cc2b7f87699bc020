"""Kairos' matching of waiting queries to unlike instances (HPDC 2023, section 5.1, Eq. 4-8).

Each pair of a query and an instance costs the time until the instance would have answered it, times the
instance's heterogeneity coefficient: an hour of a fast instance is worth more than one of a slow one. Pairs that
would be late cost so much that none is taken while another pairing has none; as printed (`kairos-published`) a
late pair costs 10 objectives in place of its time, weighed like any other. The pairs of the cheapest assignment
whose instance is idle start; the others wait, and are matched anew at the next arrival or answer.

Sources: the paper (arXiv 2210.05889) and its artifact (boringlee24/hpdc23-kairos fa20590).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PENALTY = 10.0
"""A pair beyond the margin costs so many times the objective (Eq. 8), and more where more than ten pairs are
matched, because ten pairs in time may cost as much as that."""
MOST_MATCHED = 100
"""With more queries or instances than this, parts of so many are matched one after the other."""

Solver = Callable[[Floats], tuple[Ints, Ints]]
"""An assignment solver: costs to rows and their columns, as `scipy.optimize.linear_sum_assignment`."""


class Timing(NamedTuple):
    """Facts of instance types, one row each; times in ms."""

    #: shape (types, rows), predicted latency by row of the profile
    latency_ms: Floats
    #: shape (types,), heterogeneity coefficients
    weight: Floats


class Waiting(NamedTuple):
    """Queries that wait: for how long, ms, and the profile's row of their size. shape (queries,) both."""

    waited_ms: Floats
    row: Ints


class Instances(NamedTuple):
    """Instances: their type, and the predicted ms until each is idle. shape (instances,) both."""

    kind: Ints
    remaining_ms: Floats


def heterogeneity_weights(latency_ms: Floats, largest_row: int, base: int = 0) -> Floats:
    """Coefficient of each type: the base's time for the largest query over the type's own. shape (types,)."""
    weights: Floats = latency_ms[base, largest_row] / latency_ms[:, largest_row]
    return weights


def late_penalty_ms(pairs: int, heaviest: float, slo_ms: float) -> float:
    """Extra cost of a pair beyond the margin: at least any sum of so many pairs within it."""
    return max(PENALTY, float(pairs)) * max(1.0, heaviest) * slo_ms


def fill_costs(
    costs: Floats,
    waiting: Waiting,
    instances: Instances,
    timing: Timing,
    slo_ms: float,
    admission_factor: float,
    is_published: bool = False,
) -> None:
    """Write the cost of each pair into the corner of `costs`, queries as rows where they are the fewer.

    L = remaining + latency. A pair is beyond the margin where L + waited > admission_factor x slo (Eq. 5), and
    late where it is beyond the objective: that costs more than if all other pairs were beyond the margin, so that
    the margin is given up before the objective is. is_published: beyond the margin L is 10 x slo (Eq. 8).
    """
    queries, machines = waiting.row.size, instances.kind.size
    pairs = min(queries, machines)
    # taken out of the tuples once: compiled code counts references at each look into them
    latency_ms, weights, rows, waited_ms = timing.latency_ms, timing.weight, waiting.row, waiting.waited_ms
    kinds, remaining = instances.kind, instances.remaining_ms
    penalty_ms = late_penalty_ms(pairs, weights.max(), slo_ms)
    margin_ms = admission_factor * slo_ms
    for j in range(machines):
        kind, remaining_ms = kinds[j], remaining[j]
        weight = weights[kind]
        for i in range(queries):
            takes_ms = remaining_ms + latency_ms[kind, rows[i]]
            cost = weight * takes_ms
            if is_published:
                if takes_ms + waited_ms[i] > margin_ms:
                    cost = weight * PENALTY * slo_ms
            elif takes_ms + waited_ms[i] > slo_ms:
                cost += (pairs + 1) * penalty_ms
            elif takes_ms + waited_ms[i] > margin_ms:
                cost += penalty_ms
            if queries <= machines:
                costs[i, j] = cost
            else:
                costs[j, i] = cost


def match(
    waiting: Waiting,
    instances: Instances,
    timing: Timing,
    *,
    slo_ms: float,
    admission_factor: float,
    solve: Solver,
) -> list[tuple[int, int]]:
    """Pairs (query, instance) of the cheapest assignment by a solver of one's own."""
    queries, machines = waiting.row.size, instances.kind.size
    few, many = min(queries, machines), max(queries, machines)
    costs = np.empty((few, many))
    fill_costs(costs, waiting, instances, timing, slo_ms, admission_factor)
    rows, columns = solve(costs)
    first, second = (rows, columns) if queries <= machines else (columns, rows)
    return [(int(query), int(machine)) for query, machine in zip(first, second, strict=True)]
