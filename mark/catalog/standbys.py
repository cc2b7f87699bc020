"""Choice of the standby type: the cheapest that carries surges; a burstable type counts within its credits.

A stopped T2 has lost its balance; the credits that come with a start are all it has, and an account is given them
for a hundred starts a day (EC2 user guide). Beyond them it runs at its baseline. A standby set that wakes often
therefore carries less than its types can, and is planned with what it carries on average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.demand import Demand
from mark.domain.offerings.offering import CREDITED_STARTS_A_DAY, Offering

SURGE_SHARE = 0.1
"""Share of the time that a standby is awake, where its type is chosen."""
LONGEST_SURGE_S = 1800.0
"""Longest surge that standbys carry: a longer one is worth a launch (`mark.planner.hedging.shortfall_cost`)."""
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surges:
    """Surges of a history."""

    #: Height above the usual load, requests/s.
    rps: float = 1.0
    #: Surges a day.
    a_day: float = 0.0

    @classmethod
    def of(cls, history: Demand) -> Surges:
        """The usual load is the median, a surge goes to the 99 % quantile; half of that way begins one."""
        rates = np.array(history.mean_rps, np.float64)
        if not rates.size:
            return cls()
        median, highest = (float(value) for value in np.quantile(rates, (0.5, 0.99)))
        above = rates > 0.5 * (median + highest)
        begun = int(np.count_nonzero(above[1:] & ~above[:-1])) + int(above[0])
        days = len(rates) * history.unit_s / DAY_S
        return cls(rps=max(highest - median, 1.0), a_day=begun / days)


def cheapest_standby(offerings: Sequence[Offering], surges: Surges, disk_usd_per_hour: float) -> Offering:
    """The offering that carries surges for least: its rent while awake, its disk all the time."""

    def usd_per_rps(item: Offering) -> tuple[float, str]:
        rent = SURGE_SHARE * item.usd_per_hour + disk_usd_per_hour
        return rent / min(item.capacity_rps, surges.rps), item.name

    return min(offerings, key=usd_per_rps)


def within_credits(item: Offering, surges: Surges) -> Offering:
    """The offering with the capacity that its credits sustain on average in a surge; others as they are."""
    burst = item.instance_type.credits
    if burst is None or burst.unlimited:
        return item
    wakes_a_day = surges.a_day * math.ceil(surges.rps / item.capacity_rps)
    credited = min(1.0, CREDITED_STARTS_A_DAY / wakes_a_day) if wakes_a_day else 1.0
    spent_per_s = burst.vcpus * (1.0 - burst.baseline) / 60.0
    at_full_speed = min(1.0, credited * burst.launch_credits / spent_per_s / LONGEST_SURGE_S)
    return replace(item, capacity_rps=item.capacity_rps * (at_full_speed + (1.0 - at_full_speed) * burst.baseline))
