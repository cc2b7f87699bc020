"""The SLO monitor: L missed windows in a row launch one instance, then it is quiet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.controller.policy import MonitorPolicy
from mark.controller.slo import missed_target
from mark.domain.orders import Launch, SloWindow
from tests.controller.builders import SMALL, WATCHED, Stepped, drained, instances, launched, plan, seen

BOOTING_S = SMALL.boot_s


def window(closed_at: float, missed: int = 100, requests: int = 1000) -> SloWindow:
    return SloWindow(closed_at=closed_at, requests=requests, missed=missed)


def watched(monitor: MonitorPolicy | None = None) -> Stepped:
    made = Stepped(replace(WATCHED, monitor=monitor or WATCHED.monitor))
    made.see(seen(0.0, instances(3), wanted=plan(small=3)))
    return made


@pytest.mark.parametrize(("missed", "late"), [(20, False), (21, True), (0, False)])
def test_more_than_one_minus_target_misses(missed: int, late: bool) -> None:
    assert missed_target(window(1.0, missed), 0.98) is late


def test_a_missed_window_launches_one_at_once() -> None:
    made = watched()
    (order,) = made.see(seen(10.0, instances(3), slo=window(10.0)))
    assert isinstance(order, Launch)
    assert (order.offering, order.count) == (SMALL.name, 1)
    assert "100 of the last 1000" in order.reason
    assert made.state.quiet_until == 310.0


def test_a_window_that_keeps_the_target_launches_nothing() -> None:
    assert watched().see(seen(10.0, instances(3), slo=window(10.0, missed=20))) == ()


def test_the_same_window_counts_once() -> None:
    made = watched(MonitorPolicy(offering=SMALL.name, breaches=2))
    for now in (10.0, 11.0, 12.0):
        assert made.see(seen(now, instances(3), slo=window(10.0))) == ()
    assert launched(made.see(seen(20.0, instances(3), slo=window(20.0)))) == {SMALL.name: 1}


def test_a_good_window_between_two_bad_ones_starts_the_count_anew() -> None:
    made = watched(MonitorPolicy(offering=SMALL.name, breaches=2))
    for at, missed in ((10.0, 100), (20.0, 0), (30.0, 100)):
        assert made.see(seen(at, instances(3), slo=window(at, missed))) == ()
    assert made.state.breaches == 1


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


def test_a_lost_extra_is_launched_again() -> None:
    made = watched()
    made.see(seen(10.0, instances(3), slo=window(10.0)))
    token = made.state.requested[0].token
    made.see(seen(60.0, (*instances(3), *instances(1, token=token, first=9))))
    assert launched(made.see(seen(120.0, instances(3)))) == {SMALL.name: 1}
