"""The report by mail where no stack makes it: its function's schedule, and the role that calls the function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mark.aws.errors import NOT_THERE, absent_is_done, code_of, translated
from mark.aws.functions.management import FunctionSetup, role_of
from mark.aws.names import name_of
from mark.aws.session import Aws
from mark.domain.errors import MarkError

REPORT_MEMORY_MIB, REPORT_TIMEOUT_S = 1024, 120
"""The report draws plots."""
WINDOW_MIN = 15
RETRIES, RETRY_S = 3, 3600
"""A report that cannot be made is tried again within the hour, no longer: tomorrow's comes anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSetup:
    """A report that is mailed: from whom, to whom, and when, as EventBridge Scheduler has it."""

    sender: str
    to: Sequence[str]
    schedule: str
    timezone: str


def report_function(
    setup: ReportSetup, environment: Mapping[str, str], *, service: str, code: bytes
) -> FunctionSetup:
    """The function; `environment`: where the store and the bucket are, and who calls."""
    told = {"MARK_SERVICE": service, "MARK_REPORT_FROM": setup.sender, "MARK_REPORT_TO": ",".join(setup.to)}
    return FunctionSetup(
        name=name_of(service, "report"),
        handler="lambda_handlers.report.handler",
        code=code,
        memory_mib=REPORT_MEMORY_MIB,
        timeout_s=REPORT_TIMEOUT_S,
        environment={**told, **environment},
    )


def make_schedule(aws: Aws, setup: ReportSetup, *, service: str, owner: str, function_arn: str) -> None:
    """Have the function called; asking again changes nothing."""
    allowed = {"Effect": "Allow", "Action": "lambda:InvokeFunction", "Resource": function_arn}
    may = {"Version": "2012-10-17", "Statement": [allowed]}
    role = role_of(aws, service, "schedule", owner=owner, principal="scheduler", may=may)
    asked: dict[str, Any] = {
        "Name": name_of(service, "report"),
        "ScheduleExpression": setup.schedule,
        "ScheduleExpressionTimezone": setup.timezone,
        "FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": WINDOW_MIN},
        "Target": {
            "Arn": function_arn,
            "RoleArn": role,
            "RetryPolicy": {"MaximumRetryAttempts": RETRIES, "MaximumEventAgeInSeconds": RETRY_S},
        },
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
        aws.schedules.delete_schedule(Name=name_of(service, "report"))
