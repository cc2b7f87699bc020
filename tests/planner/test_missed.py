"""The price of a missed request: what it buys keeps the objective, and no more of it than that takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.demand import Demand
from mark.domain.objective import Slo
from mark.domain.plan import Bridge, PlanRequest
from mark.planner.hedged import WAIT_SHARE, plan_hedged
from mark.planner.missed import LEAST_MISSED, PLANNED_SHARE, WARY_SHARE, priced, untold
from mark.planner.rates import expect_rates
from tests.planner.builders import SLO
from tests.planner.test_hedged import LAMBDA, SMALL, asked, spread

LATE_LAMBDA = Bridge(relieves=True)
RENT_USD = 0.8 / 3600 / 50
"""Of a request on the cheaper of both types."""


def price(request: PlanRequest) -> float:
    return priced(request, expect_rates(request.forecast, wait_s=WAIT_SHARE * request.slo.latency_s)).lambda_usd


def missed_with_one_more(request: PlanRequest) -> float:
    """Share of the requests of the first unit that the plan's fleet and one more instance do not carry."""
    plan = plan_hedged(request)
    table = expect_rates(request.forecast, wait_s=WAIT_SHARE * request.slo.latency_s)
    carried = float(np.interp(plan.capacity_rps + SMALL.capacity_rps, table.levels, table.carried[0]))
    return 1.0 - carried / plan.required_rps


def test_a_lambda_that_is_in_time_has_its_own_price() -> None:
    request = asked(spread(40.0, 50.0, 60.0))
    table = expect_rates(request.forecast, wait_s=0.3)
    assert priced(request, table) == LAMBDA
    nothing = replace(request, offerings=(), bridge=LATE_LAMBDA)
    assert priced(nothing, table) == LATE_LAMBDA


@settings(deadline=None, max_examples=40)
@given(
    middle=st.floats(30.0, 300.0),
    width=st.floats(0.05, 0.9),
    target=st.floats(0.9, 0.995),
    relieves=st.booleans(),
)
def test_the_fleet_misses_no_more_than_its_part_of_the_budget(
    middle: float, width: float, target: float, relieves: bool
) -> None:
    """Instances are whole, so it may lack a part of one; and the price has an end. None is launched here."""
    slo = Slo(latency_s=SLO.latency_s, target=target)
    forecast = spread(middle * (1.0 - width), middle, middle * (1.0 + 2.0 * width))
    there = (("small:on-demand", 400),)
    request = replace(asked(forecast, SMALL, running=there, bridge=Bridge(relieves=relieves)), slo=slo)
    budget = (PLANNED_SHARE if relieves else WARY_SHARE) * (1.0 - target)
    at_the_end = price(request) > 0.999 * 0.09 / 3600 / 5 / LEAST_MISSED
    assert at_the_end or missed_with_one_more(request) <= budget


def test_a_stricter_objective_and_a_queue_that_nobody_relieves_raise_the_price() -> None:
    request = asked(spread(20.0, 50.0, 120.0), bridge=LATE_LAMBDA)
    strict = replace(request, slo=Slo(latency_s=SLO.latency_s, target=0.995))
    alone = replace(request, bridge=Bridge(relieves=False))
    assert RENT_USD < price(request) < min(price(strict), price(alone))
    assert plan_hedged(request).capacity_rps < plan_hedged(strict).capacity_rps
    assert plan_hedged(request).capacity_rps < plan_hedged(alone).capacity_rps


def test_with_little_history_the_last_hour_is_counted_beside_the_forecast() -> None:
    """Half of the chance is the last hour's: the minute in which 300 requests/s came may come again."""
    surge = (50.0,) * 30 + (300.0,) + (50.0,) * 29
    long, short = ((Demand(end_at=0.0, mean_rps=way, max_rps=way)) for way in (surge * 24, surge))
    request = replace(asked(spread(45.0, 50.0, 55.0), SMALL, bridge=LATE_LAMBDA), history=long)
    assert untold(request) is None
    assert plan_hedged(request).capacity_rps < 100.0
    assert plan_hedged(replace(request, history=short)).capacity_rps > 250.0
    assert untold(replace(request, history=short, bridge=LAMBDA)) is None


def test_standbys_that_wake_soon_make_the_fleet_smaller() -> None:
    request = asked(spread(20.0, 50.0, 120.0), SMALL, bridge=LATE_LAMBDA)
    bridged = replace(request, bridge=Bridge(relieves=True, standby=SMALL, wake_s=5.0, standbys=20))
    assert plan_hedged(bridged).capacity_rps < plan_hedged(request).capacity_rps
