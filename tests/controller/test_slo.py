"""The SLO monitor: a missed window launches L instances, then it is quiet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.controller.policy import MonitorPolicy
from mark.dispatch.objective import missed_target
from mark.domain.fleet.orders import Launch, LaunchRefused, RefusalCause
from mark.domain.models.objective import SloWindow
from tests.controller.builders import SMALL, SPOT, TWIN, WATCHED, Stepped, drained, instances, launched, plan, seen

BOOTING_S = SMALL.boot_s


def window(closed_at: float, missed: int = 100, requests: int = 1000) -> SloWindow:
    return SloWindow(closed_at=closed_at, requests=requests, missed=missed)


def watched(monitor: MonitorPolicy | None = None) -> Stepped:
    made = Stepped(replace(WATCHED, monitor=monitor or WATCHED.monitor))
    made.see(seen(0.0, instances(3), wanted=plan(small=3)))
    return made


@pytest.mark.parametrize(("missed", "late"), [(20, False), (21, True), (0, False)])
def test_more_than_one_minus_target_misses(missed: int, late: bool) -> None:
    assert missed_target(missed, 1000, 0.98) is late


def test_a_missed_window_launches_one_at_once() -> None:
    made = watched()
    (order,) = made.see(seen(10.0, instances(3), slo=window(10.0)))
    assert isinstance(order, Launch)
    assert (order.offering, order.count) == (SMALL.name, 1)
    assert "100 of the last 1000" in order.reason
    assert made.state.monitor_quiet_until == 310.0


def test_a_window_that_keeps_the_target_launches_nothing() -> None:
    assert watched().see(seen(10.0, instances(3), slo=window(10.0, missed=20))) == ()


def test_it_waits_for_a_shared_instance_that_boots() -> None:
    made = watched()
    assert made.see(replace(seen(10.0, instances(3), slo=window(10.0)), shared_boots=True)) == ()
    assert launched(made.see(seen(20.0, instances(3), slo=window(20.0)))) == {SMALL.name: 1}


def test_the_same_window_counts_once() -> None:
    made = watched(MonitorPolicy(offering=SMALL.name, cooldown_s=0.0))
    assert launched(made.see(seen(10.0, instances(3), slo=window(10.0)))) == {SMALL.name: 1}
    later = 10.0 + BOOTING_S + 1.0
    assert made.see(seen(later, instances(3), slo=window(10.0))) == ()
    assert launched(made.see(seen(later + 10.0, instances(3), slo=window(later + 10.0)))) == {SMALL.name: 1}


def test_it_launches_as_many_as_it_was_told() -> None:
    made = watched(MonitorPolicy(offering=SMALL.name, count=3))
    assert launched(made.see(seen(10.0, instances(3), slo=window(10.0)))) == {SMALL.name: 3}


def test_a_refused_type_is_replaced_by_its_twin_or_not_asked_for() -> None:
    spot = replace(WATCHED, offerings=(SPOT,), fallbacks=(TWIN,), monitor=MonitorPolicy(offering=SPOT.name))
    alone = replace(spot, fallbacks=())
    for policy, expected in ((spot, {TWIN.name: 1}), (alone, {})):
        made = Stepped(policy)
        refused = LaunchRefused(token="t0-1", offering=SPOT.name, count=1, cause=RefusalCause.CAPACITY, at=0.0)
        made.see(seen(0.0, instances(3, SPOT), facts=(refused,)))
        assert launched(made.see(seen(10.0, instances(3, SPOT), slo=window(10.0)))) == expected
        assert (made.state.monitor_quiet_until > 0.0) is bool(expected)


@pytest.mark.parametrize(("cooldown_s", "quiet_s"), [(300.0, 300.0), (60.0, BOOTING_S)])
def test_it_is_quiet_for_the_cool_down_and_at_least_for_a_boot(cooldown_s: float, quiet_s: float) -> None:
    made = watched(MonitorPolicy(offering=SMALL.name, cooldown_s=cooldown_s))
    made.see(seen(10.0, instances(3), slo=window(10.0)))
    token = made.state.requested[0].token
    fleet = (*instances(3), *instances(1, token=token, first=9))
    assert made.see(seen(9.0 + quiet_s, fleet, slo=window(9.0 + quiet_s))) == ()
    assert launched(made.see(seen(10.0 + quiet_s, fleet, slo=window(10.0 + quiet_s)))) == {SMALL.name: 1}


def test_the_extra_instance_stays_on_top_of_the_plan_until_it_expires() -> None:
    made = watched()
    made.see(seen(10.0, instances(3), slo=window(10.0), load=1.0))
    token = made.state.requested[0].token
    fleet = (*instances(3), *instances(1, token=token, first=9, launched_at=10.0))
    until = 10.0 + 300.0 + made.policy.cooldown_s
    for now in (60.0, 400.0, until - 1.0):
        assert made.see(seen(now, fleet, wanted=plan(small=3), load=1.0)) == ()
    assert drained(made.see(seen(until, fleet, wanted=plan(small=3), load=1.0))) == ["i-0009"]


def test_a_plan_that_counts_the_extra_instance_gets_no_other_one() -> None:
    made = watched()
    made.see(seen(10.0, instances(3), slo=window(10.0)))
    token = made.state.requested[0].token
    fleet = (*instances(3), *instances(1, token=token, first=9))
    assert launched(made.see(seen(60.0, fleet, wanted=plan(small=4)))) == {}


@pytest.mark.parametrize(("limit_rps", "count"), [(None, 1), (40.0, 1), (39.0, 0)])
def test_nothing_is_launched_beyond_what_the_schedule_allows(limit_rps: float | None, count: int) -> None:
    made = Stepped(WATCHED)
    made.see(seen(0.0, instances(3), wanted=replace(plan(small=3), limit_rps=limit_rps)))
    assert launched(made.see(seen(10.0, instances(3), slo=window(10.0)))) == ({SMALL.name: 1} if count else {})
