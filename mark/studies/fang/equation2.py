"""The paper's heuristic as printed: Eq. 2 and the choice of a simplified model by Q_B.

The batch is the smallest of Table 1 with B >= [alpha x D x R + (1 - alpha) x N] x beta x xi, D the delay of that
batch of the most accurate model, R the arrival rate, N the queries that wait, xi the device's share. From a
threshold on, the simplified model with the largest Q_B = kappa x sum of Q over the batch takes it.

The text leaves open whether the threshold of 8 itself counts. `literal` is "not less than 8", as it says; with
`above-8` a batch of 8 is still the accurate model's, as the published shares of the simplified one suggest.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mark.dispatch.variants.qos import QosChoice, QosPool, QosState

ALPHA = 0.5
"""The paper's weight of what arrives during a batch."""
THRESHOLD = 8
BETAS = (0.25, 0.4, 0.5, 0.6, 0.75, 1.0, 1.5)
"""Values of beta that are tried on the learned days; the paper found 0.5 on its own."""


class Reading(StrEnum):
    """Readings of the threshold."""

    LITERAL = "heuristic-literal"
    ABOVE = "heuristic-above-8"


@dataclass(frozen=True, slots=True)
class Equation2:
    """The scheduler of a reading and a beta."""

    reading: Reading
    beta: float

    def __call__(self, state: QosState, pool: QosPool) -> QosChoice:
        """Choose."""
        latency_s, best = pool.latency_s[state.kind], len(pool.kappa) - 1
        known = [size for size in pool.sizes if latency_s[best, size] < float("inf")]
        batch = next((size for size in known if size >= self._need(state, pool, latency_s[best, size])), known[-1])
        if batch < THRESHOLD or (batch == THRESHOLD and self.reading is Reading.ABOVE):
            return QosChoice(batch, best)
        left_s = state.left_s[:batch]

        def worth(variant: int) -> float:
            late_s = (latency_s[variant, left_s.size] - left_s).clip(0.0, pool.fade_s)
            return float(pool.kappa[variant] ** 2 * (1 - late_s / pool.fade_s).sum())

        return QosChoice(batch, max(range(best), key=worth, default=best))

    def _need(self, state: QosState, pool: QosPool, delay_s: float) -> float:
        waiting = ALPHA * delay_s * state.rate_qps + (1 - ALPHA) * state.queued
        return float(waiting * self.beta * pool.share[state.kind])
