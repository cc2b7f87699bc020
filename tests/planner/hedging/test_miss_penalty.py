"""The price of a missed request: what it buys keeps the objective, and no more of it than that takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.demand import Demand
from mark.domain.models.objective import Slo
from mark.domain.plan import Backup, PlanRequest
from mark.planner.hedged import WAIT_SHARE, plan_hedged
from mark.planner.hedging.miss_penalty import LEAST_MISSED, PLANNED_SHARE, WARY_SHARE, recent_load, with_miss_price
from mark.planner.hedging.rates import expect_rates
from tests.planner.builders import SLO, offering
from tests.planner.test_hedged import LAMBDA, LARGE, SMALL, asked, spread

LATE_LAMBDA = Backup(relieves=True)
RENT_USD = 0.8 / 3600 / 50
"""Of a request on the cheaper of both types."""


def price(request: PlanRequest) -> float:
    return with_miss_price(request, expect_rates(request.forecast, wait_s=WAIT_SHARE * request.slo.latency_s))[
        0
    ].lambda_usd


def missed_with_one_more(request: PlanRequest) -> float:
    """Share of the requests of the first unit that the plan's fleet and one more instance do not carry."""
    plan = plan_hedged(request)
    table = expect_rates(request.forecast, wait_s=WAIT_SHARE * request.slo.latency_s)
    carried = float(np.interp(plan.capacity_rps + SMALL.capacity_rps, table.levels, table.carried[0]))
    return 1.0 - carried / plan.required_rps


def test_a_lambda_that_is_in_time_has_its_own_price() -> None:
    request = asked(spread(40.0, 50.0, 60.0))
    table = expect_rates(request.forecast, wait_s=0.3)
    assert with_miss_price(request, table) == (LAMBDA, None)
    nothing = replace(request, offerings=(), backup=LATE_LAMBDA)
    assert with_miss_price(nothing, table) == (LATE_LAMBDA, None)


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
    """Instances are whole, so it may lack a part of one. None is launched here."""
    slo = Slo(latency_s=SLO.latency_s, target=target)
    forecast = spread(middle * (1.0 - width), middle, middle * (1.0 + 2.0 * width))
    there = (("small:on-demand", 400),)
    request = replace(asked(forecast, SMALL, running=there, backup=Backup(relieves=relieves)), slo=slo)
    budget = (PLANNED_SHARE if relieves else WARY_SHARE) * (1.0 - target)
    assert price(request) < 0.999 * 0.09 / 3600 / 5 / LEAST_MISSED, "the price has not come to its end"
    assert missed_with_one_more(request) <= budget


def test_a_stricter_objective_and_a_queue_that_nobody_relieves_raise_the_price() -> None:
    request = asked(spread(20.0, 50.0, 120.0), backup=LATE_LAMBDA)
    strict = replace(request, slo=Slo(latency_s=SLO.latency_s, target=0.995))
    alone = replace(request, backup=Backup(relieves=False))
    assert RENT_USD < price(request) < min(price(strict), price(alone))
    assert plan_hedged(request).capacity_rps < plan_hedged(strict).capacity_rps
    assert plan_hedged(request).capacity_rps < plan_hedged(alone).capacity_rps


def test_what_was_missed_lately_changes_the_price_between_its_bounds() -> None:
    request = asked(spread(20.0, 50.0, 120.0), backup=LATE_LAMBDA)
    alone = replace(request, backup=Backup(relieves=False))
    calm, burnt = (replace(request, miss_factor=factor) for factor in (16.0, 1 / 16))
    assert price(calm) < price(request) < price(burnt)
    assert price(replace(alone, miss_factor=16.0)) < price(alone) < price(replace(alone, miss_factor=1 / 16))
    in_time = replace(request, backup=LAMBDA)
    assert price(replace(in_time, miss_factor=16.0)) == price(in_time) == LAMBDA.lambda_usd


def test_with_little_history_the_last_hour_is_counted_beside_the_forecast() -> None:
    """Half of the chance is the last hour's: the minute in which 300 requests/s came may come again."""
    surge = (50.0,) * 30 + (300.0,) + (50.0,) * 29
    long, short = ((Demand(end_at=0.0, mean_rps=way, max_rps=way)) for way in (surge * 24, surge))
    request = replace(asked(spread(45.0, 50.0, 55.0), SMALL, backup=LATE_LAMBDA), history=long)
    assert recent_load(request) is None
    assert plan_hedged(request).capacity_rps < 100.0
    assert plan_hedged(replace(request, history=short)).capacity_rps > 250.0
    assert recent_load(replace(request, history=short, backup=LAMBDA)) is None


def test_standbys_that_wake_soon_make_the_fleet_smaller() -> None:
    unit = offering("unit", rps=1.0, latency_s=0.2, usd_per_hour=0.018, launch_usd=0.0008)
    request = asked(spread(20.0, 50.0, 120.0), unit, backup=LATE_LAMBDA)
    relieved = replace(request, backup=Backup(relieves=True, standby=unit, wake_s=5.0, standbys=100))
    assert plan_hedged(relieved).capacity_rps < plan_hedged(request).capacity_rps


NOWHERE_ELSE = st.sampled_from([Backup(), LATE_LAMBDA])


@settings(deadline=None, max_examples=60)
@given(
    load=st.floats(0.05, 300.0),
    over=st.floats(1.0, 1e5),
    target=st.one_of(st.floats(0.9, 0.999), st.just(1.0)),
    history_units=st.sampled_from([60, 1440]),
    backup=NOWHERE_ELSE,
)
def test_whole_instances_keep_the_limit_however_little_of_one_the_load_is(
    load: float, over: float, target: float, history_units: int, backup: Backup
) -> None:
    item = offering("one", rps=load * over, latency_s=0.01, usd_per_hour=0.09, launch_usd=0.004)
    past = Demand(end_at=0.0, mean_rps=(load,) * history_units, max_rps=(1.1 * load,) * history_units)
    request = replace(
        asked(spread(0.9 * load, load, 1.1 * load), item, backup=backup),
        slo=Slo(latency_s=SLO.latency_s, target=target),
        history=past,
    )
    table = expect_rates(request.forecast, wait_s=WAIT_SHARE * SLO.latency_s, past=recent_load(request))
    limit = with_miss_price(request, table)[1]
    assert limit is not None
    assert limit.is_kept_by(plan_hedged(request).capacity_rps)


@pytest.mark.parametrize("backup", [Backup(), LATE_LAMBDA])
def test_where_nothing_else_answers_one_instance_stays_though_no_request_is_expected(backup: Backup) -> None:
    idle = replace(asked(spread(0.0, 0.0, 0.0), SMALL, backup=backup), slo=Slo(latency_s=0.6, target=0.9))
    assert plan_hedged(idle).capacity_rps == SMALL.capacity_rps
    refused = replace(idle, refused=(SMALL.name,))
    assert plan_hedged(refused).counts == ()


def test_two_instances_are_kept_where_losing_the_only_one_would_miss_the_objective() -> None:
    """160 s of a day, 0.19 %, pass until a lost instance is replaced; plans use 30 % of what may miss."""

    def counts(target: float, backup: Backup, load: float = 0.01) -> dict[str, int]:
        request = replace(
            asked(spread(load, load, load), SMALL, backup=backup), slo=Slo(latency_s=0.6, target=target)
        )
        return {item.offering: item.count for item in plan_hedged(request).counts}

    assert counts(0.998, LATE_LAMBDA) == {"small:on-demand": 2}
    assert counts(0.997, LATE_LAMBDA) == {"small:on-demand": 1}
    soon = replace(LATE_LAMBDA, standby=SMALL, wake_s=30.0, standbys=1)
    assert counts(0.998, soon) == {"small:on-demand": 1}
    assert counts(0.998, LAMBDA) == {}
    assert counts(0.998, LATE_LAMBDA, load=0.0) == counts(0.998, LATE_LAMBDA)  # idle or not: no launch in between


def test_what_is_there_is_kept_before_anything_is_launched_for_the_floor() -> None:
    there = (("large:on-demand", 1),)
    request = asked(spread(0.0, 0.0, 0.0), SMALL, LARGE, running=there, backup=Backup())
    kept = {item.offering: item.kept for item in plan_hedged(request).counts}
    assert kept["large:on-demand"] == 1
