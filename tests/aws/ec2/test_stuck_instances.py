"""Instances whose agents are gone for good are ended, each after the time that its kind of silence is given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mark.aws.ec2.stuck_instances import StuckInstances
from mark.domain.fleet.instances import InstanceState, Role

LIMITS = {"drain_limit_s": 600.0, "silent_limit_s": 1800.0, "lost_limit_s": 300.0}


def names(
    stuck: StuckInstances,
    state: InstanceState,
    now: float,
    *,
    heard: bool,
    ec2: str = "running",
    role: Role = Role.STANDBY,
) -> list[str]:
    view: Any = [SimpleNamespace(id="i-1", state=state, role=role)]
    rows: Any = {"i-1": SimpleNamespace(state=ec2)}
    return stuck.names(view, rows, now, {"i-1"} if heard else ())


def test_an_agent_that_reported_and_falls_silent_is_given_five_minutes() -> None:
    stuck = StuckInstances(**LIMITS)
    assert names(stuck, InstanceState.READY, 0.0, heard=True) == []
    assert names(stuck, InstanceState.PENDING, 60.0, heard=False) == []
    assert names(stuck, InstanceState.PENDING, 360.0, heard=False) == []
    assert names(stuck, InstanceState.PENDING, 361.0, heard=False) == ["i-1"]
    assert "fell silent for 300 s" in stuck.reason("i-1")


def test_one_that_comes_back_is_let_be() -> None:
    stuck = StuckInstances(**LIMITS)
    names(stuck, InstanceState.READY, 0.0, heard=True)
    names(stuck, InstanceState.PENDING, 60.0, heard=False)
    assert names(stuck, InstanceState.PENDING, 300.0, heard=True) == []  # it loads its model again
    assert names(stuck, InstanceState.PENDING, 2000.0, heard=True) == []
    assert names(stuck, InstanceState.READY, 2001.0, heard=True) == []


def test_one_that_never_reported_is_given_half_an_hour() -> None:
    stuck = StuckInstances(**LIMITS)
    assert names(stuck, InstanceState.PENDING, 0.0, heard=False) == []
    assert names(stuck, InstanceState.PENDING, 1800.0, heard=False) == []
    assert names(stuck, InstanceState.PENDING, 1801.0, heard=False) == ["i-1"]
    assert stuck.reason("i-1") == "its agent was not ready within 1800 s"


def test_a_standby_that_was_stopped_in_between_has_not_reported_in_this_life() -> None:
    stuck = StuckInstances(**LIMITS)
    names(stuck, InstanceState.READY, 0.0, heard=True)
    names(stuck, InstanceState.STOPPED, 100.0, heard=False, ec2="stopped")
    assert names(stuck, InstanceState.PENDING, 200.0, heard=False) == []
    assert names(stuck, InstanceState.PENDING, 900.0, heard=False) == []


def test_a_drain_is_given_ten_minutes() -> None:
    stuck = StuckInstances(**LIMITS)
    assert names(stuck, InstanceState.DRAINING, 0.0, heard=True) == []
    assert names(stuck, InstanceState.DRAINING, 601.0, heard=True) == ["i-1"]


def test_one_that_serves_and_was_stopped_is_ended_and_a_standby_is_not() -> None:
    for role, ended in ((Role.SERVING, ["i-1"]), (Role.STANDBY, [])):
        stuck = StuckInstances(**LIMITS)
        assert names(stuck, InstanceState.STOPPED, 0.0, heard=False, ec2="stopped", role=role) == []
        assert names(stuck, InstanceState.STOPPED, 601.0, heard=False, ec2="stopped", role=role) == ended
