"""Cost of a model's own instances with Lambda beside them, under a known load.

Instances of one type stand for as long as the load is known, as many as cost least together with Lambda's calls
for what finds them full; none, where calls alone do.

A request finds n instances full where it would wait for more than w seconds. The work that waits is a diffusion
between none and b requests, of drift r - C and variance r a second (Poisson arrivals, capacity C), so that

    calls(r, C) = x / (e^x - 1) r / 2b,   x = 2 b (C - r) / r,   b = w C + 1/2

are turned away a second: r - C far above the capacity, none far below. The half is that of the request which still
comes in. (`rates.py` takes the capacity for the rate in b: for few instances that is cautious, as plans are.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mark.domain.objective import Slo
from mark.domain.offering import Offering
from mark.planner.hedged import wait_s
from mark.planner.small_fleet import derate_small_fleets

LEAST, MOST = 1e-9, 500.0
"""The least of a rate and of |x|, and the most of x: above it calls are none."""

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
    """Requests/s that find each capacity full, shape (rates, capacities)."""
    rate, room = np.maximum(rates, LEAST)[:, None], wait_s * capacities + 0.5
    x = np.minimum(2.0 * room * (capacities / rate - 1.0), MOST)
    x = np.where(np.abs(x) < LEAST, LEAST, x)
    found: Floats = np.minimum(rate, x / np.expm1(x) * rate / (2.0 * room))
    return found
