"""Bound on what instances can save: where it is below every rent, the plan is empty and nothing is searched.

Instances save in unit t, all of them together, no more than what Lambda costs for all that is expected to arrive
then: no level's price is above Lambda's, and no fleet carries more than arrives. So an instance is worth, from its
launch to the end of the horizon and with the best time to give it up,

    worth <= sum over t of max(0, lambda E[r_t] - rent) - launch

whatever levels it serves and whatever else is rented. Where that is not above 0 for any offering, no fleet is
worth more than none. Most models with little load are such at most of their ticks.
"""

from __future__ import annotations

import math

import numpy as np

from mark.domain.plan import PlanRequest
from mark.planner.hedging.rates import Cases

ROUNDING = 1e-9
"""Relative error that sums over levels may have, many times over."""


def is_surely_empty(request: PlanRequest, cases: Cases) -> bool:
    """True where no fleet is worth more than none, nothing is there to be kept, and no standby to be woken.

    cases: those of the forecast.
    """
    backup, forecast = request.backup, request.forecast
    if not math.isfinite(backup.lambda_usd) or backup.standbys or any(count > 0 for _, count in request.running):
        return False
    unit_h = forecast.unit_s / 3600.0
    saved_usd = (1.0 + ROUNDING) * backup.lambda_usd * forecast.unit_s * cases.mean_rps(forecast.unit_s)
    return all(
        np.maximum(0.0, saved_usd - item.usd_per_hour * unit_h).sum() <= item.launch_usd
        for item in request.offerings
    )
