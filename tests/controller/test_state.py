"""The invariants of the controller's state: each is broken by one state, and the state of a start keeps all."""

from __future__ import annotations

import pytest

from mark.controller.limits.spot_breaker import SpotPool
from mark.controller.state import Desired, Requested, SloBoost, State
from mark.domain.fleet.instances import Role
from tests.controller.builders import plan
from tests.controller.state_rules import check_state

DESIRED = Desired(at=0.0, counts=(("small", 1),), capacity_rps=10.0)
LAUNCH = Requested(token="t1-1", offering="small", role=Role.SERVING, total=2, at=0.0)
BROKEN = {
    "an offering backs off twice": State(capacity_backoff=(("a", 1.0), ("a", 2.0))),
    "holds are out of order": State(guardrail_holds=(("b", 1.0), ("a", 1.0))),
    "an offering has two ratios": State(service_time_ratios=(("a", 1.1), ("a", 1.2))),
    "a pool is remembered twice": State(spot_pools=(SpotPool(offering="a"), SpotPool(offering="a"))),
    "a launch is requested twice": State(requested=(LAUNCH, LAUNCH)),
    "a launch has arrived and is requested": State(
        requested=(Requested(token="t", offering="small", role=Role.SERVING, total=1, at=0.0, seen=1),)
    ),
    "a standby is awake and nothing is bridged": State(active_standbys=("s-1",)),
    "a standby is awake twice": State(bridging=True, active_standbys=("s-1", "s-1")),
    "a plan wanted nothing": State(plan=plan(small=1)),
    "plans are out of order": State(
        plan=plan(small=1), desired=(Desired(at=60.0, counts=(), capacity_rps=0.0), DESIRED)
    ),
    "a plan wanted less than nothing": State(
        plan=plan(small=1), desired=(Desired(at=0.0, counts=(("small", -1),), capacity_rps=0.0),)
    ),
    "a boost is empty": State(slo_boosts=(SloBoost(offering="small", count=0, until=60.0),)),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_state_that_no_tick_can_leave_is_caught(broken: State) -> None:
    with pytest.raises(AssertionError):
        check_state(broken)


def test_a_start_and_a_plan_are_valid() -> None:
    check_state(State())
    check_state(
        State(plan=plan(small=1), desired=(DESIRED,), requested=(LAUNCH,), bridging=True, active_standbys=("s",))
    )
