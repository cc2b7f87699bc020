"""The best that any schedule could do with requests that are all known: SuperServe's zero-one program.

For small instances, as a yardstick of rules that know no future (SuperServe, NSDI 2025, section 4.1). Time is in
whole ticks; batches that are moved to an earlier start stay feasible, so whole starts lose nothing. All requests
have the same time to be answered. Then batches can be taken as runs of neighbours by arrival: of two requests in
two batches, or one in a batch and one in none, the earlier can go to the batch that ends first, and nothing
comes late.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from mark.domain.errors import Misconfigured


def best_utility(
    arrived: Sequence[int],
    latency: Sequence[Sequence[int]],
    accuracies: Sequence[float],
    *,
    workers: int,
    slo: int,
) -> float:
    """The largest sum of accuracies over the requests that are answered in time.

    arrived: ticks, rising. latency: ticks by variant and batch of 1, 2, ... requests. accuracies: by variant. slo:
    ticks from arrival to the latest answer.
    """
    if not all(whole == int(whole) for row in (arrived, *latency) for whole in row):
        raise Misconfigured("arrivals and latencies are whole ticks")
    requests = len(arrived)
    # A choice: the first request, the batch, the start, the ticks it takes, and what it is worth.
    choices = [
        (first, batch, start, latency[variant][batch - 1], accuracies[variant] * batch)
        for variant in range(len(accuracies))
        for batch in range(1, len(latency[variant]) + 1)
        for first in range(requests - batch + 1)
        for start in range(
            int(arrived[first + batch - 1]), int(arrived[first]) + slo - latency[variant][batch - 1] + 1
        )
    ]
    if not choices:
        return 0.0
    origin = int(arrived[0])
    cells = [(row, place) for place, one in enumerate(choices) for row in range(one[0], one[0] + one[1])]
    cells += [
        (requests + tick - origin, place)
        for place, one in enumerate(choices)
        for tick in range(one[2], one[2] + one[3])
    ]
    rows, columns = np.array(cells).T
    limits = np.concatenate((np.ones(requests), np.full(int(rows.max()) + 1 - requests, workers)))
    matrix = coo_array((np.ones(len(cells)), (rows, columns)), shape=(limits.size, len(choices)))
    solved = milp(
        [-one[4] for one in choices],
        constraints=LinearConstraint(matrix.tocsc(), ub=limits),
        integrality=np.ones(len(choices), np.int64),
        bounds=Bounds(0, 1),
    )
    assert solved.status == 0, solved.message
    return float(-solved.fun)
