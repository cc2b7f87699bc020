"""Load from which a service with instances of its own costs less than Lambda alone.

At a constant load of r requests/s, n instances of the cheapest kind that carry it, and the footprint, cost

    F + n x rent + r x traffic    an hour, against    r x Lambda

A load with a rhythm pays later: instances are idle at night, and what exceeds them is Lambda's anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from mark.catalog.billing import SECONDS_PER_HOUR, Load, bill_running, bill_shared, bill_traffic
from mark.domain.billing.costs import BillLine
from mark.domain.billing.footprint import Footprint
from mark.domain.offerings.offering import LambdaOffering, Offering


def break_even_rps(
    footprint: Footprint, offerings: Iterable[Offering], overflow: LambdaOffering, *, payload_mib: float
) -> float | None:
    """The lowest constant load, requests/s, that pays; None where none does. payload_mib: request and answer."""
    fixed = _usd(bill_shared(footprint, 0.0, SECONDS_PER_HOUR))
    around = _usd(bill_running(footprint, SECONDS_PER_HOUR))
    crossed = 0 if footprint.is_steered else None
    load = Load(duration_s=0.0, requests=1, payload_mib=payload_mib, crossed=crossed)
    traffic = _usd(bill_traffic(footprint, load))
    saved = SECONDS_PER_HOUR * (overflow.usd_per_warm_request - traffic)
    rents = ((item.usd_per_hour + around, item.capacity_rps) for item in offerings)
    found = (_crossing(fixed, rent, capacity_rps, saved) for rent, capacity_rps in rents)
    return min((rate for rate in found if rate is not None), default=None)


def _crossing(fixed: float, rent: float, capacity_rps: float, saved: float) -> float | None:
    """Load at which so many instances as carry it save what they and the footprint cost.

    fixed, rent: USD an hour, of all and of one instance. saved: USD an hour for each request/s.
    """
    earned = capacity_rps * saved - rent
    if earned <= 0.0:
        return None
    instances = max(1, math.ceil(fixed / earned))
    return (fixed + instances * rent) / saved


def _usd(lines: Iterable[BillLine]) -> float:
    return sum(line.usd for line in lines)
