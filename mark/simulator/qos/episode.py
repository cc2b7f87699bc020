"""A stream of queries on a pool of devices, one decision at a time, over the kernel of variants.

The kernel stops when a device is free and a query waits; between two decisions it runs on by itself. Queries wait
in the order of their deadlines, and one that nobody can answer before its hard deadline any more leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.cloudmodel.noise import noise_factors
from mark.cloudmodel.world import TYPICAL
from mark.dispatch.variants.qos import BIN_S, HARD_S, SOFT_S, QosChoice, QosPool, QosState, response_quality
from mark.dispatch.variants.qos_policy import QosNetwork, action_count, feature_count
from mark.dispatch.variants.slackfit import Choices, plainly
from mark.simulator.engine import kernel_variants as kernels
from mark.simulator.engine.compiled import VariantKernel
from mark.simulator.engine.kernel_qos import Played, Stream, recent_rate, rest_times, time_left
from mark.simulator.request_streams import arrivals_of_rates
from mark.simulator.rng import stream

Floats = NDArray[np.float64]
Scheduler = Callable[[QosState, QosPool], QosChoice]

UPSTREAM_LEAST_S, UPSTREAM_SHAPE = 0.05, 2.5
"""Pareto delay of the network before a query arrives: assumed, the paper fits it to LTE and states no figures."""
NOISE_CV = TYPICAL.service_cv
"""Variation of a batch's time: assumed, the paper states no spread."""
NOISES = 1 << 14
CLOCK_S = 0.01
"""Step of the clock that decides whether or not a device is free: the paper's step of queries."""
_NO_TABLE = plainly(Choices(np.zeros((1, 1, 1), np.int64), np.zeros((1, 1, 1), np.int64), 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Conditions that a pool meets beside its load. The defaults are those of the paper's pools.

    A pool counts in seconds of its own, of which the soft deadline is SOFT_S.
    """

    #: seconds of the trace in one of the pool's
    unit_s: float = 1.0
    #: the network's delay before each query arrives, in the pool's seconds; None draws one for each, as above
    network_s: float | None = None
    #: coefficient of variation of a batch's time
    noise_cv: float = NOISE_CV
    #: whether a query leaves that nobody can answer before its hard deadline
    drop_late: bool = True


PAPER = Conditions()


@dataclass(frozen=True, slots=True, kw_only=True)
class QosQueries:
    """Queries in order of arrival. sent_s, arrived_s: shape (queries,)."""

    sent_s: Floats
    arrived_s: Floats


def draw_queries(
    rates_qps: Floats, edges_s: Floats, rng: np.random.Generator, network_s: float | None = None
) -> QosQueries:
    """Poisson queries of these rates; there may be none.

    rates_qps: shape (steps,); edges_s: shape (steps + 1,). network_s: delay before each; None draws one for each.
    """
    sent_s = arrivals_of_rates(rates_qps, edges_s, 1.0, rng)
    if network_s is not None:
        return QosQueries(sent_s=sent_s, arrived_s=sent_s + network_s)
    arrived_s = sent_s + UPSTREAM_LEAST_S * (1 + rng.pareto(UPSTREAM_SHAPE, sent_s.size))
    order = np.argsort(arrived_s, kind="stable")
    return QosQueries(sent_s=sent_s[order], arrived_s=arrived_s[order])


@dataclass(frozen=True, slots=True, kw_only=True)
class QosRun:
    """Outcome of a stream under a scheduler."""

    #: shape (queries,): quality of each response, 0 where there was none in time
    quality: Floats
    #: shape (queries,): end of each answer since the soft deadline, NaN where there was none
    over_s: Floats
    #: queries that the least accurate variant answered, and all that were answered
    small: int
    answered: int
    decisions: int
    #: decisions of a clock that asks every device each CLOCK_S, in the same time
    clock_decisions: int


class QosEpisode:
    """One stream on one pool. `advance` to the next decision, read `state`, then `decide`, until it ends."""

    def __init__(
        self,
        pool: QosPool,
        queries: QosQueries,
        kernel: VariantKernel,
        seed: int,
        conditions: Conditions = PAPER,
    ) -> None:
        self.pool, self._queries, self._kernel = pool, queries, kernel
        self._kappa = np.array(pool.kappa)
        devices, total = pool.kind_of.size, queries.sent_s.size
        normals = stream(seed, "batch times").standard_normal(NOISES)
        self._soft_s = queries.sent_s + SOFT_S
        self._stream = Stream(
            kernels.Requests(queries.arrived_s, self._soft_s, queries.sent_s + HARD_S, np.zeros(total, np.int64)),
            kernels.Workers(
                kind=pool.kind_of,
                from_s=np.zeros(devices),
                until_s=np.full(devices, np.inf),
                latency_s=pool.latency_s,
                noise=np.array(noise_factors(conditions.noise_cv, normals.tolist())),
            ),
            _NO_TABLE,
            kernels.VariantRules(asks=True, drop_late=conditions.drop_late, wait_s=BIN_S),
        )
        self._work = kernels.make_work(total, devices, pool.sizes[-1])
        self._before = self._took = 0
        self._device = 0
        self._ends_s = np.zeros(devices)  # as expected, of each device's batch

    @property
    def now(self) -> float:
        """The clock."""
        return float(self._work.clock[0])

    def advance(self) -> bool:
        """Run on until a device asks; False once all queries have left."""
        self._before = int(self._work.counts[kernels.DROPPED])
        asks = bool(self._kernel.run(*self._stream, self._work) == kernels.ASK)
        if asks:
            self._device = int(self._work.counts[kernels.ASKED])
        return asks

    def state(self) -> QosState:
        """Facts for the decision that is due."""
        requests, workers, _, _ = self._stream
        return QosState(
            kind=int(self.pool.kind_of[self._device]),
            left_s=time_left(requests, self._work),
            rate_qps=recent_rate(requests, self._work),
            rest_s=rest_times(self._ends_s, workers, self._work),
        )

    def play(self, network: QosNetwork, noise: Floats) -> Played:
        """Play the stream from its beginning by the learned scheduler. noise: shape (draws, actions)."""
        pool, total = self.pool, self._queries.sent_s.size
        waits = pool.waits * pool.kind_of.size * (total + int(self._queries.arrived_s[-1] / BIN_S) + 1)
        most = total + waits
        inputs, actions = feature_count(pool), action_count(pool)
        room = Played(
            features=np.empty((most, inputs)),
            allowed=np.empty((most, actions), np.bool_),
            usual=np.empty(most, np.int64),
            action=np.empty(most, np.int64),
            at_s=np.empty(most),
            ends=np.empty(most, np.int64),
            quality=np.zeros(total),
        )
        made = self._kernel.play(self._stream, self._work, pool.tables, network, noise, room)
        return Played._make((*(part[:made] for part in room[:-1]), room.quality))

    def decide(self, choice: QosChoice) -> tuple[bool, Floats]:
        """Carry a choice out and advance: whether another is due, and the quality of each response of this one.

        Each query that left without an answer since is a response of quality 0. shape (responses,).
        """
        device, work = self._device, self._work
        batch = min(choice.batch, self.pool.sizes[-1])
        taken = min(batch, int(work.counts[kernels.QUEUED]))
        self._ends_s[device] = self.now + self.pool.latency_s[self.pool.kind_of[device], choice.variant, taken]
        work.choice[:] = batch, choice.variant
        asks = self.advance()
        left = np.zeros(int(work.counts[kernels.DROPPED]) - self._before)
        return asks, np.concatenate((self._quality(work.held[device, :taken]), left))

    def run(self) -> QosRun:
        """The outcome, once all queries have left."""
        work = self._work
        everything = np.arange(work.variant.size)
        return QosRun(
            quality=self._quality(everything),
            over_s=work.finish_s - self._soft_s,
            small=int((work.variant == 0).sum()),
            answered=int((work.variant >= 0).sum()),
            decisions=int(work.counts[kernels.DECISIONS]),
            clock_decisions=round(self.now / CLOCK_S) * self.pool.kind_of.size,
        )

    def _quality(self, queries: NDArray[np.int64]) -> Floats:
        delay_s = self._work.finish_s[queries] - self._queries.sent_s[queries]
        return response_quality(delay_s, self._work.variant[queries], self._kappa)


def serve_queries(
    pool: QosPool,
    queries: QosQueries,
    scheduler: Scheduler,
    *,
    kernel: VariantKernel,
    seed: int,
    conditions: Conditions = PAPER,
) -> QosRun:
    """Serve a stream under a scheduler."""
    episode = QosEpisode(pool, queries, kernel, seed, conditions)
    asks = episode.advance()
    while asks:
        asks, _ = episode.decide(scheduler(episode.state(), pool))
    return episode.run()
