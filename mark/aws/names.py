"""Names of a service's resources on AWS."""

from __future__ import annotations

import hashlib

from mark.domain.errors import Misconfigured
from mark.domain.fleet.instances import Role

LONGEST = 64
"""Lambda, IAM and EventBridge take names of up to 64 characters."""
RULES = ("spot-interruption", "rebalance", "state-change")
RAW, DEAD_LETTERS, EVENTS = "raw", "raw-dead", "events"
QUEUES = (EVENTS, RAW, DEAD_LETTERS)
DEAD_LETTER_ALARM = "deadletters"
HANDLERS = ("interruption", "orphans", "probe", "report", "warm", "webhook")
"""Functions that are no model's."""
REPORT = "report"
"""The schedule that mails it, and the function that it calls."""
ORPHANS = "orphans"
"""The schedule that looks for instances which no controller owns, and the function that it calls."""
PROBE = "probe"
"""The function that sends a request from within the network (`mark try`)."""
SCHEDULES = (ORPHANS, REPORT)
WEBHOOK, UNPOSTED_QUEUE = "webhook", "webhook-dead"
"""The function that posts alarms to a webhook, and the queue of what it could not post."""
TOPIC = "alarms"
"""The topic that people hear of alarms by."""
TRAIN = "train"
"""The function that trains forecasters, where a service has it."""
TOKEN = "token"  # noqa: S105 - its name
"""The secret that clients must send."""
AGENTS_PASSWORD = "store-agent"  # noqa: S105 - its name
"""The secret by which agents reach the store: in the lean shape a password and no more."""
LEASE = "lease"
"""The table of the controllers' lease, in the lean shape."""
ARTIFACTS, JOURNAL, REPORTS, TRAININGS = "artifacts", "journal", "reports", "training"
"""Folders of the bucket."""
VERSIONS = f"{ARTIFACTS}/versions"
"""Folder of the bucket with the bundles of models' versions."""
ON_INSTANCES = "/versions"
"""Where agents on AWS find the version of their instance, in a folder that bears its name."""


def name_of(service: str, part: str) -> str:
    """`mark-SERVICE-PART`; Misconfigured where AWS would not take it."""
    name = f"mark-{service}-{part}"
    if len(name) > LONGEST or not all(char.isalnum() or char in "-_" for char in name) or not name.isascii():
        raise Misconfigured(f"{name!r} is not a valid name in AWS: at most {LONGEST} letters, digits, - and _")
    return name


def acted_key(service: str) -> str:
    """The object with the last sign of a controller that acts."""
    return f"{JOURNAL}/{service}/acted-at"


def orphans_key(service: str) -> str:
    """The object with the last notice of orphans."""
    return f"{JOURNAL}/{service}/orphans.json"


LONGEST_BUCKET, RANDOM_LETTERS, KEPT = 63, 13, 20
"""Of a bucket's name: its most letters, those that CloudFormation adds, those of a stack's that stay."""


def bucket_pattern(service: str) -> str:
    """Names that CloudFormation may give to the bucket of the stack `archive`, as a policy has it.

    One that would be too long is cut, AWS does not say how: then only the beginning of the stack's name is sure.
    """
    stack = name_of(service, "archive")
    whole = f"{stack}-bucket-"
    return f"{whole}*" if len(whole) + RANDOM_LETTERS <= LONGEST_BUCKET else f"{stack[:KEPT]}*"


def pause_parameter(service: str) -> str:
    """The parameter that stands while the service is paused from outside its network."""
    return f"/mark/{service}/pause"


def role_name(function: str) -> str:
    """The name of a function's role: its own and `-role`; cut where that is too long, and told apart by a hash."""
    whole = f"{function}-role"
    if len(whole) <= LONGEST:
        return whole
    return f"{function[: LONGEST - 9]}-{hashlib.sha256(function.encode()).hexdigest()[:8]}"


def rollout_role(service: str) -> str:
    """The role in which CloudFormation changes the stacks. No name of the service's own begins so."""
    return f"mark.{service}.rollout"


def boundary_name(service: str) -> str:
    """The policy that bounds every role of the service."""
    return f"mark.{service}.boundary"


def template_name(service: str, role: Role, machine: str = "") -> str:
    """The launch template of a role; `machine` is part of the names of further kinds of machines."""
    return name_of(service, f"{role.value}-{machine}" if machine else role.value)


def repository_of(image: str, partition: str) -> str:
    """The ARN of an image's repository in ECR; its account and region may be others than the service's."""
    registry, _, name = image.partition("/")
    account, _, _, region, *_ = registry.split(".")
    return f"arn:{partition}:ecr:{region}:{account}:repository/{name.partition('@')[0].partition(':')[0]}"
