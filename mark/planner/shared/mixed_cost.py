"""Cost of a model's own instances with Lambda beside them, under a known load.

Instances of one type stand for as long as the load is known, as many as cost least together with Lambda's calls
for what finds them full; none, where calls alone do.

`hedging/full_queue.py` says how many requests find so many instances full.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Offering
from mark.planner.hedged import wait_s
from mark.planner.hedging.full_queue import carried_rps
from mark.planner.hedging.small_fleet import derate_small_fleets

Floats = NDArray[np.float64]


def mixed_usd_per_hour(offerings: Sequence[Offering], slo: Slo, rates: Floats, lambda_usd: float) -> float:
    """Cost of the cheapest fleet of one type and Lambda, USD an hour.

    rates: the load, requests/s, shape (n,), not empty. lambda_usd: Lambda's price of a request.
    """
    call_usd = 3600.0 * lambda_usd
    least_usd = call_usd * float(rates.mean())
    for item in derate_small_fleets(offerings, float(rates.max()), slo):
        counts = np.arange(1.0, least_usd // item.usd_per_hour + 1.0)  # more cost more than calls alone
        calls = calls_rps(rates, counts * item.capacity_rps, wait_s((item,), slo)).mean(axis=0)
        least_usd = float((counts * item.usd_per_hour + call_usd * calls).min(initial=least_usd))
    return least_usd


def calls_rps(rates: Floats, capacities: Floats, wait_s: float) -> Floats:
    """Requests/s that find each capacity full, shape (rates, capacities); capacities rise."""
    carried = carried_rps(rates[:, None], np.ones(1), wait_s, capacities)
    return np.maximum(0.0, rates[:, None] - carried)
