"""Budgets: nothing is held back below them, and what is held back ends instances and comes back by itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.budget import (
    Budget,
    MonthSpend,
    Reached,
    day_start,
    judge,
    month_end,
    month_spend,
    month_start,
    spent_usd,
)
from mark.accounting.daily_costs import DAY_S
from mark.accounting.hourly_totals import first_mark
from mark.accounting.model_ledger import ModelLedger
from mark.controller.limits.spending_limit import apply_spending_limit
from mark.controller.plan_request import plan_fleet
from mark.controller.state import SloBoost, State
from mark.domain.billing.costs import LedgerRecord, Transition
from mark.domain.billing.spending import LimitCause, SpendingLimit
from mark.domain.demand import Demand
from mark.domain.fleet.instances import InstanceState, Role
from mark.domain.fleet.orders import Launch, StopStandby, Terminate, WarmLambda
from tests.accounting.test_daily_costs import SERVED
from tests.controller.builders import (
    POLICY,
    SLEEPER,
    SMALL,
    WATCHED,
    WITH_STANDBY,
    Stepped,
    drained,
    forecast,
    instances,
    launched,
    plan,
    request_at,
    seen,
)

BEGAN = 20_000 * DAY_S + 61_234.0
SMALL_NAME, HOURLY_USD = "small:on-demand", 0.36
USD = st.floats(0, 1e6)
LIMITS = st.one_of(st.none(), st.floats(0.01, 1e6))
BUDGETS = st.builds(Budget, daily_usd=LIMITS, monthly_usd=LIMITS, when_reached=st.sampled_from(Reached))
ORDER = (SpendingLimit.NONE, SpendingLimit.FLOOR, SpendingLimit.PAUSE)
FLOOR, PAUSE = SpendingLimit.FLOOR, SpendingLimit.PAUSE


def monitored(extra: int) -> State:
    """As after a window that missed: so many were launched at once, and are not drained for a while."""
    return State(slo_boosts=(SloBoost(offering=SMALL.name, count=extra, until=700.0),) if extra else ())


@given(budget=BUDGETS, day=USD, month=USD)
def test_spending_is_limited_only_where_a_budget_is_reached(budget: Budget, day: float, month: float) -> None:
    verdict = judge(budget, day_usd=day, month_usd=month)
    reached = [
        limit is not None and spent >= limit
        for limit, spent in ((budget.daily_usd, day), (budget.monthly_usd, month))
    ]
    assert len(verdict.reasons) == sum(reached)
    limited = any(reached) and budget.when_reached is not Reached.WARN
    assert (verdict.spending_limit is not SpendingLimit.NONE) == limited
    assert verdict.cause is (LimitCause.BUDGET if limited else LimitCause.NONE)


@given(budget=BUDGETS, day=USD, month=USD, more=USD)
def test_spending_more_never_holds_back_less(budget: Budget, day: float, month: float, more: float) -> None:
    before = judge(budget, day_usd=day, month_usd=month)
    after = judge(budget, day_usd=day + more, month_usd=month + more)
    assert ORDER.index(after.spending_limit) >= ORDER.index(before.spending_limit)


@given(st.floats(0, 4e9))
def test_a_day_and_its_month_begin_before_now(now: float) -> None:
    assert month_start(now) <= day_start(now) <= now
    assert now - day_start(now) < 86400
    began = datetime.fromtimestamp(month_start(now), UTC)
    assert (began.day, began.hour, began.minute, began.second) == (1, 0, 0, 0)


def test_nothing_was_spent_by_nobody() -> None:
    assert spent_usd((), 0.0, 100.0) == 0.0
    assert month_spend((), 1e9) == MonthSpend()


@given(st.floats(0, 4e9))
def test_a_month_ends_with_the_first_of_the_next(now: float) -> None:
    end = datetime.fromtimestamp(month_end(now), UTC)
    assert month_end(now) > now
    assert (end.day, end.hour, end.minute, end.second) == (1, 0, 0, 0)
    assert 28 <= (month_end(now) - month_start(now)) / DAY_S <= 31


@given(st.floats(0.0, 60 * DAY_S))
def test_a_month_is_projected_as_the_last_seven_days_went(since_s: float) -> None:
    """One instance that runs on costs the same each hour, whenever the month began."""
    transition = Transition(
        instance="i-1", model="m", offering=SMALL_NAME, role=Role.SERVING, state="running", at=BEGAN
    )
    ledger = ModelLedger(
        served=replace(SERVED, overflow=None),
        record=LedgerRecord(transitions=(transition,)),
        marks=(first_mark(BEGAN),),
        footprint=None,
    )
    now = BEGAN + since_s
    found = month_spend([ledger], now)
    assert found.usd == pytest.approx(spent_usd([ledger], month_start(now), now))
    if since_s < 3600.0:
        assert found.projected_usd is None
        return
    assert found.projected_usd is not None
    hours = (month_end(now) - max(BEGAN, month_start(now))) / 3600.0
    assert found.projected_usd == pytest.approx(hours * HOURLY_USD, rel=0.01, abs=0.01)


@given(count=st.integers(0, 12), pending=st.integers(0, 5), wanted=st.integers(0, 20), extra=st.integers(0, 6))
def test_a_pause_ends_everything_and_launches_nothing(count: int, pending: int, wanted: int, extra: int) -> None:
    made = Stepped(replace(WITH_STANDBY, warm_lambda=True), monitored(extra))
    fleet = (
        *instances(count),
        *instances(pending, state=InstanceState.PENDING, first=100),
        *instances(2, SLEEPER, state=InstanceState.STOPPED, role=Role.STANDBY),
    )
    made.see(seen(0.0, fleet, wanted=plan(small=wanted)))
    orders = made.see(replace(seen(60.0, fleet, wanted=plan()), spending_limit=PAUSE))
    assert not [order for order in orders if isinstance(order, Launch | WarmLambda)]
    assert len(drained(orders)) == count + pending
    (ended,) = [order for order in orders if isinstance(order, Terminate)]
    assert set(ended.instances) == {"s-0001", "s-0002"}


@given(count=st.integers(1, 12), extra=st.integers(0, 6))
def test_a_floor_keeps_one_and_puts_standbys_to_sleep(count: int, extra: int) -> None:
    made = Stepped(WITH_STANDBY, monitored(extra))
    fleet = (*instances(count), *instances(1, SLEEPER, role=Role.STANDBY))
    orders = made.see(replace(seen(60.0, fleet, wanted=plan(small=1)), spending_limit=FLOOR))
    assert launched(orders) == {}
    assert len(drained(orders)) == count - 1
    assert [type(order) for order in orders if not hasattr(order, "count")].count(StopStandby) == 1


def test_when_the_limit_ends_the_fleet_comes_back() -> None:
    made = Stepped()
    made.see(replace(seen(0.0, instances(3), wanted=plan()), spending_limit=PAUSE))
    assert launched(made.see(seen(60.0, wanted=plan(small=3)))) == {SMALL.name: 3}


@pytest.mark.parametrize(("spending_limit", "count"), [(FLOOR, 1), (PAUSE, 0)])
def test_what_is_planned_under_a_spending_limit(spending_limit: SpendingLimit, count: int) -> None:
    history = Demand(end_at=0.0, mean_rps=(1.0,), max_rps=(1.0,))
    watched = replace(seen(0.0), spending_limit=spending_limit)
    request = request_at(State(), watched, WATCHED, history=history, forecast=forecast(500.0))
    made = plan_fleet(request, apply_spending_limit(WATCHED, spending_limit))
    assert sum(item.count for item in made.counts) == count
    assert apply_spending_limit(WATCHED, spending_limit).monitor is None
    assert apply_spending_limit(POLICY, SpendingLimit.NONE) is POLICY


@pytest.mark.parametrize("limit", [SpendingLimit.FLOOR, SpendingLimit.PAUSE])
def test_a_limit_is_kept_at_once_also_in_the_first_hour(limit: SpendingLimit) -> None:
    """While nothing is known of the load a lull drains nothing for a quarter of an hour; a limit does."""
    new = replace(POLICY, settle_s=3600.0)
    assert new.cooldown_at(60.0) > 0
    assert apply_spending_limit(new, limit).cooldown_at(60.0) == 0
