"""Derating of small fleets of slow instances: a request must find one that is done with its work soon enough.

An answer that takes S seconds leaves a request slack = objective - S seconds to wait. An instance that is busy
begins what comes next when it is done: of the moments it works, a share

    u = max(0, 1 - slack / S)

is too early for a request to wait for its end. Instances are at different places of their work: n of them are all
too far from their end in u^n of the moments (that is for independent ones; dispatch lets them fall out of step,
which does better). What comes then is late, however little the load is, so a fleet of n carries (1 - u^n) of what
its instances could. With answers of half the objective and less u is 0, and in a large fleet u^n is.

Where answers vary, the objective is divided by what the sum of two answers exceeds in no more cases than may miss
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from mark.cloudmodel.noise import both_quantile
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Offering

MOST = 0.9
"""Largest share that is taken off: a type that is hardly ever in time still carries a tenth."""


def derate_small_fleets(offerings: Iterable[Offering], load_rps: float, slo: Slo) -> Iterator[Offering]:
    """The offerings, each with the capacity that it has in a fleet of its own for that load."""
    for item in offerings:
        share = _too_far(item, load_rps, surely_within_s(item, slo))
        yield replace(item, capacity_rps=item.capacity_rps * (1.0 - share))


def surely_within_s(item: Offering, slo: Slo) -> float:
    """The objective on the scale of expected times, s: two answers that last so long together are in time."""
    return slo.latency_s / both_quantile(item.cv, slo.target)


def _too_far(item: Offering, load_rps: float, within_s: float) -> float:
    """u^n; at most MOST."""
    works_s = item.profile.latency_s(_usual_batch(item, load_rps))
    alone = max(0.0, 1.0 - max(0.0, within_s - works_s) / works_s)
    return min(MOST, float(alone ** max(1.0, load_rps / item.capacity_rps)))


def _usual_batch(item: Offering, load_rps: float) -> int:
    """Arrivals while one batch is answered."""
    rate = min(load_rps, item.capacity_rps)
    sizes = range(1, item.batch.max_batch + 1)
    return next((size for size in sizes if size >= rate * item.profile.latency_s(size)), item.batch.max_batch)
