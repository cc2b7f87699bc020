"""Speed of the central queue's kernel: events/s beside simpy with the same rule, and the time of a matching."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import simpy
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from mark.dispatch.central import decisions
from mark.dispatch.central.kairos import Instances, Timing, Waiting, heterogeneity_weights, match
from mark.simulator.engine import kernel_central as central
from mark.simulator.engine.compiled import CentralKernel, compiled_central_kernel
from scripts.bench.engine import ROUNDS, cache_dir, say

Floats = NDArray[np.float64]

QUERIES = 40_000
"""As many as simpy serves in about a second; the kernel repeats the run to be timed over as long."""
REPEATS = 50
BASE_MS, OTHER_MS = (2.0, 6.0), (4.0, 24.0)
"""Latency of the smallest and of the largest query on the base type and on the other."""
ROWS, SLO_MS, LOAD = 100, 50.0, 0.9


def main() -> None:
    """Run both benches."""
    kernel = compiled_central_kernel(cache_dir())
    bench_events(kernel)
    for queries, machines in ((20, 20), (300, 20), (300, 300)):
        bench_matching(kernel, queries, machines)


def a_pool() -> central.CentralPool:
    """Facts of the base type and of the other."""
    latency = np.array([np.linspace(*ends, ROWS) for ends in (BASE_MS, OTHER_MS)])
    return central.CentralPool(
        timing=Timing(latency, heterogeneity_weights(latency, ROWS - 1)),
        service_ms=latency[:, :, None].copy(),
        best_ms=latency.min(axis=0),
    )


def some_queries(count: int, gap_ms: float) -> central.Queries:
    """Queries of all sizes alike; with a gap of 0 all are there at once."""
    rng = np.random.default_rng(2)
    return central.Queries(
        np.cumsum(rng.exponential(1.0, count) * gap_ms),
        rng.integers(ROWS, size=count),
        np.zeros(count, np.int64),
        np.ones(count),
    )


def some_rules(rule: int, queries: int) -> central.CentralRules:
    """A rule that no miss ends."""
    rules = decisions.Rules(
        rule=rule,
        too_late=decisions.HOLD,
        feasible=decisions.LATEST,
        threshold_row=0,
        slo_ms=SLO_MS,
        admission_factor=0.98,
    )
    return central.CentralRules(rules, most_missed=queries)


def bench_events(kernel: CentralKernel) -> None:
    """First come, first served on eight instances of two types, base first: the kernel and simpy."""
    pool, kinds = a_pool(), np.repeat(np.arange(2), (2, 6))
    rate = sum(1 / pool.timing.latency_ms[kind].mean() for kind in kinds)
    queries = some_queries(QUERIES, 1 / (LOAD * rate))
    rules, work = some_rules(decisions.FCFS, QUERIES), central.make_work(QUERIES, kinds)
    kernel.run(queries, pool, rules, work)  # compiles
    ours, theirs = [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(REPEATS):
            kernel.run(queries, pool, rules, work)
        ours.append(2 * QUERIES * REPEATS / (time.perf_counter() - began))
        began = time.perf_counter()
        finish_ms = run_simpy(queries, pool, kinds.tolist())
        theirs.append(2 * QUERIES / (time.perf_counter() - began))
    assert np.abs(finish_ms - work.finish_ms).max() < 1e-6
    say("central queue, FCFS (events = arrivals + answers)", f"{median(ours) / 1e6:.1f} M events/s", ">= 5")
    say("simpy, the same rule", f"{median(theirs) / 1e6:.3f} M events/s", "")
    say("kernel / simpy, every query answered alike", f"{median(ours) / median(theirs):.0f} x", ">= 30")


def run_simpy(queries: central.Queries, pool: central.CentralPool, kinds: list[int]) -> Floats:
    """The same queue with simpy: a store of queries, and one of idle instances that gives the first in order."""
    env = simpy.Environment()
    waiting, idle = simpy.Store(env), simpy.PriorityStore(env)
    finish_ms = np.zeros(queries.row.size)
    service_ms = pool.service_ms[:, :, 0].tolist()
    rows = queries.row.tolist()

    def serve(machine: int, query: int):  # type: ignore[no-untyped-def]
        yield env.timeout(service_ms[kinds[machine]][rows[query]])
        finish_ms[query] = env.now
        yield idle.put(machine)

    def dispatch():  # type: ignore[no-untyped-def]
        while True:
            query = yield waiting.get()
            machine = yield idle.get()
            env.process(serve(machine, query))

    def source():  # type: ignore[no-untyped-def]
        for query, at in enumerate(queries.arrived_ms.tolist()):
            yield env.timeout(at - env.now)
            yield waiting.put(query)

    for machine in range(len(kinds)):
        idle.put(machine)
    env.process(dispatch())  # type: ignore[no-untyped-call]
    env.process(source())  # type: ignore[no-untyped-call]
    env.run()
    return finish_ms


def bench_matching(kernel: CentralKernel, waiting: int, machines: int) -> None:
    """One decision of Kairos' rule with everything idle: costs, assignment and starts; and SciPy's on the same."""
    pool, kinds = a_pool(), np.repeat(np.arange(2), (machines // 4, machines - machines // 4))
    queries, rules = some_queries(waiting, 0.0), some_rules(decisions.KAIROS, waiting).rules
    known, scratch = decisions.Pool(pool.timing, pool.best_ms.reshape(1, -1)), decisions.make_scratch()
    line = decisions.make_line(waiting, kinds)
    line.queries["row"] = queries.row
    took, scipys = [], []
    for _ in range(1000):
        decisions.open_line(rules, line)
        line.counts[decisions.WAITING] = waiting
        line.places["waiting"] = np.arange(waiting)
        began = time.perf_counter()
        kernel.decide(0.0, known, rules, line, scratch)
        took.append(time.perf_counter() - began)
    asked = Waiting(np.zeros(waiting), queries.row), Instances(kinds, np.zeros(machines))
    for _ in range(5):
        began = time.perf_counter()
        match(*asked, pool.timing, slo_ms=SLO_MS, admission_factor=0.98, solve=linear_sum_assignment)
        scipys.append(time.perf_counter() - began)
    mark = {(20, 20): "<= 50", (300, 20): "<= 1000 partitioned", (300, 300): "<= 1000 partitioned"}
    what = f"matching, {waiting} waiting x {machines} instances"
    say(what, f"{median(took) * 1e6:.0f} us", mark[waiting, machines])
    say(f"{what}, costs in plain Python and SciPy", f"{median(scipys) * 1e6:.0f} us", "")


if __name__ == "__main__":
    main()
