"""Standbys that cover surges: woken by the load of the last windows or by the plan, asleep again when it is
over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.controller.policy import StandbyPolicy
from mark.controller.state import Observation
from mark.controller.surges import is_surging
from mark.dispatch.overflow import environments_for
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.orders import Launch, Order, StartStandby, StopStandby, Terminate, WarmLambda
from tests.controller.builders import POLICY, SLEEPER, Stepped, instances, plan, seen, unit
from tests.planner.builders import SLO, overflow

READY, STOPPED, PENDING = InstanceState.READY, InstanceState.STOPPED, InstanceState.PENDING
SURGES = replace(POLICY, standby=StandbyPolicy(offering=SLEEPER, surges=True))
"""Serving instances carry 10 requests/s each, a standby 5."""


def pool(*states: InstanceState) -> tuple[Instance, ...]:
    return tuple(
        instances(1, SLEEPER, state=state, role=Role.STANDBY, first=n + 1)[0] for n, state in enumerate(states)
    )


def watched(
    at: float, fleet: tuple[Instance, ...], *recent: float, planned: bool = False, awake: int = 0
) -> Observation:
    wanted = replace(plan(small=2), standby_target=4, standbys_awake=awake, wake_delay_s=10.0) if planned else None
    return replace(seen(at, fleet, wanted=wanted), recent_rps=recent)


def made() -> Stepped:
    stepped = Stepped(SURGES)
    assert stepped.see(watched(0.0, (*instances(2), *pool(*[STOPPED] * 4)), 20.0, planned=True)) == ()
    return stepped


def named(orders: tuple[Order, ...], kind: type[StartStandby | StopStandby]) -> list[str]:
    return [name for order in orders if isinstance(order, kind) for name in order.instances]


@pytest.mark.parametrize(
    ("recent", "woken"),
    [((20.0, 20.0), 0), ((20.0, 60.0), 0), ((33.0, 34.0), 3), ((21.5, 21.5), 0), ((90.0, 90.0), 4)],
)
def test_as_many_wake_as_the_excess_of_two_windows_needs(recent: tuple[float, ...], woken: int) -> None:
    stepped = made()
    fleet = (*instances(2), *pool(*[STOPPED] * 4))

    assert is_surging(stepped.state, FleetView(instances=fleet), recent, SURGES) is (woken > 0)
    assert len(named(stepped.see(watched(30.0, fleet, *recent)), StartStandby)) == woken


def test_an_instance_carries_here_what_the_plan_counts_on() -> None:
    stepped = made()
    wanted = replace(plan(small=2), standby_target=4, wake_delay_s=10.0)
    counted = tuple(replace(item, usable_rps=8.0) for item in wanted.counts)
    fleet = (*instances(2), *pool(*[STOPPED] * 4))
    stepped.see(replace(seen(60.0, fleet, wanted=replace(wanted, counts=counted)), recent_rps=(16.0, 16.0)))

    assert len(named(stepped.see(watched(90.0, fleet, 20.0, 20.0)), StartStandby)) == 1


def test_a_lost_instance_looks_like_a_surge_at_once() -> None:
    stepped = made()
    leaving = tuple(replace(one, terminates_at=150.0) for one in instances(2))

    assert len(named(stepped.see(watched(30.0, (*leaving, *pool(*[STOPPED] * 4)), 20.0, 20.0)), StartStandby)) == 4


def test_what_the_plan_foresees_wakes_before_it_comes() -> None:
    stepped = made()
    orders = stepped.see(watched(60.0, (*instances(2), *pool(*[STOPPED] * 4)), 20.0, 20.0, planned=True, awake=2))

    assert len(named(orders, StartStandby)) == 2


def test_those_that_are_awake_are_not_woken_again_and_sleep_when_a_minute_did_without_them() -> None:
    stepped = made()
    stepped.see(watched(30.0, (*instances(2), *pool(*[STOPPED] * 4)), 30.0, 30.0))
    waking = (*instances(2), *pool(PENDING, PENDING, STOPPED, STOPPED))
    assert not is_surging(stepped.state, FleetView(instances=waking), (30.0, 30.0), SURGES)
    up = (*instances(2), *pool(READY, READY, STOPPED, STOPPED))
    assert stepped.see(watched(120.0, up, 20.0, 30.0, 30.0, planned=True)) == ()
    assert stepped.see(watched(150.0, up, 20.0, 20.0)) == ()  # put to sleep with a plan only
    assert named(stepped.see(watched(180.0, up, 23.0, 22.0, planned=True)), StopStandby) == ["s-0001"]
    assert stepped.state.active_standbys == ("s-0002",)
    assert named(stepped.see(watched(240.0, up, 20.0, 20.0, planned=True)), StopStandby) == ["s-0002", "s-0001"]
    assert stepped.state.active_standbys == ()


@pytest.mark.parametrize(("latency_s", "asleep"), [(0.1, ["s-0001"]), (9.0, [])])
def test_one_that_a_minute_hardly_filled_sleeps_where_lambda_is_in_time(
    latency_s: float, asleep: list[str]
) -> None:
    """Lambda costs five times a full standby: one that is filled a fifth of the time is worth its rent."""
    usd = 5.0 * SLEEPER.usd_per_request
    dear = replace(overflow(latency_s), usd_per_request=usd, usd_per_gib_s=0.0)
    stepped = Stepped(replace(SURGES, overflow=dear))
    fleet = (*instances(2), *pool(*[STOPPED] * 4))
    stepped.see(watched(0.0, fleet, 20.0, planned=True))
    stepped.see(watched(30.0, fleet, 30.0, 30.0))
    up = (*instances(2), *pool(READY, READY, STOPPED, STOPPED))

    assert named(stepped.see(watched(60.0, up, *[25.0] * 7, *[30.0] * 3, planned=True)), StopStandby) == []
    assert named(stepped.see(watched(120.0, up, *[25.0] * 9, 30.0, planned=True)), StopStandby) == asleep


def test_none_sleeps_before_a_minute_of_its_surge_is_known() -> None:
    """Of twelve windows three are the surge's: too few to fill a standby, and all that there was of it."""
    usd = 5.0 * SLEEPER.usd_per_request
    stepped = Stepped(replace(SURGES, overflow=replace(overflow(), usd_per_request=usd, usd_per_gib_s=0.0)))
    fleet = (*instances(2), *pool(*[STOPPED] * 4))
    stepped.see(watched(0.0, fleet, 20.0, planned=True))
    stepped.see(watched(30.0, fleet, *[18.0] * 10, 22.5, 22.5))
    waking = (*instances(2), *pool(PENDING, STOPPED, STOPPED, STOPPED))

    assert stepped.see(watched(35.0, waking, *[18.0] * 9, *[22.5] * 3, planned=True)) == ()
    assert named(stepped.see(watched(95.0, waking, *[18.0] * 9, *[22.5] * 3, planned=True)), StopStandby)


def test_one_that_still_sleeps_a_period_after_it_was_woken_is_woken_again() -> None:
    stepped = made()
    fleet = (*instances(2), *pool(*[STOPPED] * 4))
    first = named(stepped.see(watched(30.0, fleet, 26.0, 26.0)), StartStandby)
    assert named(stepped.see(watched(60.0, fleet, 26.0, 26.0)), StartStandby) == []

    assert named(stepped.see(watched(90.0, fleet, 26.0, 26.0)), StartStandby) == first


def test_the_standby_set_is_as_large_as_the_plan_says_and_shrinks_late() -> None:
    stepped = Stepped(SURGES)
    orders = stepped.see(watched(0.0, instances(2), 20.0, planned=True))
    assert [(order.offering, order.count, order.role) for order in orders if isinstance(order, Launch)] == [
        (SLEEPER.name, 4, Role.STANDBY)
    ]
    assert stepped.see(watched(60.0, (*instances(2), *pool(*[STOPPED] * 5)), 20.0, planned=True)) == ()
    orders = stepped.see(watched(120.0, (*instances(2), *pool(*[STOPPED] * 8)), 20.0, planned=True))
    assert [len(order.instances) for order in orders if isinstance(order, Terminate)] == [3]


def test_lambda_is_warmed_at_once_for_what_is_taken_away() -> None:
    stepped = Stepped(replace(SURGES, standby=None, warm_lambda=True, warm_share=0.1))
    stepped.see(replace(watched(0.0, instances(4), planned=True), demand=unit(40.0)))
    leaving = tuple(replace(one, terminates_at=150.0) for one in instances(4)[:2])
    orders = stepped.see(watched(30.0, (*leaving, *instances(4)[2:])))

    (warm,) = (order for order in orders if isinstance(order, WarmLambda))
    assert warm.concurrency == environments_for(20.0, 0.38, 0.1 * (1 - SLO.target), 1000)
