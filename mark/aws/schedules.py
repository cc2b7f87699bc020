"""The report by mail where no stack makes it: its function's schedule, and the role that calls the function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mark.aws.error_codes import NOT_THERE
from mark.aws.errors import absent_is_done, code_of, translated
from mark.aws.functions.management import role_of
from mark.aws.names import REPORT, name_of
from mark.aws.permissions.policies import Statement, policy_document
from mark.aws.resources import ScheduleSpec
from mark.aws.session import Aws
from mark.domain.errors import MarkError


def make_schedule(
    aws: Aws, schedule: ScheduleSpec, *, service: str, tags: Mapping[str, str], function_arn: str
) -> None:
    """Have the function called; asking again changes nothing."""
    calls = Statement(
        sid="CallReport",
        actions=("lambda:InvokeFunction",),
        resources=(function_arn,),
        conditions={},
        why="the schedule calls the report",
    )
    role = role_of(
        aws, name_of(service, "schedule"), principal="scheduler", may=policy_document([calls]), tags=tags
    )
    retry = {"MaximumRetryAttempts": schedule.retries, "MaximumEventAgeInSeconds": schedule.retry_s}
    asked: dict[str, Any] = {
        "Name": schedule.name,
        "Description": schedule.about,
        "ScheduleExpression": schedule.expression,
        "ScheduleExpressionTimezone": schedule.timezone,
        "FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": schedule.window_min},
        "Target": {"Arn": function_arn, "RoleArn": role, "RetryPolicy": retry},
    }
    try:
        with translated():
            aws.schedules.update_schedule(**asked)
    except MarkError as error:
        if code_of(error) not in NOT_THERE:
            raise
        with translated():
            aws.schedules.create_schedule(**asked)


def remove_schedule(aws: Aws, service: str) -> None:
    """Remove it; its role goes with the functions' one."""
    with absent_is_done():
        aws.schedules.delete_schedule(Name=name_of(service, REPORT))
