"""Load of the quality-aware schedulers' replays: jobs cut out of the days of a trace, each day scaled alike.

The first half of the days is learned from, the other is judged.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.dispatch.variants.qos import Floats
from mark.domain.errors import Misconfigured
from mark.simulator.qos.episode import PAPER, Conditions, QosQueries, draw_queries
from mark.simulator.rng import stream
from mark.simulator.traces.trace import Trace

DAY_S, HOUR_S = 86_400.0, 3_600.0
DAYS = 8
"""Whole days that are taken, the last ones of the trace."""
SCALED_H = (12, 24)
"""Hours of a day whose mean load is scaled to 1: those that the paper's tables report."""
LEARNED_H = (9, 24)
"""Hours of a day that jobs are drawn from to learn. The paper learns from 9 to 12 h, of the day it then judges."""
LEARNED_LEVELS = 0.7, 1.3
"""Loads that are learned from, as shares of what is asked for: a policy meets others than that."""
STEP_S = 10.0
"""Length of a step within long bins."""
DRAWS = 100
"""Times that another second is drawn where one has no query; a load that has none in so many is no load."""


@dataclass(frozen=True, eq=False)
class DailyLoad:
    """Days of load. rates: shape (days, bins), each day's mean over SCALED_H is 1.

    from_s: second of the trace at which the first of them begins.
    """

    name: str
    rates: Floats
    from_s: float = 0.0

    @property
    def fingerprint(self) -> str:
        """Name of the trace and a hash of its rates."""
        return f"{self.name} {hashlib.sha256(self.rates.tobytes()).hexdigest()[:16]}"

    def day_hashes(self, days: Iterable[int]) -> tuple[str, ...]:
        """A hash of the rates of each of these days."""
        return tuple(hashlib.sha256(self.rates[day].tobytes()).hexdigest()[:16] for day in days)

    def days_between(self, from_s: float, to_s: float) -> range:
        """Days of which something lies between two seconds of the trace."""
        first, end = ((at_s - self.from_s) / DAY_S for at_s in (from_s, to_s))
        return range(max(0, math.floor(first)), min(len(self.rates), math.ceil(end)))

    @property
    def learned(self) -> range:
        """Days that are learned from."""
        return range(len(self.rates) // 2)

    @property
    def judged(self) -> range:
        """Days that are judged."""
        return range(len(self.rates) // 2, len(self.rates))

    def job_rates(self, day: int, from_s: float, duration_s: float, unit_s: float = 1.0) -> tuple[Floats, Floats]:
        """Relative rates from a second of a day on, and their edges from 0 on. shapes (steps,), (steps + 1,).

        unit_s: seconds of the day in one of the edges'.
        """
        duration_s /= unit_s
        bins = self.rates.shape[1]
        steps = max(1, round(duration_s / min(STEP_S, DAY_S / bins / unit_s)))
        edges_s = np.linspace(0.0, duration_s, steps + 1)
        middle_s = from_s + unit_s * (edges_s[1:] + edges_s[:-1]) / 2
        return self.rates[day, np.minimum(bins - 1, (middle_s / DAY_S * bins).astype(np.int64))], edges_s

    def job(
        self,
        day: int,
        from_s: float,
        duration_s: float,
        qps: float,
        seed: int,
        conditions: Conditions = PAPER,
    ) -> QosQueries:
        """Queries of a job, at `qps` on the mean of its day, in the pool's seconds; there may be none."""
        rng = stream(seed, f"qos job {day} {from_s:g} {duration_s:g}")
        return self._queries(day, from_s, duration_s, qps, rng, conditions)

    def _queries(
        self,
        day: int,
        from_s: float,
        duration_s: float,
        qps: float,
        rng: np.random.Generator,
        conditions: Conditions,
    ) -> QosQueries:
        rates, edges_s = self.job_rates(day, from_s, duration_s, conditions.unit_s)
        return draw_queries(rates * (qps * conditions.unit_s), edges_s, rng, conditions.network_s)

    def drawing(
        self, duration_s: float, qps: float, conditions: Conditions = PAPER
    ) -> Callable[[np.random.Generator], QosQueries]:
        """A source of jobs to learn from: any second of LEARNED_H of any day that is learned from, at any level.

        Misconfigured, when it is asked, where none of DRAWS has a query.
        """

        def draw(rng: np.random.Generator) -> QosQueries:
            for _ in range(DRAWS):
                day = int(rng.integers(len(self.learned)))
                from_s = float(rng.uniform(LEARNED_H[0] * HOUR_S, LEARNED_H[1] * HOUR_S - duration_s))
                level = float(rng.uniform(*LEARNED_LEVELS))
                queries = self._queries(day, from_s, duration_s, level * qps, rng, conditions)
                if queries.sent_s.size:
                    return queries
            raise Misconfigured(f"{self.name}: no query in {duration_s:g} s: give a higher rate or longer jobs")

        return draw


def daily_load(trace: Trace) -> DailyLoad:
    """The last days of a trace, from midnight (UTC) where its clock is known, else from its start.

    Misconfigured where it has not two whole days, in bins that divide an hour, with load in all that are taken.
    """
    bins = round(DAY_S / trace.bin_s)
    skipped = round((-trace.start_at % DAY_S) / trace.bin_s)
    rates = trace.rates_rps[skipped:]
    days = min(DAYS, len(rates) // max(1, bins))
    if bins % SCALED_H[1] or bins == 0 or abs(bins * trace.bin_s - DAY_S) > 1e-6 or days < 2:
        raise Misconfigured(
            f"{trace.name}: quality-aware schedulers learn from some days and are judged on others; give a trace "
            "of two whole days or more, in bins that divide an hour"
        )
    whole = rates[: len(rates) // bins * bins].reshape(-1, bins)[-days:]
    mean = whole[:, bins * SCALED_H[0] // 24 : bins * SCALED_H[1] // 24].mean(axis=1, keepdims=True)
    if not (mean > 0).all():
        raise Misconfigured(f"{trace.name}: a day without load between {SCALED_H[0]} and {SCALED_H[1]} h")
    first = skipped + (len(rates) // bins - days) * bins
    return DailyLoad(trace.name, whole / mean, first * trace.bin_s)


def repeated_load(trace: Trace) -> DailyLoad:
    """`daily_load`; a trace without two whole days of load is repeated over two, from its start."""
    try:
        return daily_load(trace)
    except Misconfigured:
        bins = round(DAY_S / trace.bin_s)
        repeated = np.resize(trace.rates_rps, 2 * bins)
        return daily_load(replace(trace, start_at=0.0, bin_s=DAY_S / bins, rates_rps=repeated))


def level_for(
    target: float, quality_at: Callable[[float], float], between: Sequence[float], steps: int = 9
) -> float:
    """The load at which a quality that falls with it has reached `target`, by bisection.

    Misconfigured where `target` is not between the qualities of the two ends.
    """
    low, high = between
    best, worst = quality_at(low), quality_at(high)
    if not worst <= target <= best:
        raise Misconfigured(
            f"no load from {low:g} to {high:g} queries/s has the published quality {target:.3f}: it is {best:.3f} "
            f"at the first and {worst:.3f} at the last; take another trace"
        )
    for _ in range(steps):
        middle = (low + high) / 2
        if quality_at(middle) > target:
            low = middle
        else:
            high = middle
    return (low + high) / 2
