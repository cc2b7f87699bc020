"""The plan, the SLO monitor and the standby set share one set of launch limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.controller.limits.launch_limits import LaunchLimits
from mark.controller.limits.spot_breaker import BreakerPolicy, SpotPool
from mark.controller.policy import ControllerPolicy, MonitorPolicy, StandbyPolicy
from mark.controller.state import State
from mark.domain.demand import Demand
from mark.domain.fleet.instances import Role
from mark.domain.models.objective import SloWindow
from mark.domain.offerings.offering import Market
from mark.domain.offerings.quota import STANDARD, VcpuQuota
from mark.domain.plan import Plan, PlannedCount
from tests.controller.builders import POLICY, SMALL, Stepped, forecast, instances, launched, plan, request_at, seen

NOW = 100.0
TWIN = replace(SMALL, instance_type=replace(SMALL.instance_type, name="c5.large"))
SPOT = replace(TWIN, market=Market.SPOT)
BREAKER = BreakerPolicy(open_s=1800.0)
OPEN = SpotPool(offering=SPOT.name, opened_at=90.0, open_s=1800.0)
RETURNING = SpotPool(offering=SPOT.name, opened_at=NOW - 1800.0, open_s=1800.0)
MISSED = SloWindow(closed_at=99.0, requests=1000, missed=100)
ON_SPOT = replace(POLICY, offerings=(SPOT,), breaker=BREAKER)
MONITORED = replace(ON_SPOT, monitor=MonitorPolicy(offering=SPOT.name, count=3))
POOLED = replace(ON_SPOT, standby=StandbyPolicy(offering=SPOT, cover_share=1.0))


def quota(vcpus: float, market: Market = Market.SPOT) -> VcpuQuota:
    return VcpuQuota(family=STANDARD, market=market, vcpus=vcpus)


def spots(count: int) -> Plan:
    item = PlannedCount(offering=SPOT.name, count=count, kept=0, usable_rps=10.0, usd_per_hour=1.0, launch_usd=0.0)
    return Plan(at=400.0, counts=(item,), required_rps=10.0 * count, capacity_rps=10.0 * count)


KIND = SPOT.instance_type.vcpus
NOTHING_LEFT = [
    (ON_SPOT, State(spot_pools=(OPEN,))),
    (replace(ON_SPOT, quotas=(quota(0.0),)), State()),
    (replace(ON_SPOT, max_instances=2), State()),
    (ON_SPOT, State(capacity_backoff=((SPOT.name, 500.0),))),
    (ON_SPOT, State(guardrail_holds=((SPOT.name, 130.0),))),
]


@pytest.mark.parametrize(("policy", "state"), NOTHING_LEFT)
@pytest.mark.parametrize("asks", ["plan", "monitor", "standbys"])
def test_no_one_launches_what_may_not_be_launched(policy: ControllerPolicy, state: State, asks: str) -> None:
    kind = {"plan": ON_SPOT, "monitor": MONITORED, "standbys": POOLED}[asks]
    asking = replace(kind, quotas=policy.quotas, max_instances=policy.max_instances)
    made, free = Stepped(asking, state), Stepped(kind)
    wanted = spots(8 if asks == "plan" else 2)
    observation = seen(NOW, instances(2, SPOT), wanted=wanted, slo=MISSED)
    role = Role.STANDBY if asks == "standbys" else Role.SERVING

    assert launched(free.see(observation), role)
    assert launched(made.see(observation), role) == {}


@pytest.mark.parametrize("policy", [MONITORED, replace(MONITORED, quotas=(quota(0.0),))])
def test_the_monitor_takes_the_twin_where_none_of_its_type_may_be_launched(policy: ControllerPolicy) -> None:
    state = State() if policy.quotas else State(spot_pools=(OPEN,))
    made = Stepped(replace(policy, fallbacks=(TWIN,)), state)
    assert launched(made.see(seen(NOW, instances(2, SPOT), slo=MISSED))) == {TWIN.name: 3}
    assert made.state.slo_boosts[0].count == 3


def test_the_monitor_launches_what_a_quota_leaves() -> None:
    made = Stepped(replace(MONITORED, quotas=(quota(4.0 * KIND),)))
    assert launched(made.see(seen(NOW, instances(2, SPOT), slo=MISSED))) == {SPOT.name: 2}


def test_a_pool_is_entered_by_one_instance_a_tick_whoever_asks() -> None:
    made = Stepped(MONITORED, State(spot_pools=(RETURNING,)))
    orders = made.see(seen(NOW, instances(2, SPOT), wanted=spots(8), slo=MISSED))
    assert launched(orders) == {SPOT.name: 1}


def test_what_the_monitor_took_is_not_left_for_the_plan_nor_for_standbys() -> None:
    policy = replace(MONITORED, offerings=(SMALL,), monitor=MonitorPolicy(offering=SMALL.name, count=3))
    policy = replace(policy, standby=StandbyPolicy(offering=SMALL, cover_share=1.0), max_instances=10)
    made = Stepped(policy)
    orders = made.see(seen(NOW, instances(2), wanted=plan(small=9), slo=MISSED))
    assert launched(orders) == {SMALL.name: 7}
    assert launched(orders, Role.STANDBY) == {SMALL.name: 1}


@given(asked=st.lists(st.integers(1, 9), max_size=6), limit=st.integers(0, 20), vcpus=st.integers(0, 60))
def test_no_limit_is_passed_however_often_one_asks(asked: list[int], limit: int, vcpus: int) -> None:
    policy = replace(ON_SPOT, max_instances=limit, quotas=(quota(float(vcpus)),))
    limits, given_out = LaunchLimits(State(), seen(NOW, instances(1, SPOT)), policy), 0
    for wanted in asked:
        count, notes = limits.allowed(SPOT.name, wanted)
        assert 0 <= count <= wanted
        assert bool(notes) == (count < wanted)
        limits.reserve(SPOT.name, count)
        given_out += count
    assert given_out == max(0, min(sum(asked), limit - 1, (vcpus - KIND) // KIND))


@pytest.mark.parametrize(("policy", "state"), [*NOTHING_LEFT, (ON_SPOT, State(spot_pools=(RETURNING,)))])
def test_plans_count_on_no_launch_of_what_is_barred_or_entered_one_at_a_time(
    policy: ControllerPolicy, state: State
) -> None:
    def left(policy: ControllerPolicy, state: State) -> dict[str, int]:
        history = Demand(end_at=0.0, mean_rps=(1.0,), max_rps=(1.0,))
        observed = seen(NOW, instances(2, SPOT))
        request = request_at(state, observed, policy, history=history, forecast=forecast(10.0))
        return dict(request.launches_left)

    assert left(policy, state)[SPOT.name] == 0
    assert left(ON_SPOT, State())[SPOT.name] == ON_SPOT.max_instances - 2
    assert left(replace(ON_SPOT, quotas=(quota(5.0 * KIND),)), State())[SPOT.name] == 3
    assert left(replace(ON_SPOT, max_instances=6), State())[SPOT.name] == 4
