"""Schedules of functions where no stack makes them, and the role that calls these."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from mark.aws.errors import absent_is_done, translated, unless_absent
from mark.aws.functions.management import role_of
from mark.aws.names import SCHEDULES, name_of
from mark.aws.permissions.policies import Statement, policy_document
from mark.aws.resources import ScheduleSpec
from mark.aws.session import Aws


def make_schedules(
    aws: Aws,
    schedules: Sequence[ScheduleSpec],
    *,
    service: str,
    tags: Mapping[str, str],
    functions: Mapping[str, str],
) -> None:
    """Have the functions called, by these schedules and no other; asking again changes nothing.

    functions: ARNs by name.
    """
    calls = Statement(
        sid="Call",
        actions=("lambda:InvokeFunction",),
        resources=tuple(functions[one.function] for one in schedules),
        conditions={},
        why="schedules call their functions",
    )
    role = role_of(
        aws, name_of(service, "schedule"), principal="scheduler", may=policy_document([calls]), tags=tags
    )
    for one in schedules:
        _make(aws, one, role, functions[one.function])
    remove_schedules(aws, service, but=[one.name for one in schedules])


def _make(aws: Aws, schedule: ScheduleSpec, role: str, function_arn: str) -> None:
    retry = {"MaximumRetryAttempts": schedule.retries, "MaximumEventAgeInSeconds": schedule.retry_s}
    asked: dict[str, Any] = {
        "Name": schedule.name,
        "Description": schedule.about,
        "ScheduleExpression": schedule.expression,
        "ScheduleExpressionTimezone": schedule.timezone,
        "FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": schedule.window_min},
        "Target": {"Arn": function_arn, "RoleArn": role, "RetryPolicy": retry},
    }
    if unless_absent(lambda: aws.schedules.update_schedule(**asked)) is None:
        with translated():
            aws.schedules.create_schedule(**asked)


def remove_schedules(aws: Aws, service: str, but: Collection[str] = ()) -> None:
    """Remove the service's schedules, all `but` these; their role goes with the functions' one."""
    for name in sorted({name_of(service, part) for part in SCHEDULES} - set(but)):
        with absent_is_done():
            aws.schedules.delete_schedule(Name=name)
