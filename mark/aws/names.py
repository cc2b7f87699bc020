"""Names of a service's resources on AWS."""

from __future__ import annotations

from mark.domain.errors import Misconfigured
from mark.domain.fleet import Role

LONGEST = 64
"""Lambda, IAM and EventBridge take names of up to 64 characters."""
RULES = ("spot-interruption", "rebalance", "state-change")
RAW, DEAD_LETTERS, EVENTS = "raw", "raw-dead", "events"
QUEUES = (EVENTS, RAW, DEAD_LETTERS)
DEAD_LETTER_ALARM = "deadletters"
HANDLERS = ("interruption", "report", "warm")
"""Functions that are no model's."""
REPORT = "report"
"""The schedule that mails it, and the function that it calls."""
LEASE = "lease"
"""The table of the controllers' lease, in the lean shape."""
JOURNAL, REPORTS = "journal", "reports"
"""Folders of the bucket."""


def name_of(service: str, part: str) -> str:
    """`mark-SERVICE-PART`; Misconfigured where AWS would not take it."""
    name = f"mark-{service}-{part}"
    if len(name) > LONGEST or not all(char.isalnum() or char in "-_" for char in name) or not name.isascii():
        raise Misconfigured(f"{name!r} is no name for AWS: at most {LONGEST} letters, digits, - and _")
    return name


def template_name(service: str, role: Role, machine: str = "") -> str:
    """The launch template of a role; `machine` is part of the names of further kinds of machines."""
    return name_of(service, f"{role.value}-{machine}" if machine else role.value)


def repository_of(image: str, partition: str) -> str:
    """The ARN of an image's repository in ECR; its account and region may be others than the service's."""
    registry, _, name = image.partition("/")
    account, _, _, region, *_ = registry.split(".")
    return f"arn:{partition}:ecr:{region}:{account}:repository/{name.partition('@')[0].partition(':')[0]}"
