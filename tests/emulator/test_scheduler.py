"""Schedules fire on the service's clock and call their functions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from mark.domain.clock import ClockAnchor
from mark.emulator.config import LambdaLimits
from tests.emulator.conftest import World
from tests.emulator.test_lambda import ROLE, call, function
from tests.waiting import until

STAND = 1_800_000_000.0  # 2027-01-15T08:00:00Z
OFF = {"Mode": "OFF"}


@pytest.fixture
def still(start: Callable[..., World]) -> World:
    """A world whose clock stands."""
    anchor = ClockAnchor(wall_at=time.time(), service_at=STAND, speed=0.0)
    return start(anchor=anchor, lambdas=LambdaLimits(cold_start_s=0.0))


def schedule(
    world: World, expression: str, *, name: str = "daily", target: dict[str, Any] | None = None, **more: Any
) -> None:
    arn = "arn:aws:lambda:us-east-1:123456789012:function:note"
    asked = {"Arn": arn, "RoleArn": ROLE, **(target or {})}
    world.client("scheduler").create_schedule(
        Name=name, ScheduleExpression=expression, FlexibleTimeWindow=OFF, Target=asked, **more
    )


def show(world: World, at: float) -> None:
    world.mark("POST", "clock", {"wall_at": time.time(), "service_at": at, "speed": 0.0})


def heard(world: World, count: int) -> list[Any]:
    return (
        until(lambda: found if len(found := call(world, "note", "list")[0]) >= count else None)
        or call(world, "note", "list")[0]
    )


def test_a_daily_schedule_fires_each_day_with_schedulers_event(still: World) -> None:
    function(still, "note")
    schedule(still, "cron(0 7 * * ? *)", ScheduleExpressionTimezone="Europe/Berlin")
    assert call(still, "note", "list")[0] == []
    show(still, STAND + 22 * 3600 - 1)
    assert call(still, "note", "list")[0] == []
    show(still, STAND + 22 * 3600)
    (event,) = heard(still, 1)
    assert event["source"] == "aws.scheduler"
    assert event["time"] == "2027-01-16T06:00:00Z"
    assert event["resources"][0].endswith("schedule/default/daily")
    show(still, STAND + 46 * 3600 + 1)
    assert [one["time"] for one in heard(still, 2)] == ["2027-01-16T06:00:00Z", "2027-01-17T06:00:00Z"]


def test_a_rate_begins_at_once_and_a_jump_fires_it_once(still: World) -> None:
    function(still, "note")
    schedule(still, "rate(5 minutes)", target={"Input": '"<aws.scheduler.scheduled-time>"'})
    assert heard(still, 1) == ["2027-01-15T08:00:00Z"]
    show(still, STAND + 299)
    show(still, STAND + 3600 + 1)
    assert heard(still, 2) == ["2027-01-15T08:00:00Z", "2027-01-15T08:05:00Z"]
    show(still, STAND + 3900)
    assert heard(still, 3)[2:] == ["2027-01-15T09:05:00Z"]


def test_what_is_changed_disabled_or_removed_no_longer_fires(still: World) -> None:
    function(still, "note")
    for name in ("moved", "stopped", "gone"):
        schedule(still, "at(2027-01-15T09:00:00)", name=name, target={"Input": f'"{name}"'})
    client = still.client("scheduler")
    told = client.get_schedule(Name="moved")
    kept = {key: told[key] for key in ("Name", "FlexibleTimeWindow", "Target")}
    client.update_schedule(**kept, ScheduleExpression="at(2027-01-15T10:00:00)")
    client.update_schedule(
        **kept | {"Name": "stopped"}, ScheduleExpression="at(2027-01-15T09:00:00)", State="DISABLED"
    )
    client.delete_schedule(Name="gone")
    show(still, STAND + 3601)
    show(still, STAND + 7201)
    assert heard(still, 1) == ["moved"]
    show(still, STAND + 1e6)
    assert heard(still, 1) == ["moved"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ScheduleExpression": "cron(0 7 * * *)"}, "Invalid Schedule Expression"),
        ({"ScheduleExpression": "at(2026-01-01T00:00:00)"}, "never due"),
        ({"ScheduleExpressionTimezone": "Mars"}, "Timezone"),
        ({"StartDate": STAND}, "StartDate"),
        ({"ActionAfterCompletion": "DELETE"}, "ActionAfterCompletion"),
        ({"Target": {"Arn": "arn:aws:sqs:us-east-1:1:q", "RoleArn": ROLE}}, "functions only"),
    ],
)
def test_what_would_not_be_done_is_refused(still: World, change: dict[str, Any], says: str) -> None:
    target = {"Arn": "arn:aws:lambda:us-east-1:123456789012:function:note", "RoleArn": ROLE}
    asked = {"Name": "s", "ScheduleExpression": "rate(1 day)", "FlexibleTimeWindow": OFF, "Target": target}
    with pytest.raises(ClientError, match=says):
        still.client("scheduler", attempts=1).create_schedule(**asked | change)
    assert still.client("scheduler").list_schedules()["Schedules"] == []
