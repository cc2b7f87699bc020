"""Schedules of functions, and the roles that they call these with."""

from __future__ import annotations

from aws_cdk import aws_scheduler

from mark.aws.names import name_of
from mark.aws.resources import ScheduleSpec
from mark.infra.roles import allow, make_role
from mark.infra.stack import ServiceStack


def make_schedule(stack: ServiceStack, id_: str, schedule: ScheduleSpec, function: str, *, role: str) -> None:
    """Have a function (ARN) called. role: the name of a new role, without the service's."""
    service = stack.blueprint.service
    calls = allow("Call", ("lambda:InvokeFunction",), (function,), why="the schedule's function")
    taken = make_role(stack, f"{id_}Role", service="scheduler", may=[calls], name=name_of(service, role))
    aws_scheduler.CfnSchedule(
        stack,
        id_,
        name=schedule.name,
        description=schedule.about,
        schedule_expression=schedule.expression,
        schedule_expression_timezone=schedule.timezone,
        flexible_time_window={"mode": "FLEXIBLE", "maximumWindowInMinutes": schedule.window_min},
        target={
            "arn": function,
            "roleArn": taken.attr_arn,
            "retryPolicy": {
                "maximumRetryAttempts": schedule.retries,
                "maximumEventAgeInSeconds": schedule.retry_s,
            },
        },
    )
