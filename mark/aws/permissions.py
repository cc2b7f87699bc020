"""What each role of a service may do on AWS: IAM statements, made from the calls that it makes (`calls.py`).

A call is more than the action of its name: EC2 Fleet launches, tags and hands over a role in the caller's name
(`_NEEDS`). Each action stands in a scope (`_SCOPES`): resources that carry the service's name, or its tags where
AWS gives them ids. What exists is told by `aws:ResourceTag`, what is being made by `aws:RequestTag`. A scope that
must be `*` says why. `PLATFORM` is what AWS itself, or an instance's start script, does with a role beside our
calls. It follows AWS's documents: the emulated AWS judges no permission.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mark.aws.calls import ROLES
from mark.aws.launching import OWNER, SERVICE
from mark.aws.names import RULES, name_of
from mark.domain.errors import unknown

Conditions = Mapping[str, Mapping[str, str | list[str]]]
"""Operator -> condition key -> what it must be, as a policy document has it."""
NO_RESOURCE = "AWS lets no resource be named for this action (service authorization reference)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Whose permissions: the service and its owner (tags), and where it stands. They may be tokens of CDK.

    `bucket` (a name), `repository` (of the model's image, a name), `secret` (an ARN) and `sender` (an identity of
    SES) are left out where the service has none.
    """

    service: str
    region: str
    account: str
    partition: str = "aws"
    owner: str = "mark"
    bucket: str = ""
    repository: str = ""
    secret: str = ""
    sender: str = ""

    def arn(self, service: str, rest: str) -> str:
        """The ARN of something of the account, in the region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{rest}"

    def ec2(self, *kinds: str) -> tuple[str, ...]:
        """All resources of these kinds: EC2 gives them ids, tags say whose they are."""
        return tuple(self.arn("ec2", f"{kind}/*") for kind in kinds)

    def role(self, part: str) -> str:
        """The ARN of a role of the service."""
        return f"arn:{self.partition}:iam::{self.account}:role/{name_of(self.service, part)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One `Allow` of a policy. `why` says what it is for, or why it is no narrower."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Conditions
    why: str

    def document(self) -> dict[str, Any]:
        """As a policy document has it."""
        conditions = {"Condition": {key: dict(value) for key, value in self.conditions.items()}}
        return {
            "Sid": self.sid,
            "Effect": "Allow",
            "Action": list(self.actions),
            "Resource": list(self.resources),
            **(conditions if self.conditions else {}),
        }


def statements(role: str, names: Names) -> tuple[Statement, ...]:
    """What the role may do, by scope; none for a role that calls nothing. Misconfigured for an unknown role."""
    return _statements((role,), names)


def policy(names: Names, *roles: str) -> dict[str, Any]:
    """The policy document of what stands for all these roles."""
    return {"Version": "2012-10-17", "Statement": [item.document() for item in _statements(roles, names)]}


def _statements(roles: tuple[str, ...], names: Names) -> tuple[Statement, ...]:
    actions: defaultdict[str, set[str]] = defaultdict(set)
    for role in roles:
        if role not in ROLES:
            raise unknown("role", role, ROLES)
        for need in (
            *(need for call in ROLES[role] for need in needs(call.service, call.action)),
            *PLATFORM[role],
        ):
            actions[need.scope].add(need.action)
    made = (_statement(scope, actions[scope], names) for scope in sorted(actions))
    return tuple(statement for statement in made if statement.resources)


def _statement(scope: str, actions: set[str], names: Names) -> Statement:
    resources, conditions, why = _SCOPES[scope]
    return Statement(
        sid=scope,
        actions=tuple(sorted(actions)),
        resources=resources(names),
        conditions=conditions(names),
        why=why,
    )


@dataclass(frozen=True, slots=True)
class Need:
    """An IAM action, and the scope in which it is needed."""

    action: str
    scope: str


def needs(service: str, action: str) -> tuple[Need, ...]:
    """The IAM actions of one call, as boto3 names it."""
    return _NEEDS[service, action]


def _each(scope: str, *actions: str) -> tuple[Need, ...]:
    return tuple(Need(action, scope) for action in actions)


def _launch(*actions: str) -> tuple[Need, ...]:
    """Launching: each action on all that a launch touches, the tags that it gives, the role that it hands over."""
    touched = ("LaunchFrom", "LaunchTemplates", "LaunchedAlong", "LaunchedTagged")
    return (
        *(Need(action, scope) for scope in touched for action in actions),
        Need("ec2:CreateTags", "TagLaunched"),
        Need("iam:PassRole", "InstanceRole"),
        Need("iam:CreateServiceLinkedRole", "SpotRole"),
    )


_NEEDS: Mapping[tuple[str, str], tuple[Need, ...]] = MappingProxyType(
    {
        ("ce", "GetCostAndUsage"): _each("CostReads", "ce:GetCostAndUsage"),
        ("ec2", "CreateFleet"): _launch("ec2:CreateFleet", "ec2:RunInstances"),
        ("ec2", "CreateLaunchTemplate"): (
            Need("ec2:CreateLaunchTemplate", "NewTemplates"),
            Need("ec2:CreateTags", "TagTemplates"),
        ),
        ("ec2", "CreateLaunchTemplateVersion"): _each("OwnTemplates", "ec2:CreateLaunchTemplateVersion"),
        ("ec2", "DeleteLaunchTemplate"): _each("OwnTemplates", "ec2:DeleteLaunchTemplate"),
        ("ec2", "DescribeInstanceTypes"): _each("Ec2Reads", "ec2:DescribeInstanceTypes"),
        ("ec2", "DescribeInstances"): _each("Ec2Reads", "ec2:DescribeInstances"),
        ("ec2", "DescribeLaunchTemplateVersions"): _each("Ec2Reads", "ec2:DescribeLaunchTemplateVersions"),
        ("ec2", "DescribeLaunchTemplates"): _each("Ec2Reads", "ec2:DescribeLaunchTemplates"),
        ("ec2", "DescribeSpotPriceHistory"): _each("Ec2Reads", "ec2:DescribeSpotPriceHistory"),
        ("ec2", "ModifyLaunchTemplate"): _each("OwnTemplates", "ec2:ModifyLaunchTemplate"),
        ("ec2", "RunInstances"): _launch("ec2:RunInstances"),
        ("ec2", "StartInstances"): _each("OwnInstances", "ec2:StartInstances"),
        ("ec2", "StopInstances"): _each("OwnInstances", "ec2:StopInstances"),
        ("ec2", "TerminateInstances"): _each("OwnInstances", "ec2:TerminateInstances"),
        ("ecr", "DescribeImages"): _each("Image", "ecr:DescribeImages"),
        ("events", "DeleteRule"): _each("Rules", "events:DeleteRule"),
        ("events", "PutRule"): _each("Rules", "events:PutRule", "events:TagResource"),
        ("events", "PutTargets"): _each("Rules", "events:PutTargets"),
        ("events", "RemoveTargets"): _each("Rules", "events:RemoveTargets"),
        ("iam", "CreateRole"): _each("FunctionsRole", "iam:CreateRole", "iam:TagRole"),
        ("iam", "DeleteRole"): _each("FunctionsRole", "iam:DeleteRole"),
        ("iam", "DeleteRolePolicy"): _each("FunctionsRole", "iam:DeleteRolePolicy"),
        ("iam", "GetRole"): _each("FunctionsRole", "iam:GetRole"),
        ("iam", "PutRolePolicy"): _each("FunctionsRole", "iam:PutRolePolicy"),
        ("lambda", "CreateEventSourceMapping"): _each("Mappings", "lambda:CreateEventSourceMapping"),
        ("lambda", "CreateFunction"): (
            *_each("NewFunctions", "lambda:CreateFunction", "lambda:TagResource"),
            Need("iam:PassRole", "HandFunctionsRole"),
        ),
        ("lambda", "DeleteEventSourceMapping"): _each("Mappings", "lambda:DeleteEventSourceMapping"),
        ("lambda", "DeleteFunction"): _each("OwnFunctions", "lambda:DeleteFunction"),
        ("lambda", "GetAccountSettings"): _each("LambdaReads", "lambda:GetAccountSettings"),
        ("lambda", "GetFunction"): _each("OwnFunctions", "lambda:GetFunction"),
        ("lambda", "GetFunctionConfiguration"): _each("OwnFunctions", "lambda:GetFunctionConfiguration"),
        ("lambda", "Invoke"): _each("OwnFunctions", "lambda:InvokeFunction"),
        ("lambda", "ListEventSourceMappings"): _each("LambdaReads", "lambda:ListEventSourceMappings"),
        ("lambda", "ListFunctions"): _each("LambdaReads", "lambda:ListFunctions"),
        ("lambda", "ListTags"): _each("NamedFunctions", "lambda:ListTags"),
        ("lambda", "UpdateFunctionCode"): _each("OwnFunctions", "lambda:UpdateFunctionCode"),
        ("lambda", "UpdateFunctionConfiguration"): (
            Need("lambda:UpdateFunctionConfiguration", "OwnFunctions"),
            Need("iam:PassRole", "HandFunctionsRole"),
        ),
        ("pricing", "GetProducts"): _each("PriceReads", "pricing:GetProducts"),
        ("secretsmanager", "GetSecretValue"): _each("StoreSecret", "secretsmanager:GetSecretValue"),
        ("service-quotas", "ListServiceQuotas"): _each("QuotaReads", "servicequotas:ListServiceQuotas"),
        ("sesv2", "GetAccount"): _each("MailReads", "ses:GetAccount"),
        ("sesv2", "GetEmailIdentity"): _each("Sender", "ses:GetEmailIdentity"),
        ("sesv2", "SendEmail"): _each("Sender", "ses:SendEmail", "ses:SendRawEmail"),
        ("sqs", "ChangeMessageVisibilityBatch"): _each("EventsQueue", "sqs:ChangeMessageVisibility"),
        ("sqs", "CreateQueue"): _each("Queues", "sqs:CreateQueue", "sqs:TagQueue"),
        ("sqs", "DeleteMessageBatch"): _each("EventsQueue", "sqs:DeleteMessage"),
        ("sqs", "DeleteQueue"): _each("Queues", "sqs:DeleteQueue"),
        ("sqs", "GetQueueAttributes"): _each("Queues", "sqs:GetQueueAttributes"),
        ("sqs", "GetQueueUrl"): _each("Queues", "sqs:GetQueueUrl"),
        ("sqs", "ReceiveMessage"): _each("EventsQueue", "sqs:ReceiveMessage"),
        ("sqs", "SendMessage"): _each("EventsQueue", "sqs:SendMessage"),
        ("sqs", "SetQueueAttributes"): _each("Queues", "sqs:SetQueueAttributes"),
        ("sts", "GetCallerIdentity"): (),  # everybody may ask who he is
    }
)
"""A call -> the IAM actions that it takes."""

_LOGS = _each("Logs", "logs:CreateLogStream", "logs:PutLogEvents")
PLATFORM: Mapping[str, tuple[Need, ...]] = MappingProxyType(
    dict.fromkeys(ROLES, ())
    | {
        "agent": (
            *_each("ImageLogin", "ecr:GetAuthorizationToken"),
            *_each("Image", "ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"),
            *_each("Artifacts", "s3:GetObject"),
            *_each("StoreSecret", "secretsmanager:GetSecretValue"),
        ),
        "infer": _LOGS,
        "interruption": (
            *_LOGS,
            *_each("RawQueue", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"),
        ),
        "report": _LOGS,
        "warm": _LOGS,
    }
)
"""By role: pulling the model's image, a function's logs, the queue that Lambda reads for a function."""


def _owned(names: Names) -> Conditions:
    return {"StringEquals": _tags("aws:ResourceTag", names)}


def _made_for(names: Names) -> Conditions:
    return {"StringEquals": _tags("aws:RequestTag", names)}


def _tagged_by(*actions: str) -> Callable[[Names], Conditions]:
    """Tags are given while these actions make what is tagged, and never afterwards."""

    def conditions(names: Names) -> Conditions:
        return {"StringEquals": {**_tags("aws:RequestTag", names), "ec2:CreateAction": list(actions)}}

    return conditions


def _tags(key: str, names: Names) -> dict[str, str | list[str]]:
    return {f"{key}/{SERVICE}": names.service, f"{key}/{OWNER}": names.owner}


def _passed_to(service: str) -> Callable[[Names], Conditions]:
    return lambda _: {"StringEquals": {"iam:PassedToService": f"{service}.amazonaws.com"}}


def _in_region(names: Names) -> Conditions:
    return {"StringEquals": {"aws:RequestedRegion": names.region}}


def _always(_: Names) -> Conditions:
    return {}


def _queues(*parts: str) -> Callable[[Names], tuple[str, ...]]:
    return lambda names: tuple(names.arn("sqs", name_of(names.service, part)) for part in parts)


def _functions(names: Names) -> tuple[str, ...]:
    return (names.arn("lambda", f"function:{name_of(names.service, '')}*"),)


def _used_by_launches(names: Names) -> tuple[str, ...]:
    shared = (f"arn:{names.partition}:ec2:{names.region}::{kind}/*" for kind in ("image", "snapshot"))
    return (*shared, *names.ec2("security-group", "subnet"))


def _spot_role(names: Names) -> tuple[str, ...]:
    path = "aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    return (f"arn:{names.partition}:iam::{names.account}:role/{path}",)


def _mappings_of_own(names: Names) -> Conditions:
    return {"ArnLike": {"lambda:FunctionArn": list(_functions(names))}}


def _everything(_: Names) -> tuple[str, ...]:
    return ("*",)


_Scope = tuple[Callable[[Names], tuple[str, ...]], Callable[[Names], Conditions], str]
_SCOPES: Mapping[str, _Scope] = MappingProxyType(
    {
        "Artifacts": (
            lambda n: (f"arn:{n.partition}:s3:::{n.bucket}/artifacts/*",) if n.bucket else (),
            _always,
            "the model's bundle",
        ),
        "CostReads": (_everything, _always, NO_RESOURCE),
        "Ec2Reads": (_everything, _in_region, NO_RESOURCE),
        "EventsQueue": (_queues("events"), _always, "what happens to the service's instances"),
        "FunctionsRole": (lambda n: (n.role("functions"),), _always, "the role of the service's functions"),
        "HandFunctionsRole": (
            lambda n: (n.role("functions"),),
            _passed_to("lambda"),
            "functions run as their role",
        ),
        "Image": (
            lambda n: (n.arn("ecr", f"repository/{n.repository}"),) if n.repository else (),
            _always,
            "the model's image",
        ),
        "ImageLogin": (lambda n: ("*",) if n.repository else (), _in_region, NO_RESOURCE),
        "InstanceRole": (lambda n: (n.role("agent"),), _passed_to("ec2"), "instances run as their role"),
        "LambdaReads": (_everything, _in_region, NO_RESOURCE),
        "LaunchFrom": (_used_by_launches, _always, "images and networks that a launch uses are not made by it"),
        "LaunchTemplates": (lambda n: n.ec2("launch-template"), _owned, "instances start from own templates"),
        "LaunchedAlong": (
            lambda n: n.ec2("network-interface", "spot-instances-request"),
            _always,
            "made with an instance, which must be tagged; EC2 Fleet gives them no tags",
        ),
        "LaunchedTagged": (lambda n: n.ec2("fleet", "instance", "volume"), _made_for, "what is rented is tagged"),
        "Logs": (
            lambda n: (n.arn("logs", f"log-group:/aws/lambda/{name_of(n.service, '')}*:*"),),
            _always,
            "a function's own logs",
        ),
        "MailReads": (_everything, _in_region, NO_RESOURCE),
        "Mappings": (
            lambda n: (n.arn("lambda", "event-source-mapping:*"),),
            _mappings_of_own,
            "the raw queue's reader",
        ),
        "NamedFunctions": (_functions, _always, "tags are read to learn whose a function is"),
        "NewFunctions": (_functions, _made_for, "functions are tagged when they are made"),
        "NewTemplates": (lambda n: n.ec2("launch-template"), _made_for, "templates are tagged when they are made"),
        "OwnFunctions": (_functions, _owned, "functions of the service"),
        "OwnInstances": (lambda n: n.ec2("instance"), _owned, "instances of the service"),
        "OwnTemplates": (lambda n: n.ec2("launch-template"), _owned, "templates of the service"),
        "PriceReads": (_everything, _always, NO_RESOURCE),
        "Queues": (_queues("events", "raw", "raw-dead"), _always, "queues of the service"),
        "QuotaReads": (_everything, _in_region, NO_RESOURCE),
        "RawQueue": (_queues("raw"), _always, "Lambda reads it for the function"),
        "Rules": (
            lambda n: tuple(n.arn("events", f"rule/{name_of(n.service, rule)}") for rule in RULES),
            _always,
            "rules of the service",
        ),
        "Sender": (
            lambda n: (n.arn("ses", f"identity/{n.sender}"),) if n.sender else (),
            _always,
            "who reports are from",
        ),
        "SpotRole": (
            _spot_role,
            lambda _: {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
            "EC2 makes it when an account first asks for spot",
        ),
        "StoreSecret": (lambda n: (n.secret,) if n.secret else (), _always, "the store's password"),
        "TagLaunched": (
            lambda n: n.ec2("fleet", "instance", "volume"),
            _tagged_by("CreateFleet", "RunInstances"),
            "tags are given by the launch alone",
        ),
        "TagTemplates": (
            lambda n: n.ec2("launch-template"),
            _tagged_by("CreateLaunchTemplate"),
            "tags are given when a template is made",
        ),
    }
)
"""A scope -> its resources (none: the service has no such thing), its conditions, and why it is as it is."""
