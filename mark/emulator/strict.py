"""Strictness: requests that moto accepts and ignores are refused here, by name."""

from __future__ import annotations

import json
import re

from mark.emulator.errors import ApiError, not_emulated

SERVICES = frozenset(
    (
        "ce",
        "cloudformation",
        "dynamodb",
        "ec2",
        "ecr",
        "events",
        "fis",
        "freetier",
        "iam",
        "lambda",
        "logs",
        "monitoring",
        "pricing",
        "route53",
        "s3",
        "scheduler",
        "savingsplans",
        "secretsmanager",
        "servicequotas",
        "ses",
        "sqs",
        "ssm",
        "sts",
        "tagging",
    )
)
"""Those that do here what they say; moto has more, whose tasks never run and whose topics tell nobody."""
ALARMS = frozenset(("DeleteAlarms", "DescribeAlarms", "PutMetricAlarm"))
"""Operations of CloudWatch: no metric is kept but what alarms look at."""
UNUSED_SETTINGS = re.compile(r"/functions/[^/]+/(event-invoke-config|provisioned-concurrency|url)\b")
"""Settings of functions that moto stores and nobody follows."""


def check(service: str, action: str, path: str, body: bytes) -> None:
    """Let through what has an effect; ApiError for the rest."""
    if not service:
        raise ApiError("MissingAuthenticationToken", "Request is missing Authentication Token", 403)
    if service not in SERVICES:
        raise not_emulated(f"service {service}")
    if service == "events":
        _check_events(action, body)
    elif service == "lambda" and action != "Invoke":
        _check_functions(action, path, body)
    elif service == "monitoring" and action not in ALARMS:
        raise not_emulated(f"CloudWatch's {action}")


def _check_events(action: str, body: bytes) -> None:
    if action == "PutRule" and json.loads(body).get("ScheduleExpression"):
        raise not_emulated("rules on a schedule (ScheduleExpression): they would never fire")
    if action == "PutTargets":
        for target in json.loads(body).get("Targets", ()):
            service = target["Arn"].split(":")[2]
            if service not in ("sqs", "lambda"):
                raise not_emulated(f"EventBridge targets of {service}")
            if "InputPath" in target:
                raise not_emulated("InputPath of EventBridge targets")


def _check_functions(action: str, path: str, body: bytes) -> None:
    reads = action.startswith("GET ")
    if not reads and (found := UNUSED_SETTINGS.search(path)):
        raise not_emulated(f"a function's {found[1]}: nothing would follow it")
    if "/event-source-mappings" in path and not reads and body:
        request = json.loads(body)
        arn = request.get("EventSourceArn", "")
        if arn and (arn.split(":")[2] != "sqs" or arn.endswith(".fifo")):
            raise not_emulated(f"event source mappings of {arn}: standard queues only")
        for name in ("FilterCriteria", "ScalingConfig", "DestinationConfig", "MaximumBatchingWindowInSeconds"):
            if request.get(name):
                raise not_emulated(f"{name} of event source mappings")
