"""Requests that find a queue full: Poisson arrivals, a fixed service time, a wait of w seconds at most.

An arrival is served unless the work before it takes more than w. Up to that limit, work is distributed as it would
be without one, but for a factor: through each level it rises as often as it falls (Daley, "Single-server queueing
systems with uniformly limited queueing time", J. Austral. Math. Soc. 4, 1964). With Erlang's distribution of the
work in an M/D/1 queue, over its value at no work,

    F(v) = sum over j <= v/s of  (r (j s - v))^j / j!  e^(-r (j s - v)),   s = 1 / C
    turned away = 1 - F(w) / (1 + F(w) r / C)

of the arrivals at rate r and capacity C, for r > C too. From a few services on, F is what its slowest term leaves:
(1 - c e^(-y v / s)) / (1 - r / C), where y solves r (e^y - 1) = C y and c = (1 - r / C) / (e^y r / C - 1).

A fleet counts as one server as fast as all of them together. A simulated queue of 1 to 8 servers agrees within a
point (tests/planner/shared/test_mixed_cost.py). Where answers take longer than the wait, fewer are turned away.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

EDGE, STEPS = 8.0, 16
"""Of the table: services on both sides of the arrivals that come within a wait, and how many columns each has."""
OCTAVES, ROWS = (-10, 6), 8
"""Powers of two of the arrivals that come within a wait, and rows of each."""
SUMMED = 3
"""Services up to which F is summed: more terms would cancel out, and the slowest alone is as good."""
NEWTON = 12
"""Steps of Newton's method to y."""

Floats = NDArray[np.float64]


class FullQueue(NamedTuple):
    """Requests turned away in a wait, by arrivals in a wait (rows) and by what is served in one (columns).

    Columns count from EDGE below the arrivals, or from 0. Below the first row it falls in proportion, above the
    last it no longer changes. Left of the first column all above the capacity is turned away, right of the last
    nothing.
    """

    #: Arrivals within a wait, rising, shape (rows,).
    arrivals: Floats
    #: Shape (rows, columns).
    turned_away: Floats


@cache
def full_queue() -> FullQueue:
    """The table, worked out once."""
    arrivals = 2.0 ** np.linspace(*OCTAVES, (OCTAVES[1] - OCTAVES[0]) * ROWS + 1)
    columns = np.linspace(0.0, 2 * EDGE, round(2 * EDGE * STEPS) + 1)
    services = np.maximum(0.0, arrivals[:, None] - EDGE) + columns
    found = arrivals[:, None] * turned_away_share(arrivals[:, None], services)
    found[:, 0] = np.minimum(arrivals, EDGE)
    return FullQueue(arrivals, found)


def turned_away_share(arrivals: Floats, services: Floats) -> Floats:
    """Share of arrivals that are turned away, by those that come, and that are served, within the longest wait.

    Errors below 3e-5. Arrivals are above 0; both are broadcast.
    """
    arrivals, services = np.broadcast_arrays(arrivals, services)
    load = arrivals / np.maximum(services, 1e-9)
    load = np.where(np.abs(load - 1.0) < 1e-5, 1.0 + 1e-5, load)
    y = np.where(
        load < 1.0, np.minimum(2.0 / load - 2.0, 1.0 - 2.0 * np.log(load)), np.maximum(-load, 2.0 - 2.0 * load)
    )
    for _ in range(NEWTON):
        y -= (load * np.expm1(y) - y) / (load * np.exp(y) - 1.0)
    slowest = (1.0 - load) / (load * np.exp(y) - 1.0) * np.exp(np.minimum(-y * services, 300.0))
    long_run = (1.0 - load) * slowest / (1.0 - load * slowest)
    summed = np.zeros_like(load)
    for j in range(SUMMED):
        lacking = np.where(services >= j, load * (j - services), 0.0)
        summed += np.where(
            services >= j, lacking**j / math.factorial(j) * np.exp(np.minimum(-lacking, 300.0)), 0.0
        )
    share: Floats = np.where(services < SUMMED, 1.0 - summed / (1.0 + load * summed), long_run)
    return share


def carried_rps(rates: Floats, weights: Floats, wait_s: float, capacities: Floats) -> Floats:
    """Requests/s that each capacity carries of each row of rates, a mean with those weights.

    rates: shape (rows, n); weights: shape (n,); wait_s: above 0; capacities: shape (m,), rising; returns shape
    (rows, m).
    """
    found = np.zeros((len(rates), len(capacities)))
    _add_carried(found, rates, weights, wait_s, capacities, full_queue())
    return found


@njit(cache=True)
def _add_carried(
    found: Floats, rates: Floats, weights: Floats, wait_s: float, capacities: Floats, queue: FullQueue
) -> None:  # pragma: no cover - compiled
    """Add it to what is found, shape (rows, m)."""
    row = np.empty(queue.turned_away.shape[1])
    for t in range(rates.shape[0]):
        for k in range(rates.shape[1]):
            rate, weight = rates[t, k], weights[k]
            arrivals, scale = rate * wait_s, weight / wait_s
            first = max(0.0, arrivals - EDGE)
            full = _count_below(first / wait_s, capacities)
            some = _count_below((first + 2.0 * EDGE) / wait_s, capacities)
            _fill_row(row, arrivals, queue)
            for i in range(full):
                found[t, i] += weight * capacities[i]
            for i in range(full, some):
                at = (capacities[i] * wait_s - first) * STEPS
                place = np.uint32(max(0, min(int(at), len(row) - 2)))
                lost = row[place] + (at - int(at)) * (row[place + np.uint32(1)] - row[place])
                found[t, i] += scale * (arrivals - lost)
            for i in range(some, len(capacities)):
                found[t, i] += weight * rate


@njit(cache=True)
def _count_below(limit: float, rising: Floats) -> int:  # pragma: no cover - compiled
    low, high = 0, len(rising)
    while low < high:
        middle = (low + high) // 2
        if rising[middle] < limit:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _fill_row(row: Floats, arrivals: float, queue: FullQueue) -> None:  # pragma: no cover - compiled
    """Write what is turned away of so many arrivals in a wait, shape (columns,)."""
    rows, table = queue.arrivals, queue.turned_away
    if arrivals <= rows[0]:
        for i in range(len(row)):
            row[i] = table[0, i] * (arrivals / rows[0])
    else:
        below = min(int((math.log2(arrivals) - OCTAVES[0]) * ROWS), len(rows) - 2)
        part = min(1.0, (arrivals - rows[below]) / (rows[below + 1] - rows[below]))
        for i in range(len(row)):
            row[i] = table[below, i] + part * (table[below + 1, i] - table[below, i])
    row[0] = min(arrivals, EDGE)
