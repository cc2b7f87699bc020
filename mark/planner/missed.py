"""What a missed request is worth where no Lambda answers in time: the price at which the objective is just kept.

An objective says which share of the requests may miss it. As the price of a constraint (its Lagrange multiplier),
that share is a price in USD: each level of load is rented in each unit in which

    P(rate > level) x price(level) > rent of a request per second

and what is not rented is missed, or only until standbys serve. The higher the price, the less is missed; the price
is the lowest at which what is expected to be missed stays within its part of the budget.
"""

from __future__ import annotations

import math
from dataclasses import replace

from mark.domain.demand import Demand
from mark.domain.plan import Bridge, PlanRequest
from mark.planner.bridge import unplanned
from mark.planner.rates import RateTable

PLANNED_SHARE = 0.3
"""Of what may miss: the rest is for what no forecast knows of, boots and lost instances among it."""
WARY_SHARE = 0.03
"""The same with little history, and where nothing takes late requests away: each makes those behind it late."""
LEAST_MISSED = 1e-3
"""The last request in a thousand is not bought: its price has no end."""
STEPS = 40
TOLD_S = 86_400.0
"""With less history a forecast knows little of what may come: the last hour is counted beside it."""
HOUR_UNITS = 60


def untold(request: PlanRequest) -> Demand | None:
    """What is counted beside the forecast, where there is little history and no Lambda in time."""
    past = request.history
    if math.isfinite(request.bridge.lambda_usd) or len(past) * past.unit_s >= TOLD_S:
        return None
    return Demand(
        end_at=past.end_at,
        mean_rps=past.mean_rps[-HOUR_UNITS:],
        max_rps=past.max_rps[-HOUR_UNITS:],
        unit_s=past.unit_s,
    )


def priced(request: PlanRequest, table: RateTable) -> Bridge:
    """The request's bridge; where Lambda is not in time, with the price of a missed request in its place."""
    if math.isfinite(request.bridge.lambda_usd) or not request.offerings:
        return request.bridge
    rent_usd = min(item.usd_per_request for item in request.offerings)
    lead = min(request.lead_units, len(table.carried) - 1)
    to_come = replace(table, carried=table.carried[lead:])
    left = unplanned(request, to_come)
    rent = rent_usd * table.levels[1] * table.unit_s
    is_sure = request.bridge.relieves and untold(request) is None
    share = PLANNED_SHARE if is_sure else WARY_SHARE
    budget = share * (1.0 - request.slo.target) * float(left.served.sum())
    low, high = math.log(rent_usd), math.log(rent_usd / LEAST_MISSED)
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        is_rented = left.usd(math.exp(middle)) > rent
        if float(left.alone[~is_rented].sum()) > budget:
            low = middle
        else:
            high = middle
    return replace(request.bridge, lambda_usd=math.exp(high))
