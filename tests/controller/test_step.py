"""`step`: launches at once, drains with patience, never repeats an order in flight."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.controller.policy import StandbyPolicy
from mark.controller.state import NoteKind, Observation, State
from mark.controller.step import step
from mark.dispatch.overflow import environments_for
from mark.domain.billing.spending import SpendingLimit
from mark.domain.commitments.owned import Commitments, PlanKind, SavingsPlan
from mark.domain.demand import Demand
from mark.domain.fleet.instances import FleetView, InstanceState, Role
from mark.domain.fleet.orders import Launch, LaunchRefused, LaunchWithdrawn, RefusalCause, WarmLambda, Withdraw
from mark.domain.front import Front
from mark.domain.models.objective import SloWindow
from mark.domain.offerings.quota import VcpuQuota, quota_family
from mark.domain.plan import Plan
from tests.controller.builders import (
    LARGE,
    POLICY,
    SLEEPER,
    SMALL,
    SPOT,
    TWIN,
    WATCHED,
    Stepped,
    drained,
    forecast,
    instances,
    launched,
    plan,
    request_at,
    seen,
)
from tests.controller.state_rules import check_state
from tests.planner.builders import SLO, overflow

PENDING, READY = InstanceState.PENDING, InstanceState.READY

CAPACITY = RefusalCause.CAPACITY
NOTHING_ALLOWED = VcpuQuota(
    family=quota_family(SMALL.instance_type.name, SMALL.market), market=SMALL.market, vcpus=0.0
)


def kinds(made: Stepped) -> list[NoteKind]:
    """What the last tick noted."""
    return [note.kind for note in made.last.notes]


def test_without_a_plan_it_waits() -> None:
    made = Stepped()
    assert made.see(seen(0.0)) == ()
    assert kinds(made) == [NoteKind.NO_PLAN]


def test_it_scales_up_at_once() -> None:
    made = Stepped()
    orders = made.see(seen(0.0, instances(2), wanted=plan(small=5, large=1)))
    assert launched(orders) == {SMALL.name: 3, LARGE.name: 1}
    assert all(order.reason for order in orders)
    assert len({order.token for order in orders}) == 2


def test_an_order_in_flight_is_not_repeated() -> None:
    made = Stepped()
    made.see(seen(0.0, wanted=plan(small=5)))
    for now in (1.0, 60.0, 899.0):
        assert made.see(seen(now, wanted=plan(small=5))) == ()


def test_a_partial_arrival_leaves_the_rest_requested() -> None:
    made = Stepped()
    made.see(seen(0.0, wanted=plan(small=5)))
    token = made.state.requested[0].token
    some = instances(2, state=PENDING, token=token)
    assert made.see(seen(60.0, some, wanted=plan(small=5))) == ()
    assert made.state.requested[0].count == 3
    every = instances(5, state=PENDING, token=token)
    assert made.see(seen(120.0, every, wanted=plan(small=5))) == ()
    assert made.state.requested == ()
    # Two of them vanish: they are launched again, because they had been seen.
    assert launched(made.see(seen(180.0, every[:3], wanted=plan(small=5)))) == {SMALL.name: 2}


def test_a_launch_that_is_not_heard_of_is_withdrawn_where_the_plan_falls() -> None:
    made = Stepped()
    made.see(seen(0.0, instances(1), wanted=plan(small=5)))
    made.see(seen(60.0, instances(1), wanted=plan(small=6)))
    first, second = (item.token for item in made.state.requested)
    orders = made.see(seen(120.0, instances(1), wanted=plan(small=3)))
    assert [(order.launch, order.count) for order in orders if isinstance(order, Withdraw)] == [
        (second, 1),
        (first, 2),
    ]
    assert made.see(seen(121.0, instances(1), wanted=plan(small=3))) == (), "not again, and nothing in its place"
    assert made.see(seen(180.0, instances(1), wanted=plan(small=6))) == (), "it may still come"
    told = tuple(
        LaunchWithdrawn(token=token, offering=SMALL.name, count=count, at=240.0)
        for token, count in ((first, 2), (second, 1))
    )
    orders = made.see(seen(240.0, instances(1), wanted=plan(small=6), facts=told))
    assert launched(orders) == {SMALL.name: 3}
    assert [(item.token, item.count) for item in made.state.requested][:1] == [(first, 2)]
    made.see(seen(241.0, instances(1), wanted=plan(small=6), facts=told))
    assert [(item.token, item.count) for item in made.state.requested][:1] == [(first, 2)], (
        "told again by a new leader"
    )


def test_of_a_launch_that_was_taken_nothing_is_withdrawn() -> None:
    made = Stepped()
    made.see(seen(0.0, wanted=plan(small=5)))
    some = instances(2, state=PENDING, token=made.state.requested[0].token)
    assert not [one for one in made.see(seen(60.0, some, wanted=plan(small=1))) if isinstance(one, Withdraw)]


def test_a_lost_call_heals_when_the_request_expires() -> None:
    made = Stepped()
    made.see(seen(0.0, wanted=plan(small=5)))
    assert made.see(seen(899.9, wanted=plan(small=5))) == ()
    assert launched(made.see(seen(900.0, wanted=plan(small=5)))) == {SMALL.name: 5}


def refusal(made: Stepped, at: float, count: int) -> LaunchRefused:
    return LaunchRefused(
        token=made.state.requested[0].token, offering=SMALL.name, count=count, cause=CAPACITY, at=at
    )


def test_a_refused_offering_is_left_alone_until_it_expires() -> None:
    made = Stepped()
    made.see(seen(0.0, wanted=plan(small=5)))
    assert made.see(seen(1.0, wanted=plan(small=5), facts=(refusal(made, 1.0, 5),))) == ()
    assert made.state.requested == ()
    assert made.state.capacity_backoff == ((SMALL.name, 571.0),)
    assert kinds(made) == [NoteKind.CAPACITY_BACKOFF]
    assert made.see(seen(570.9, wanted=plan(small=5))) == ()
    assert launched(made.see(seen(571.0, wanted=plan(small=5)))) == {SMALL.name: 5}


@pytest.mark.parametrize("heard_s", [0.0, 1.0, 4.0, 29.0])
def test_the_plan_of_the_tenth_minute_asks_again_however_late_a_refusal_was_heard_of(heard_s: float) -> None:
    made = Stepped()
    made.see(seen(0.0, wanted=plan(small=2)))
    made.see(seen(heard_s, wanted=plan(small=2), facts=(refusal(made, heard_s, 2),)))
    assert made.see(seen(540.0, wanted=plan(small=2))) == ()
    assert sum(order.count for order in made.see(seen(600.0, wanted=plan(small=2)))) == 2


def cut(token: str, at: float, count: int) -> LaunchRefused:
    said = "8 instances and 5 more exceed 10"
    return LaunchRefused(
        token=token, offering=SMALL.name, count=count, cause=RefusalCause.GUARDRAIL, detail=said, at=at
    )


def test_what_a_guardrail_cut_off_is_asked_for_again_after_a_period() -> None:
    made = Stepped()
    (order,) = made.see(seen(0.0, instances(8), wanted=plan(small=13)))
    there = (*instances(8), *instances(2, token=order.token, first=20))
    assert made.see(seen(1.0, there, wanted=plan(small=13), facts=(cut(order.token, 0.0, 3),))) == ()
    assert made.state.requested == ()
    assert kinds(made) == [NoteKind.GUARDRAIL, NoteKind.GUARDRAIL_HOLD]
    assert made.last.notes[0].text.startswith(f"3 {SMALL.name} refused: guardrail: ")
    assert made.see(seen(60.9, there)) == ()
    assert kinds(made) == [NoteKind.GUARDRAIL_HOLD]
    assert launched(made.see(seen(61.0, there))) == {SMALL.name: 3}


def test_a_limit_of_the_service_takes_no_offering_from_the_plan() -> None:
    history = Demand(end_at=0.0, mean_rps=(), max_rps=())
    held = replace(seen(1.0, instances(8)), facts=(cut("t1-1", 0.0, 3),))
    request = request_at(State(), held, POLICY, history=history, forecast=forecast(50.0))
    assert request.refused == ()
    assert {item.name for item in request.offerings} == {SMALL.name, LARGE.name}


def test_a_plan_counts_with_the_spot_price_of_now() -> None:
    history = Demand(end_at=0.0, mean_rps=(), max_rps=())
    policy, dear = replace(POLICY, offerings=(SPOT, LARGE)), 2.0 * SPOT.usd_per_hour
    priced = FleetView(spot_usd_per_hour=((SPOT.name, dear),))
    request = request_at(
        State(), replace(seen(1.0), fleet=priced), policy, history=history, forecast=forecast(50.0)
    )
    spot, other = request.offerings
    assert (spot.usd_per_hour, spot.launch_usd) == (dear, pytest.approx(2.0 * SPOT.launch_usd))
    assert other == LARGE
    usual = request_at(State(), seen(1.0), policy, history=history, forecast=forecast(50.0))
    assert usual.offerings == (SPOT, LARGE)


def test_what_a_guardrail_and_the_cloud_refused_of_one_order_adds_up() -> None:
    made = Stepped()
    (order,) = made.see(seen(0.0, wanted=plan(small=5)))
    short = LaunchRefused(token=order.token, offering=SMALL.name, count=1, cause=CAPACITY, at=0.0)
    made.see(seen(1.0, facts=(short, cut(order.token, 0.0, 3))))
    assert made.state.requested[0].count == 1
    assert made.state.capacity_backoff == ((SMALL.name, 571.0),)


def test_other_offerings_are_launched_meanwhile() -> None:
    made = Stepped()
    made.see(seen(0.0, wanted=plan(small=5)))
    orders = made.see(seen(1.0, wanted=plan(small=5, large=2), facts=(refusal(made, 1.0, 5),)))
    assert launched(orders) == {LARGE.name: 2}


def test_refused_spot_is_planned_as_its_on_demand_twin() -> None:
    policy = replace(POLICY, offerings=(SPOT,), fallbacks=(TWIN,))
    history = Demand(end_at=0.0, mean_rps=(), max_rps=())

    def asked(fleet_count: int, refused: bool) -> tuple[set[str], tuple[str, ...]]:
        state = State(capacity_backoff=((SPOT.name, 600.0),) if refused else ())
        observation = seen(1.0, instances(fleet_count, SPOT))
        request = request_at(state, observation, policy, history=history, forecast=forecast(50.0))
        return {item.name for item in request.offerings}, request.refused

    assert asked(0, False) == ({SPOT.name}, ())
    assert asked(0, True) == ({TWIN.name}, (SPOT.name,))
    # What runs stays a candidate, but no more of it can be launched.
    assert asked(2, True) == ({SPOT.name, TWIN.name}, (SPOT.name,))


def test_it_drains_only_when_every_plan_of_the_cool_down_agrees() -> None:
    made = Stepped()
    fleet = instances(5)
    made.see(seen(0.0, fleet, wanted=plan(small=5), load=1.0))
    for now in range(60, 360, 60):
        assert made.see(seen(float(now), fleet, wanted=plan(small=2), load=1.0)) == ()
    assert drained(made.see(seen(360.0, fleet, wanted=plan(small=2), load=1.0))) == ["i-0001", "i-0002", "i-0003"]


@pytest.mark.parametrize(
    ("cooldown_s", "says"),
    [(0.0, "5 there, 2 wanted by the plan"), (360.0, "5 there, 2 wanted by every plan of 360 s")],
)
def test_a_drain_says_who_wants_how_many(cooldown_s: float, says: str) -> None:
    made = Stepped(replace(POLICY, cooldown_s=cooldown_s))
    (order,) = made.see(seen(0.0, instances(5), wanted=plan(small=2), load=1.0))
    assert order.reason == says


def test_one_larger_plan_starts_the_patience_anew() -> None:
    made = Stepped()
    fleet = instances(5)
    for now in range(0, 1200, 60):
        size = 4 if now == 300 else 2
        orders = made.see(seen(float(now), fleet, wanted=plan(small=size), load=1.0))
        if 300 <= now < 660:
            assert len(drained(orders)) <= 1
        if now == 660:
            assert len(drained(orders)) == 3


@pytest.mark.parametrize(("load", "count"), [(1.0, 3), (25.0, 2), (30.0, 2), (31.0, 1), (45.0, 0), (80.0, 0)])
def test_the_load_just_seen_keeps_what_it_needs(load: float, count: int) -> None:
    made = Stepped()
    orders = made.see(seen(0.0, instances(5), wanted=plan(small=2), load=load))
    assert len(drained(orders)) == count
    if not count:
        assert NoteKind.KEPT in kinds(made)


def test_a_policy_may_ignore_the_observed_load() -> None:
    made = Stepped(replace(POLICY, keep_observed=False))
    assert len(drained(made.see(seen(0.0, instances(5), wanted=plan(small=2), load=80.0)))) == 3


def test_nothing_ready_is_drained_for_what_still_boots() -> None:
    """The plan moved to another type: until that serves, the old ones carry the load."""
    fleet = (*instances(4), *instances(1, LARGE, state=PENDING, first=11))
    made = Stepped()
    assert drained(made.see(seen(0.0, fleet, wanted=plan(large=1), load=35.0))) == []
    fleet = (*instances(4), *instances(1, LARGE, first=11))
    assert len(drained(made.see(seen(60.0, fleet, wanted=plan(large=1), load=35.0)))) == 4


def test_pending_ones_are_drained_first_then_the_youngest() -> None:
    fleet = (
        *instances(2, launched_at=10.0),
        *instances(1, first=3, launched_at=50.0),
        *instances(2, first=4, launched_at=70.0, state=PENDING),
    )
    made = Stepped()
    assert drained(made.see(seen(80.0, fleet, wanted=plan(small=1), load=1.0))) == [
        "i-0004",
        "i-0005",
        "i-0003",
        "i-0001",
    ]


def test_what_is_about_to_be_taken_away_is_replaced_and_not_drained() -> None:
    fleet = tuple(replace(one, terminates_at=200.0) for one in instances(3))
    made = Stepped()
    orders = made.see(seen(80.0, fleet, wanted=plan(small=3), load=1.0))
    assert launched(orders) == {SMALL.name: 3}
    assert drained(orders) == []


def test_the_limit_of_instances_counts_what_is_requested() -> None:
    made = Stepped(replace(POLICY, max_instances=10))
    orders = made.see(seen(0.0, instances(4), wanted=plan(small=20)))
    assert launched(orders) == {SMALL.name: 6}
    assert kinds(made) == [NoteKind.INSTANCE_LIMIT]
    assert launched(made.see(seen(60.0, instances(4), wanted=plan(small=20, large=5)))) == {}


COUNTS = st.integers(0, 12)
TICKS = st.lists(
    st.tuples(COUNTS, COUNTS, st.floats(0.0, 200.0), st.floats(1.0, 400.0), st.integers(0, 12)),
    min_size=1,
    max_size=12,
)


@given(ticks=TICKS, limit=st.integers(1, 30))
def test_on_any_path(ticks: list[tuple[int, int, float, float, int]], limit: int) -> None:
    """Launches fill the gap and no more, drains leave what is wanted, both are never of one offering at once."""
    policy = replace(POLICY, max_instances=limit)
    state, now = State(), 0.0
    for small, large, load, gap_s, there in ticks:
        now += gap_s
        fleet = (*instances(there), *instances(small, LARGE, first=100))
        observation = seen(now, fleet, wanted=plan(small=small, large=large), load=load)
        decision = step(state, observation, policy)
        assert decision == step(state, observation, policy)
        check_state(decision.state)
        new, gone = launched(decision.orders), drained(decision.orders)
        outstanding = sum(item.count for item in decision.state.requested)
        if new:
            assert len(fleet) + outstanding <= max(limit, len(fleet))
        by_kind = {SMALL.name: there, LARGE.name: small}
        wanted = {SMALL.name: small, LARGE.name: large}
        for name, count in by_kind.items():
            left = count - sum(1 for one in fleet if one.id in gone and one.offering == name)
            assert left >= min(count, wanted[name])
            assert new.get(name, 0) <= max(0, wanted[name] - count)
            assert not (new.get(name) and left < count)
        capacity = 10.0 * there + 40.0 * small
        taken = sum(10.0 if one.offering == SMALL.name else 40.0 for one in fleet if one.id in gone)
        assert taken == 0 or capacity - taken >= load - 1e-9
        state = decision.state


LOAD = Demand(end_at=400.0, mean_rps=(85.0,), max_rps=(85.0,))
OWNED = Commitments(plans=(SavingsPlan(name="plan", kind=PlanKind.COMPUTE, usd_per_hour=1.0),))


def test_each_input_moves_a_decision() -> None:
    """A field of the observation that moved nothing would be a promise not kept."""
    bridging = StandbyPolicy(offering=SLEEPER, surges=True)
    policy = replace(WATCHED, standby=bridging, warm_lambda=True)
    fleet = (
        *instances(6),
        *instances(2, LARGE, first=11),
        *instances(6, SLEEPER, role=Role.STANDBY, state=InstanceState.STOPPED),
    )
    before = Stepped(policy)
    before.see(seen(0.0, fleet, wanted=plan(small=6, large=2), load=50.0, expected=forecast(50.0)))
    base = replace(
        seen(400.0, fleet, wanted=plan(small=4), load=85.0, expected=forecast(1000.0)), recent_rps=(85.0,) * 12
    )
    wanting = replace(base, plan=plan(small=9))

    def orders(seen_then: Observation = base, **changes: Any) -> object:
        return step(before.state, replace(seen_then, **changes), policy).orders

    def asked(**changes: Any) -> object:
        bare = replace(base, forecast=None, plan=None, **changes)
        return request_at(before.state, bare, policy, history=LOAD, forecast=forecast(1000.0))

    def orders_in_zones(**changes: Any) -> object:
        zoned = replace(policy, zones=("a", "b"), crossing_usd=1e-5)
        return step(before.state, replace(wanting, **changes), zoned).orders

    refused = LaunchRefused(token="t0-1", offering=SMALL.name, count=1, cause=CAPACITY, at=399.0)
    missed = SloWindow(closed_at=399.0, requests=1000, missed=500)
    moved = {
        "now": orders(now=100.0) != orders(),
        "fleet": orders(fleet=FleetView(instances=fleet[1:])) != orders(),
        "demand": orders(demand=seen(0.0, load=99.0).demand) != orders(),
        "forecast": orders(forecast=forecast(2000.0)) != orders(),
        "plan": orders(plan=plan(small=9)) != orders(),
        "facts": orders(wanting, facts=(refused,)) != orders(wanting),
        "slo": orders(slo=missed) != orders(),
        "lambda_warm": orders(lambda_warm=1000) != orders(),
        "recent_rps": orders(recent_rps=(500.0,) * 12) != orders(),
        "service_time_ratios": orders(service_time_ratios=((LARGE.name, 2.0),)) != orders(),
        "quotas": orders(wanting, quotas=(NOTHING_ALLOWED,)) != orders(wanting),
        "commitments": asked(commitments=OWNED) != asked(),
        "shared_rps": asked(shared_rps=5.0) != asked(),
        "shared_boots": orders(slo=missed, shared_boots=True) != orders(slo=missed),
        "spending_limit": orders(spending_limit=SpendingLimit.PAUSE) != orders(),
        "front": orders_in_zones(front=Front(shares=(("b", 1.0),))) != orders_in_zones(),
    }
    assert moved == {field.name: True for field in fields(Observation)}


def test_lambda_is_warmed_for_what_is_expected_before_the_plan_takes_effect() -> None:
    made = Stepped(replace(POLICY, warm_lambda=True))
    fleet = instances(5)
    (order,) = made.see(seen(0.0, fleet, wanted=plan(small=5), load=50.0, expected=forecast(80.0)))
    assert isinstance(order, WarmLambda)
    assert order.concurrency > 30.0 * overflow().latency_s
    again = made.see(
        seen(60.0, fleet, wanted=plan(small=5), expected=forecast(80.0), lambda_warm=order.concurrency)
    )
    assert again == ()


def test_a_fleet_far_larger_than_its_load_is_no_reason_to_warm_lambda() -> None:
    """A quarter of what is served is kept warm, not of what could be: 10,000 requests/s are ready for 8."""
    vast = replace(SMALL, capacity_rps=10_000.0)
    made = Stepped(replace(POLICY, offerings=(vast,), warm_lambda=True, warm_share=0.25))
    wanted = Plan(at=300.0, counts=(), required_rps=8.0, capacity_rps=10_000.0)
    (order,) = made.see(seen(0.0, instances(1, vast), wanted=wanted, load=8.0, expected=forecast(8.0)))
    assert isinstance(order, WarmLambda)
    assert order.concurrency == environments_for(2.0, overflow().latency_s, 0.1 * (1 - SLO.target), 1000)


def test_while_the_load_is_not_known_a_lull_of_minutes_drains_nothing() -> None:
    made = Stepped(replace(POLICY, cooldown_s=60.0, keep_observed=False, settle_s=3600.0))
    made.see(seen(0.0, instances(5), wanted=plan(small=5)))
    for minute in range(1, 15):
        assert drained(made.see(seen(60.0 * minute, instances(5), wanted=plan(small=1)))) == []
    assert len(drained(made.see(seen(900.0, instances(5), wanted=plan(small=1))))) == 4
    made.see(seen(3000.0, instances(5), wanted=plan(small=5)))
    assert drained(made.see(seen(3590.0, instances(5), wanted=plan(small=1)))) == []
    assert len(drained(made.see(seen(3600.0, instances(5), wanted=plan(small=1))))) == 4


def test_lambda_is_warmed_up_to_the_accounts_concurrency() -> None:
    made = Stepped(replace(POLICY, warm_lambda=True))
    (order,) = made.see(seen(0.0, instances(1), wanted=plan(small=1), expected=forecast(1e6)))
    assert isinstance(order, WarmLambda)
    assert order.concurrency == 1000


def test_launches_of_a_tick_carry_its_number() -> None:
    made = Stepped()
    made.see(seen(0.0))
    (order,) = made.see(seen(1.0, wanted=plan(small=1)))
    assert isinstance(order, Launch)
    assert order.token == "t2-1"


def test_a_refusal_that_is_told_again_counts_once() -> None:
    """As after a crash: a launch that was refused in part is submitted again, and answered as before."""
    made = Stepped()
    (order,) = made.see(seen(0.0, wanted=plan(small=5)))
    fact = LaunchRefused(token=order.token, offering=SMALL.name, count=2, cause=CAPACITY, at=1.0)
    for at in (1.0, 2.0):
        made.see(seen(at, facts=(fact,)))
        (waited_for,) = made.state.requested
        assert waited_for.count == 3


@pytest.mark.parametrize(("limit_rps", "gone"), [(None, 0), (50.0, 0), (30.0, 2), (25.0, 2)])
def test_what_carries_more_than_the_schedule_allows_is_drained_whatever_the_load_and_the_cooldown(
    limit_rps: float | None, gone: int
) -> None:
    made = Stepped(POLICY)
    made.see(seen(0.0, instances(5), wanted=plan(small=5), load=50.0))
    wanted = replace(plan(small=3), limit_rps=limit_rps)
    assert len(drained(made.see(seen(60.0, instances(5), wanted=wanted, load=50.0)))) == gone


def test_only_serving_instances_that_are_ready_are_counted_for_the_load_of_each() -> None:
    fleet = (
        *instances(2),
        *instances(1, state=InstanceState.PENDING, first=10),
        *instances(3, role=Role.STANDBY),
    )
    made = Stepped()
    made.see(seen(0.0, fleet, load=5.0))
    assert made.state.ready_history == (2,)
