"""Penalty of a missed request where no Lambda answers in time: the price at which the objective is just kept.

An objective allows a share of the requests to miss it (its error budget). As the price of a constraint (its
Lagrange multiplier, or shadow price), that share is a price in USD: each level of load is rented in each unit in
which

    P(rate > level) x price(level) > rent of a request per second

and what is not rented is missed, or only until standbys serve. The higher the price, the less is missed; the price
is the lowest at which what is expected to be missed stays within its part of the budget.

That is the price of capacity in any amount. Instances are whole: where the load is a small part of one, no level's
misses pay for it, and the objective asks for it all the same. So the fleet that a price pays for is held against
the budget (`MissLimit`), and the price rises until whole instances keep it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mark.domain.demand import Demand
from mark.domain.offerings.offering import Offering
from mark.domain.plan import Backup, PlanRequest
from mark.planner.hedging.rates import RateTable
from mark.planner.hedging.shortfall_cost import DETECTION_S, expected_shortfall

PLANNED_SHARE = 0.3
"""Of what may miss: the rest is for what no forecast knows of, boots and lost instances among it."""
WARY_SHARE = 0.03
"""The same with little history, and where nothing takes late requests away: each makes those behind it late."""
MOST_SHARE = 0.6
"""Largest share that is planned for, however little was missed lately."""
LEAST_MISSED = 1e-3
"""The last request in a thousand is not bought: its price has no end."""
LEAST_SHARE = 1e-6
"""Least share of misses planned for, at an objective of 100 %: no fleet rules out a miss under a random load."""
STEPS = 40
LONG_HISTORY_S = 86_400.0
"""With less history a forecast knows little of what may come: the last hour is counted beside it."""
HOUR_UNITS = 60
DAY_S = 86_400.0
"""A report judges a day. One loss is planned for in it: the Spot Advisor's worst class is one in five a month."""


def recent_load(request: PlanRequest) -> Demand | None:
    """The last hour's load, which counts beside the forecast where history is short and no Lambda is in time."""
    past = request.history
    if math.isfinite(request.backup.lambda_usd) or len(past) * past.unit_s >= LONG_HISTORY_S:
        return None
    return Demand(
        end_at=past.end_at,
        mean_rps=past.mean_rps[-HOUR_UNITS:],
        max_rps=past.max_rps[-HOUR_UNITS:],
        unit_s=past.unit_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MissLimit:
    """Error budget of whole instances in the unit at the lead, the first that a launch of now serves."""

    #: Capacities, requests/s, shape (n,).
    levels: NDArray[np.float64]
    #: Requests of that unit that a fleet of each capacity misses, shape (n,).
    missed: NDArray[np.float64]
    #: Requests of that unit that may be missed.
    allowed: float

    def is_kept_by(self, capacity_rps: float) -> bool:
        """True where a fleet of that capacity misses no more than is allowed."""
        return float(np.interp(capacity_rps, self.levels, self.missed)) <= self.allowed

    def usd_that_pays_for(self, item: Offering, unit_s: float) -> float:
        """Price of a miss, USD, at which the misses beyond the limit pay for one instance, launch included."""
        return (item.usd_per_hour * unit_s / 3600.0 + item.launch_usd) / self.allowed


def with_miss_price(request: PlanRequest, table: RateTable) -> tuple[Backup, MissLimit | None]:
    """The request's backup with the price of a miss in place of a Lambda that is late, and the limit then."""
    if math.isfinite(request.backup.lambda_usd) or not request.offerings:
        return request.backup, None
    rent_usd = min(item.usd_per_request for item in request.offerings)
    lead = min(request.lead_units, len(table.carried) - 1)
    to_come = replace(table, carried=table.carried[lead:])
    left = expected_shortfall(request, to_come)
    rent = rent_usd * table.levels[1] * table.unit_s
    is_sure = request.backup.relieves and recent_load(request) is None
    planned = min(MOST_SHARE, (PLANNED_SHARE if is_sure else WARY_SHARE) * request.miss_factor)
    share = max(LEAST_SHARE, planned * (1.0 - request.slo.target))
    beside = (request.backup.shared_rps or 0.0) * table.unit_s  # requests of a unit, which are judged too
    budget, waits = share * (float(left.served.sum()) + beside * len(left.served)), left.left_to_lambda
    low, high = 0.0, math.log(1.0 / LEAST_MISSED)  # of the rent: its scale is not to matter
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        is_rented = left.usd(rent_usd * math.exp(middle)) > rent
        if float(waits[~is_rented].sum()) > budget:
            low = middle
        else:
            high = middle
    miss_usd = rent_usd * math.exp(high)
    is_rented = left.usd(miss_usd) > rent
    allowed = max(share * (float(left.served[0].sum()) + beside), float(waits[0][~is_rented[0]].sum()))
    missed = np.append(np.cumsum(waits[0][::-1])[::-1], 0.0)
    limit = MissLimit(levels=table.levels, missed=missed, allowed=allowed)
    return replace(request.backup, lambda_usd=miss_usd), limit


def fewest_instances(request: PlanRequest, chosen: Sequence[Offering]) -> int:
    """Least number of instances where nothing else answers in time.

    None where shared instances answer the first request that comes. One elsewhere: it may come at any moment, and
    a launch takes minutes. Two, where the misses until a lost one is replaced (by a standby, where there is one)
    are more than the objective allows in the day that a report judges, less what plans use of that.
    """
    backup = request.backup
    if backup.shared_rps is not None:
        return 0
    out_s = max((item.boot_s for item in chosen), default=0.0)
    if backup.standby is not None and backup.standbys:
        out_s = min(out_s, backup.wake_s)
    spare_s = (1.0 - PLANNED_SHARE) * (1.0 - request.slo.target) * DAY_S
    return 2 if DETECTION_S + out_s > spare_s else 1
