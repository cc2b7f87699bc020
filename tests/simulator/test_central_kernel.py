"""The central queue's kernel: plain, compiled, and a model that shares only the assignment solver with them."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.central import decisions
from mark.dispatch.central.assignment import assign
from mark.dispatch.central.kairos import Timing, heterogeneity_weights
from mark.simulator.engine import kernel_central as central
from mark.simulator.engine.compiled import CentralKernel, plain_central_kernel
from tests.dispatch.central.test_assignment import room_for

RULES = {
    "fcfs": decisions.FCFS,
    "drs": decisions.DRS,
    "clockwork": decisions.CLOCKWORK,
    "kairos": decisions.KAIROS,
    "kairos-published": decisions.PUBLISHED,
}
SLO_MS = 50.0


class Case:
    """Random queries on a random pool. Half of the cases have whole ms, so that much happens at one instant."""

    def __init__(
        self, seed: int, rule: str, too_late: int = decisions.HOLD, feasible: int = decisions.LATEST
    ) -> None:
        rng = np.random.default_rng(seed)
        types, rows, draws = int(rng.integers(1, 4)), int(rng.integers(1, 6)), int(rng.integers(1, 4))
        counts = rng.integers(0, 4, types)
        counts[0] += 1
        whole = bool(rng.integers(2))
        latency = np.sort(rng.uniform(2.0, 45.0, (types, rows)), axis=1)
        queries = int(rng.integers(1, 120))
        gaps = rng.exponential(rng.uniform(1.0, 20.0), queries)
        if whole:
            latency, gaps = np.round(latency), np.round(gaps)
        service = latency[:, :, None] * (rng.uniform(0.7, 1.5, (types, rows, draws)) if rng.integers(2) else 1.0)
        present = [number for number, count in enumerate(counts) if count]
        self.queries = central.Queries(
            np.cumsum(gaps), rng.integers(rows, size=queries), rng.integers(draws, size=queries), np.ones(queries)
        )
        self.kinds = np.repeat(np.arange(types), counts)
        self.pool = central.CentralPool(
            timing=Timing(latency, heterogeneity_weights(latency, rows - 1)),
            service_ms=np.broadcast_to(service, (types, rows, draws)).copy(),
            best_ms=latency[present].min(axis=0),
        )
        self.most_missed = queries
        self.rules = decisions.Rules(
            rule=RULES[rule],
            too_late=too_late,
            feasible=feasible,
            threshold_row=int(rng.integers(-1, rows)) if counts[1:].any() else -1,
            slo_ms=SLO_MS,
            admission_factor=0.98,
        )

    def run(self, kernel: CentralKernel):
        work = central.make_work(self.queries.row.size, self.kinds)
        return self.kernel_run(kernel, work), work.finish_ms

    def kernel_run(self, kernel: CentralKernel, work: central.Work) -> int:
        return kernel.run(self.queries, self.pool, central.CentralRules(self.rules, self.most_missed), work)


class Reference:
    """The same rules, written for reading: an event list, a list of waiting queries, dictionaries."""

    def __init__(self, case: Case) -> None:
        self.queries, self.pool, self.rules = case.queries, case.pool, case.rules
        self.kind = [int(k) for k in case.kinds]
        self.busy: dict[int, float] = {}  # machine: predicted end
        self.bound: dict[int, list[int]] = {}  # lane: queries
        self.waiting: list[int] = []
        self.held: list[int] = []
        self.finish = np.full(case.queries.row.size, np.nan)
        self.events: list[tuple[float, int, int]] = [
            (float(at), 1, number) for number, at in enumerate(case.queries.arrived_ms)
        ]

    def predicted(self, query: int, machine: int) -> float:
        return float(self.pool.timing.latency_ms[self.kind[machine], self.queries.row[query]])

    def run(self):
        heapq.heapify(self.events)
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                _, what, number = heapq.heappop(self.events)
                if what == 0:
                    del self.busy[number]
                else:
                    self.arrive(now, number)
            self.decide(now)
        late = self.finish - self.queries.arrived_ms > SLO_MS
        return int(late.sum() + np.isnan(self.finish).sum()), self.finish

    def aside(self, query: int) -> None:
        if self.rules.too_late != decisions.OVERFLOW:
            self.held.append(query)

    def arrive(self, now: float, query: int) -> None:
        rule = self.rules.rule
        if rule in {decisions.KAIROS, decisions.PUBLISHED}:
            self.waiting.append(query)
        elif rule == decisions.CLOCKWORK:
            ends = {}
            for machine in range(len(self.kind)):
                end = max(now, self.busy.get(machine, now))
                queued = [self.predicted(other, machine) for other in self.bound.get(machine, [])]
                ends[machine] = end + sum(queued) + self.predicted(query, machine)
            limit = self.queries.arrived_ms[query] + 0.98 * SLO_MS
            timely = [machine for machine, end in ends.items() if end <= limit]
            if timely:
                choice = {
                    decisions.EARLIEST: lambda: min(timely, key=lambda m: ends[m]),
                    decisions.LATEST: lambda: max(timely, key=lambda m: ends[m]),
                    decisions.FIRST: lambda: timely[0],
                }[self.rules.feasible]()
            elif self.rules.too_late == decisions.COMMIT:
                choice = min(ends, key=lambda m: ends[m])
            else:
                return self.aside(query)
            self.bound.setdefault(choice, []).append(query)
        else:
            small = rule == decisions.DRS and self.queries.row[query] <= self.rules.threshold_row
            self.bound.setdefault(int(small), []).append(query)
        return None

    def is_handed_on(self, now: float, query: int) -> bool:
        waited, best = now - self.queries.arrived_ms[query], self.pool.best_ms[self.queries.row[query]]
        return self.rules.too_late == decisions.OVERFLOW and bool(waited + best > SLO_MS)

    def lane(self, machine: int) -> int:
        if self.rules.rule == decisions.CLOCKWORK:
            return machine
        return int(self.rules.rule == decisions.DRS and self.kind[machine] > 0)

    def start(self, now: float, query: int, machine: int) -> None:
        kind, row = self.kind[machine], self.queries.row[query]
        self.busy[machine] = now + self.predicted(query, machine)
        self.finish[query] = now + self.pool.service_ms[kind, row, self.queries.draw[query]]
        heapq.heappush(self.events, (float(self.finish[query]), 0, machine))

    def decide(self, now: float) -> None:
        machines = range(len(self.kind))
        if self.rules.rule in {decisions.KAIROS, decisions.PUBLISHED}:
            self.match(now)
        else:
            for machine in machines:
                lane = self.bound.get(self.lane(machine), [])
                if machine in self.busy:
                    continue
                while lane and self.is_handed_on(now, lane[0]):
                    lane.pop(0)
                if lane:
                    self.start(now, lane.pop(0), machine)
        while self.held and not self.waiting:
            query = self.held[0]
            idle = [m for m in machines if m not in self.busy and not self.bound.get(self.lane(m))]
            if not idle:
                break
            weight = self.pool.timing.weight
            self.start(
                now, self.held.pop(0), min(idle, key=lambda m: weight[self.kind[m]] * self.predicted(query, m))
            )

    def match(self, now: float) -> None:
        if len(self.busy) == len(self.kind) or not self.waiting:
            return
        waited = {query: now - self.queries.arrived_ms[query] for query in self.waiting}
        best = {q: min(self.predicted(q, m) for m in range(len(self.kind))) for q in self.waiting}
        if self.rules.too_late != decisions.COMMIT:
            for query in list(self.waiting):
                if waited[query] + best[query] > SLO_MS:
                    self.waiting.remove(query)
                    self.aside(query)
        machines = range(len(self.kind))
        takes = {
            (q, m): max(0.0, self.busy.get(m, now) - now) + self.predicted(q, m)
            for q in self.waiting
            for m in machines
        }
        pairs = min(len(self.waiting), len(machines))
        if not pairs:
            return
        penalty = max(10, pairs) * max(1.0, self.pool.timing.weight.max()) * SLO_MS
        costs = np.array(
            [[self.cost(takes[q, m], waited[q], m, penalty, pairs) for m in machines] for q in self.waiting]
        )
        turned = len(self.waiting) > len(machines)
        room = room_for(max(costs.shape))
        costs = np.ascontiguousarray(costs.T) if turned else costs
        assign(costs, *costs.shape, room)
        queue = list(self.waiting)
        for row in range(pairs):
            column = int(room.column_of[row])
            query, machine = (queue[column], row) if turned else (queue[row], column)
            in_time = waited[query] + takes[query, machine] <= SLO_MS
            if machine not in self.busy and (in_time or self.rules.too_late == decisions.COMMIT):
                self.waiting.remove(query)
                self.start(now, query, machine)

    def cost(self, takes: float, waited: float, machine: int, penalty: float, pairs: int) -> float:
        weight = self.pool.timing.weight[self.kind[machine]]
        if self.rules.rule == decisions.PUBLISHED:
            return weight * (10 * SLO_MS if takes + waited > 0.98 * SLO_MS else takes)
        cost = weight * takes
        if takes + waited > SLO_MS:
            return cost + (pairs + 1) * penalty
        return cost + penalty * (takes + waited > 0.98 * SLO_MS)


CASES = {
    "seed": st.integers(0, 2**32 - 1),
    "rule": st.sampled_from(sorted(RULES)),
    "too_late": st.sampled_from([decisions.HOLD, decisions.COMMIT, decisions.OVERFLOW]),
    "feasible": st.sampled_from([decisions.EARLIEST, decisions.LATEST, decisions.FIRST]),
}


@given(**CASES)
def test_every_query_is_answered_as_by_the_reference(central_kernel, seed, rule, too_late, feasible):
    case = Case(seed, rule, too_late, feasible)
    missed, finish = case.run(central_kernel)
    expected_missed, expected = Reference(case).run()

    np.testing.assert_array_equal(finish, expected)
    assert missed == expected_missed


@pytest.mark.parametrize("rule", RULES)
def test_plain_and_compiled_agree_to_the_last_bit(central_kernel, rule):
    for seed in range(5):
        case = Case(seed, rule)
        plain = case.run(plain_central_kernel())
        machine_code = case.run(central_kernel)

        assert plain[0] == machine_code[0]
        np.testing.assert_array_equal(plain[1], machine_code[1])


def queue_of(queries: int, machines: int, rule: str = "kairos") -> Case:
    """Queries that wait together for one type of instance, each for 10 ms, and an objective of 50 ms."""
    case = Case(0, rule)
    latency = np.array([[10.0]])
    case.queries = central.Queries(
        np.zeros(queries), np.zeros(queries, np.int64), np.zeros(queries, np.int64), np.ones(queries)
    )
    case.kinds = np.zeros(machines, np.int64)
    case.pool = central.CentralPool(Timing(latency, np.ones(1)), latency[:, :, None].copy(), latency[0])
    return case


@pytest.mark.parametrize(("queries", "machines"), [(130, 30), (250, 210), (40, 130)])
def test_beyond_what_is_matched_at_once_all_instances_are_still_used(central_kernel, queries, machines):
    case = queue_of(queries, machines)
    work = central.make_work(queries, case.kinds)
    missed = case.kernel_run(central_kernel, work)

    rounds = np.ceil(np.arange(1, queries + 1) / machines)
    assert sorted(work.finish_ms) == (10.0 * rounds).tolist()
    assert missed == 0
    assert work.line.counts[decisions.PARTITIONED] > 0


def test_a_run_ends_once_too_many_have_missed(central_kernel):
    case = queue_of(100, 2, "fcfs")
    case.most_missed = 5
    work = central.make_work(100, case.kinds)

    assert case.kernel_run(central_kernel, work) == 6
    assert np.isnan(work.finish_ms).sum() == 100 - 16
