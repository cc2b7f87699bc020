"""A fixed pool on a central queue: what share of its queries is in time, and the most that it can serve.

No controller and no cloud: queries of drawn sizes arrive, instances of a few types serve one at a time. The same
queries come at every rate (common random numbers), so that bisection looks at one curve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import poisson

from mark.dispatch.central import decisions
from mark.dispatch.central.kairos import Timing, heterogeneity_weights
from mark.dispatch.central.learned import start_learning
from mark.dispatch.central.policy import CentralPolicy, CentralRule
from mark.domain.errors import Misconfigured
from mark.domain.load.sizes import SizeDistribution
from mark.domain.models.latency_table import LatencyTable
from mark.domain.models.objective import Slo
from mark.simulator.engine import kernel_central as central
from mark.simulator.engine.compiled import CentralKernel
from mark.simulator.rng import stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

PRECISION = 0.002
"""Bisection ends when the rate is known to this share of itself: runs of 20,000 queries differ by more."""
MOST_DOUBLINGS = 40
"""A rate that so many doublings do not exhaust has no limit that a replay could find."""
LEAST_FACTOR = 0.05
"""With noise, a query takes at least this share of its predicted time."""


class Arrivals(StrEnum):
    """Gaps between queries: exponential, or Poisson in whole milliseconds as in Kairos' artifact."""

    POISSON = "poisson"
    INTEGER = "integer"


class ServiceTimes(StrEnum):
    """Time of a query: the mean of its row, or one of the row's single timings.

    LEARNED takes the mean too, and the rules know no latency but from answers of the same run (`learned.py`).
    """

    MEAN = "mean"
    SAMPLE = "sample"
    LEARNED = "learned"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLoad:
    """Queries that a pool is judged on."""

    sizes: SizeDistribution
    arrivals: Arrivals = Arrivals.POISSON
    latency: ServiceTimes = ServiceTimes.MEAN
    queries: int = 20_000
    seed: int = 0
    #: standard deviation of a query's time around what is predicted, as a share of it
    noise: float = 0.0
    #: central queues: each has its share of the instances, and of the queries by chance
    gateways: int = 1

    def __post_init__(self) -> None:
        if self.gateways < 1:
            raise Misconfigured(f"a pool needs at least one gateway, not {self.gateways}")
        if self.queries < 1:
            raise Misconfigured(f"a load needs at least one query, not {self.queries}")
        if not 0 <= self.noise < 1:
            raise Misconfigured(f"noise is a share of a query's time in [0, 1), not {self.noise:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRun:
    """Outcome of a pool at one rate."""

    #: Share of all queries that were answered within the objective.
    attained: float
    #: Latency of what was answered; None where the rule is the oracle, which queues nothing.
    latency_ms: Mapping[str, float] | None
    #: Share of the matchings that were done in parts, with more waiting than are matched at once.
    partitioned: float


class _Served(NamedTuple):
    """A run: ms that each answer took, queries that missed, matchings, and those of them done in parts."""

    took_ms: Floats
    missed: int
    matched: int
    partitioned: int

    def __add__(self, other: object) -> _Served:
        assert isinstance(other, _Served)
        return _Served(
            np.concatenate([self.took_ms, other.took_ms]),
            self.missed + other.missed,
            self.matched + other.matched,
            self.partitioned + other.partitioned,
        )


class FixedPool:
    """An evaluator of pools for one model, objective and load."""

    def __init__(self, table: LatencyTable, slo: Slo, load: PoolLoad, *, kernel: CentralKernel) -> None:
        self._table, self._slo, self._load, self._kernel = table, slo, load, kernel
        self._slo_ms = slo.latency_s * 1000
        if load.latency is ServiceTimes.SAMPLE and not table.samples_ms:
            raise Misconfigured(f"the profile of {table.model} has no single timings (columns s0, s1, ...)")
        self._largest_row = table.row(load.sizes.largest)
        self._rows = self._draw_rows()
        timings = len(next(iter(table.samples_ms.values()))[0]) if load.latency is ServiceTimes.SAMPLE else 1
        rng = stream(load.seed, "query times")
        self._draws = rng.integers(timings, size=load.queries)
        self._factors = np.maximum(LEAST_FACTOR, 1.0 + load.noise * rng.standard_normal(load.queries))
        self._gateways = stream(load.seed, "query gateways").integers(load.gateways, size=load.queries)
        arrivals = stream(load.seed, "query arrivals")
        self._gaps = (
            arrivals.standard_exponential(load.queries)
            if load.arrivals is Arrivals.POISSON
            else arrivals.random(load.queries)
        )

    def queries(self, qps: float) -> tuple[Floats, list[int]]:
        """Arrivals in s, rising, and sizes of the load at this rate: what a live service is asked to compare."""
        return self._arrived_ms(qps) / 1000, [self._table.sizes[row] for row in self._rows]

    def run(self, pool: Mapping[str, int], policy: CentralPolicy, qps: float) -> PoolRun:
        """Serve the load at this rate. The first type of the pool is the base."""
        if not (np.isfinite(qps) and qps > 0):
            raise Misconfigured(f"a rate must be above 0 queries/s, not {qps:g}")
        self._table.check_pool(pool)
        if policy.rule is CentralRule.ORACLE:
            return PoolRun(attained=self._oracle_attained(pool, qps), latency_ms=None, partitioned=0.0)
        if policy.rule is CentralRule.DRS and policy.threshold is None:
            policy = self.with_threshold(pool, policy)
        served = self._serve(pool, policy, qps, most_missed=self._load.queries)
        latency_ms = served.took_ms
        return PoolRun(
            attained=1 - served.missed / self._load.queries,
            latency_ms={
                "mean": float(latency_ms.mean()),
                **{f"p{q}": float(np.percentile(latency_ms, q)) for q in (50, 95, 99)},
            }
            if latency_ms.size
            else None,
            partitioned=served.partitioned / served.matched if served.matched else 0.0,
        )

    def allowable_qps(self, pool: Mapping[str, int], policy: CentralPolicy) -> float:
        """The most queries/s of which the objective's share is in time; 0 where no rate is low enough."""
        self._table.check_pool(pool)
        if policy.rule is CentralRule.ORACLE:
            return self.oracle_qps(pool)
        if policy.rule is CentralRule.DRS and policy.threshold is None:
            policy = self.with_threshold(pool, policy)
        most_missed = int(np.floor(self._load.queries * (1 - self._slo.target) + 1e-9))

        def keeps(qps: float) -> bool:
            return self._serve(pool, policy, qps, most_missed=most_missed).missed <= most_missed

        low, high = 0.0, self._full_rate(pool)
        for _ in range(MOST_DOUBLINGS):
            if not keeps(high):
                break
            low, high = high, 2 * high
        least = high * 1e-4
        while high - low > PRECISION * high and high > least:
            middle = (low + high) / 2
            low, high = (middle, high) if keeps(middle) else (low, middle)
        return low

    def with_threshold(self, pool: Mapping[str, int], policy: CentralPolicy) -> CentralPolicy:
        """DeepRecSys' threshold for this pool, found by hill climbing over the profile's sizes.

        From the largest size that every type answers in time the climb goes up or down while the allowable rate
        grows, by steps that halve where neither way is better.
        """
        sizes, found = self._table.sizes, dict[int, float]()

        def rate(row: int) -> float:
            if row not in found:
                found[row] = self.allowable_qps(pool, replace(policy, threshold=sizes[row]))
            return found[row]

        kinds = _kinds(pool)
        fits = [
            row for row in range(len(sizes)) if all(self._table.mean_ms[k][row] <= self._slo_ms for k in kinds)
        ]
        at, step = max(fits, default=0), max(1, len(sizes) // 8)
        while step:
            better = max((max(0, at - step), min(len(sizes) - 1, at + step)), key=rate)
            if rate(better) > rate(at):
                at = better
            else:
                step //= 2
        return replace(policy, threshold=sizes[at])

    def oracle_qps(self, pool: Mapping[str, int]) -> float:
        """The most that a scheme which answers every query could serve: nothing waits, all work is known.

        A linear program over the drawn queries: each size is split over the types, in time on a type that answers
        it within the objective and late on others; the late ones are at most the share that may miss.
        """
        kinds, shares = _kinds(pool), self._shares()
        latency = self._latency(kinds)
        types, rows = latency.shape
        in_time = latency <= self._slo_ms
        # variables: in time by type and row, late by type and row, and the time that one query takes the pool
        cells = types * rows
        busy = np.zeros((types, 2 * cells + 1))
        for kind, count in enumerate(pool[name] for name in kinds):
            busy[kind, kind * rows : (kind + 1) * rows] = latency[kind]
            busy[kind, cells + kind * rows : cells + (kind + 1) * rows] = latency[kind]
            busy[kind, -1] = -count
        late = np.zeros((1, 2 * cells + 1))
        late[0, cells : 2 * cells] = 1.0
        served = np.hstack([np.tile(np.eye(rows), (1, 2 * types)), np.zeros((rows, 1))])
        bounds = [(0.0, None if fits else 0.0) for fits in in_time.ravel()] + [(0.0, None)] * (cells + 1)
        solved = linprog(
            np.eye(1, 2 * cells + 1, 2 * cells).ravel(),
            A_ub=np.vstack([busy, late]),
            b_ub=[*np.zeros(types), 1 - self._slo.target],
            A_eq=served,
            b_eq=shares,
            bounds=bounds,
        )
        return 1000 / solved.fun if solved.fun else 0.0

    def _oracle_attained(self, pool: Mapping[str, int], qps: float) -> float:
        """The largest share that could be in time at this rate, if the others took no time at all."""
        kinds, shares = _kinds(pool), self._shares()
        latency = self._latency(kinds)
        types, rows = latency.shape
        busy = np.zeros((types, types * rows))
        for kind in range(types):
            busy[kind, kind * rows : (kind + 1) * rows] = latency[kind]
        solved = linprog(
            np.full(types * rows, -1.0),
            A_ub=np.vstack([busy, np.tile(np.eye(rows), (1, types))]),
            b_ub=[*(pool[name] * 1000 / qps for name in kinds), *shares],
            bounds=[(0.0, None if fits else 0.0) for fits in (latency <= self._slo_ms).ravel()],
        )
        return min(1.0, -solved.fun) if solved.fun else 0.0

    def _serve(self, pool: Mapping[str, int], policy: CentralPolicy, qps: float, *, most_missed: int) -> _Served:
        """One run at a rate; it ends once more than so many have missed."""
        arrived_ms = self._arrived_ms(qps)
        served = _Served(np.empty(0), 0, 0, 0)
        for number in range(self._load.gateways):
            if served.missed > most_missed:
                break
            part = self._gateways == number
            counts = _share(pool, number, self._load.gateways)
            served += self._serve_share(counts, policy, arrived_ms, part, most_missed - served.missed)
        return served

    def _serve_share(
        self, pool: Mapping[str, int], policy: CentralPolicy, arrived_ms: Floats, part: Bools, most_missed: int
    ) -> _Served:
        """One gateway's part of the queries on its share of the instances. part: shape (queries,)."""
        base = next(iter(pool))
        named = [base, *(kind for kind in _kinds(pool) if kind != base)]
        counts = [pool[kind] for kind in named]
        latency = self._latency(named)
        sampled = self._load.latency is ServiceTimes.SAMPLE
        samples = [self._table.samples_ms[kind] for kind in named] if sampled else latency[:, :, None]
        present = [number for number, count in enumerate(counts) if count]
        threshold_row = None if policy.threshold is None else self._table.row(policy.threshold)
        rules = decisions.rules_of(
            policy, slo_ms=self._slo_ms, threshold_row=threshold_row, base=counts[0], others=sum(counts[1:])
        )
        timing, best_ms = (
            Timing(latency, heterogeneity_weights(latency, self._largest_row)),
            latency[present].min(axis=0),
        )
        learning = central.KNOWN
        if self._load.latency is ServiceTimes.LEARNED:
            timing, best_ms = Timing(np.zeros_like(latency), np.ones(len(named))), np.zeros_like(best_ms)
            learning = start_learning(len(named), np.array(self._table.sizes, dtype=np.float64))
        arrived_ms = arrived_ms[part]
        work = central.make_work(arrived_ms.size, np.repeat(np.arange(len(named)), counts))
        missed = self._kernel.run(
            central.Queries(arrived_ms, self._rows[part], self._draws[part], self._factors[part]),
            central.CentralPool(
                timing=timing,
                service_ms=np.require(samples, np.float64, ["C", "W"]),  # read-only ones have code of their own
                best_ms=best_ms,
                learning=learning,
            ),
            central.CentralRules(rules, most_missed),
            work,
        )
        took_ms = (work.finish_ms - arrived_ms)[~np.isnan(work.finish_ms)]
        matched, parts = (int(work.line.counts[place]) for place in (decisions.MATCHED, decisions.PARTITIONED))
        return _Served(took_ms, missed, matched, parts)

    def _latency(self, kinds: list[str]) -> Floats:
        """Predicted latency, ms. shape (types, rows)."""
        return np.array([self._table.mean_ms[kind] for kind in kinds])

    def _shares(self) -> Floats:
        """Share of the drawn queries by row. shape (rows,)."""
        return np.bincount(self._rows, minlength=len(self._table.sizes)) / self._load.queries

    def _full_rate(self, pool: Mapping[str, int]) -> float:
        """Queries/s at which every instance is always busy."""
        kinds = _kinds(pool)
        mean_ms = self._latency(kinds) @ self._shares()
        return float(sum(1000 * pool[kind] / mean for kind, mean in zip(kinds, mean_ms, strict=True)))

    def _draw_rows(self) -> Ints:
        """Rows of the drawn sizes, by inverse transform from a random stream of their own."""
        sizes = self._load.sizes
        drawn = stream(self._load.seed, "query sizes").random(self._load.queries)
        places = np.searchsorted(sizes.cumulative, drawn, side="right")
        return np.array([self._table.row(size) for size in sizes.sizes])[places]

    def _arrived_ms(self, qps: float) -> Floats:
        gap_ms = 1000 / qps
        if self._load.arrivals is Arrivals.POISSON:
            return np.cumsum(self._gaps * gap_ms)
        return np.cumsum(poisson.ppf(self._gaps, gap_ms))


def _share(pool: Mapping[str, int], number: int, gateways: int) -> dict[str, int]:
    """One gateway's instances: they are dealt in turn, type after type."""
    if sum(pool.values()) < gateways:
        raise Misconfigured(f"{gateways} gateways cannot share {sum(pool.values())} instances")
    share, dealt = dict[str, int](), 0
    for kind, count in pool.items():
        share[kind] = sum((dealt + turn) % gateways == number for turn in range(count))
        dealt += count
    return share


def _kinds(pool: Mapping[str, int]) -> list[str]:
    """Types that the pool has instances of."""
    return [kind for kind, count in pool.items() if count]
