"""The central queue's inner loop: the clock and the truth around the decisions of `dispatch/central/decisions.py`.

Plain Python over arrays that the caller owns, compiled by `compiled.py`. All times are ms. An instance serves one
query at a time. What happens at one instant happens together: answers, then arrivals, then one decision. The rules
see predicted times (`latency_ms`), the clock the true ones (`service_ms`), from which the rules may learn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mark.dispatch.central.decisions import (
    DROPPED,
    HELD,
    IDLE,
    STARTED,
    WAITING,
    Line,
    Pool,
    Rules,
    Scratch,
    begin_lanes,
    begin_waiting,
    join,
    make_line,
    make_scratch,
    open_line,
)
from mark.dispatch.central.kairos import Timing
from mark.dispatch.central.learned import Learning, learn, start_learning
from mark.simulator.engine.kernel_tally import Floats, Ints


class Queries(NamedTuple):
    """Queries in order of arrival. shape (queries,) each."""

    arrived_ms: Floats
    #: row of the profile that its size takes
    row: Ints
    #: which of the cell's timings it takes
    draw: Ints
    #: noise on its time
    factor: Floats


KNOWN = start_learning(0, np.zeros(0))
"""Predicted times that stay as they are."""


class CentralPool(NamedTuple):
    """Instances and what is known of their types; the base type is number 0."""

    timing: Timing
    #: shape (types, rows, timings), what a query truly takes before noise
    service_ms: Floats
    #: shape (rows,), the least predicted latency on any instance of the pool
    best_ms: Floats
    learning: Learning = KNOWN


class CentralRules(NamedTuple):
    """Inputs that do not change during a run."""

    rules: Rules
    #: the run ends when more than this have missed the objective
    most_missed: int


class Work(NamedTuple):
    """The outcome in `finish_ms`, and room to work in."""

    #: shape (queries,): nan where a query was handed on, or where the run ended before
    finish_ms: Floats
    #: shape (instances,): true end of the query in service, inf where idle
    done_ms: Floats
    #: shape (instances,): the query in service
    serving: Ints
    line: Line
    scratch: Scratch


def make_work(queries: int, kinds: Ints) -> Work:
    """Room for a run of so many queries on instances of these types. kinds: shape (instances,)."""
    return Work(
        finish_ms=np.empty(queries),
        done_ms=np.empty(kinds.size),
        serving=np.zeros(kinds.size, np.int64),
        line=make_line(queries, kinds),
        scratch=make_scratch(),
    )


def run(queries: Queries, pool: CentralPool, limits: CentralRules, work: Work) -> int:
    """Serve all queries, or stop once too many have missed; returns how many have missed so far."""
    rules, line, known = limits.rules, work.line, Pool(pool.timing, pool.best_ms.reshape(1, -1))
    open_line(rules, line)
    # taken out of their tuples once: compiled code counts references at each look into them
    arrived_ms, rows, draws, factors = queries.arrived_ms, queries.row, queries.draw, queries.factor
    latency_ms, service_ms, done_ms, finish_ms = (
        pool.timing.latency_ms,
        pool.service_ms,
        work.done_ms,
        work.finish_ms,
    )
    counts, machines, asked, places = line.counts, line.machines, line.queries, line.places
    done_ms[:] = np.inf
    finish_ms[:] = np.nan
    for number in range(arrived_ms.size):
        asked[number].arrived_ms = arrived_ms[number]
        asked[number].row = rows[number]
    total, at, ended, missed, due_ms = arrived_ms.size, 0, 0, 0, np.inf
    while ended < total and missed <= limits.most_missed:
        now = min(arrived_ms[at], due_ms) if at < total else due_ms
        if due_ms <= now:
            due_ms = np.inf
            for machine in range(machines.size):
                if done_ms[machine] <= now:
                    if pool.learning.sizes.size > 0:
                        _take_in(work.serving[machine], machine, queries, pool, line)
                    done_ms[machine] = np.inf
                    machines[machine].idle = 1
                    counts[IDLE] += 1
                    ended += 1
                else:
                    due_ms = min(due_ms, done_ms[machine])
        while at < total and arrived_ms[at] <= now:
            join(now, at, latency_ms, rules, line)
            at += 1
        begin_lanes(now, known, rules, line)
        if counts[WAITING] > 0 or counts[HELD] > 0:
            begin_waiting(now, known, rules, line, work.scratch)
        for number in range(counts[STARTED]):
            query, machine = places[number].query, places[number].machine
            done = now + service_ms[machines[machine].kind, rows[query], draws[query]] * factors[query]
            done_ms[machine] = done
            work.serving[machine] = query
            finish_ms[query] = done
            due_ms = min(due_ms, done)
            missed += done - arrived_ms[query] > rules.slo_ms
        missed += counts[DROPPED]
        ended += counts[DROPPED]
        counts[DROPPED] = 0
    return int(missed)


def _take_in(query: int, machine: int, queries: Queries, pool: CentralPool, line: Line) -> None:
    """Learn from an answer."""
    kind, row = line.machines[machine].kind, queries.row[query]
    learn(
        kind,
        row,
        pool.service_ms[kind, row, queries.draw[query]] * queries.factor[query],
        pool.learning,
        pool.timing,
    )
    best_ms, latency_ms = pool.best_ms, pool.timing.latency_ms
    best_ms[:] = np.inf
    for number in range(line.machines.size):
        if number > 0 and line.machines[number].kind == line.machines[number - 1].kind:
            continue
        for other in range(best_ms.size):
            best_ms[other] = min(best_ms[other], latency_ms[line.machines[number].kind, other])
