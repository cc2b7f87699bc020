"""Rules that weigh quality in an agent: the decisions of `mark.dispatch`, from what waits and what came lately."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from mark.dispatch.variants.qos import (
    RATE_WINDOW_S,
    QosChoice,
    QosRule,
    QosState,
    arrival_rate,
    fixed_pair,
    heuristic_pair,
)
from mark.dispatch.variants.qos_policy import LearnedScheduler, network_of
from mark.dispatch.variants.serving import VariantServing


class QualityRule:
    """The rule of one agent, whose variants are those of one type.

    horizon_s: from a request's arrival to its deadline, the objective. clock: seconds, by which a decision of the
    learned rule that takes too long is the heuristic's.
    """

    def __init__(
        self, serving: VariantServing, horizon_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        tables = serving.qos_tables()
        assert tables is not None, "asked of rules that weigh quality"
        self._tables, self._rule = tables, serving.dispatch.rule
        self._horizon_s, self._soft_s = horizon_s, serving.deadlines.soft_s
        self.learned = LearnedScheduler(network_of(serving.weights), clock) if serving.weights else None
        self._taken: deque[float] = deque()  # arrivals of what is answered

    def choose(self, deadlines_at: Sequence[float], now: float, slower: float = 1.0) -> QosChoice:
        """Batch and variant, from the floor on. slower: what the machine takes, as a share of its profile."""
        unit_s, queued = self._soft_s, len(deadlines_at)
        arrived = np.sort(np.array(deadlines_at)) - self._horizon_s
        if self._rule is QosRule.FIXED:
            return QosChoice(*fixed_pair(queued, self._tables.kappa.size))
        while self._taken and self._taken[0] < now - RATE_WINDOW_S * unit_s:
            self._taken.popleft()
        ring = np.sort(np.concatenate(([-np.inf], self._taken, arrived)))  # before the first one there was none
        rate = arrival_rate(ring, 0, ring.size, now, RATE_WINDOW_S * unit_s) * unit_s
        state = QosState(0, (arrived + self._soft_s - now) / unit_s, rate, np.zeros(1))
        tables = self._tables
        if slower != 1.0:
            tables = tables._replace(latency_s=tables.latency_s * slower, price=tables.price / slower)
        if self.learned is not None:
            return self.learned.decide(state, tables)
        return QosChoice(*heuristic_pair(*state, tables))

    def note(self, deadlines_at: Iterable[float]) -> None:
        """Take in that requests with these deadlines are answered now."""
        self._taken.extend(at - self._horizon_s for at in deadlines_at)
