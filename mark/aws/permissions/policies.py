"""Permissions of each role of a service on AWS: IAM statements, made from the calls that it makes (`calls.py`).

A call is more than the action of its name: EC2 Fleet launches, tags and hands over a role in the caller's name
(`_NEEDS`). Each action stands in a scope (`scopes.py`): resources that carry the service's name, or its
tags where AWS gives them ids. A scope that must be `*` says why. `PLATFORM` is what AWS itself, or an instance's
start script, does with a role beside our calls. It follows AWS's documents; the emulated AWS holds every call
to it (`mark/emulator/authorization`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NotRequired, TypedDict

from mark.aws.permissions.calls import ROLES
from mark.aws.permissions.scopes import NO_RESOURCE, SCOPES, Conditions, Names
from mark.domain.errors import unknown

__all__ = [
    "NO_RESOURCE",
    "PLATFORM",
    "Names",
    "Need",
    "PolicyDocument",
    "Statement",
    "needs",
    "policy",
    "policy_document",
    "statements",
    "trust_policy",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One `Allow` of a policy. `why` is its purpose, or the reason why it is no narrower."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Conditions
    why: str

    def document(self) -> StatementDocument:
        """The statement in the form of a policy document."""
        found: StatementDocument = {
            "Sid": self.sid,
            "Effect": "Allow",
            "Action": list(self.actions),
            "Resource": list(self.resources),
        }
        if self.conditions:
            found["Condition"] = {key: dict(value) for key, value in self.conditions.items()}
        return found


class StatementDocument(TypedDict):
    """A statement as IAM has it."""

    Sid: str
    Effect: Literal["Allow", "Deny"]
    Action: list[str]
    Resource: list[str]
    Condition: NotRequired[Conditions]


class PolicyDocument(TypedDict):
    """A policy as IAM has it."""

    Version: str
    Statement: list[StatementDocument]


def policy_document(items: Iterable[Statement]) -> PolicyDocument:
    """The policy of these statements."""
    return {"Version": "2012-10-17", "Statement": [item.document() for item in items]}


def trust_policy(service: str, account: str = "") -> Mapping[str, object]:
    """The trust policy of a role: a service of AWS takes it, for one account alone where that is given."""
    condition = {"Condition": {"StringEquals": {"aws:SourceAccount": account}}} if account else {}
    principal = {"Service": f"{service}.amazonaws.com"}
    taken = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole", **condition}
    return {"Version": "2012-10-17", "Statement": [taken]}


def statements(role: str, names: Names) -> tuple[Statement, ...]:
    """A role's statements, by scope; none for one that calls nothing. Misconfigured for an unknown role."""
    return _statements((role,), names)


def policy(names: Names, *roles: str) -> PolicyDocument:
    """The policy document of what stands for all these roles."""
    return policy_document(_statements(roles, names))


def _statements(roles: tuple[str, ...], names: Names) -> tuple[Statement, ...]:
    actions: defaultdict[str, set[str]] = defaultdict(set)
    for role in roles:
        if role not in ROLES:
            raise unknown("role", role, ROLES)
        for call in ROLES[role]:
            for need in needs(call.service, call.action):
                actions[call.within or need.scope].add(need.action)
        for need in PLATFORM[role]:
            actions[need.scope].add(need.action)
    made = (scoped(scope, actions[scope], names) for scope in sorted(actions))
    return tuple(statement for statement in made if statement.resources)


def scoped(scope: str, actions: Iterable[str], names: Names) -> Statement:
    """These actions in a scope."""
    resources, why, conditions = SCOPES[scope]
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
    )


_IAM_NAMES = {"resourcegroupstaggingapi": "tag", "service-quotas": "servicequotas", "sesv2": "ses"}
"""Services that IAM names otherwise than boto3."""
_BY_NAME = (
    ("AlarmReads", "cloudwatch", "DescribeAlarms"),
    ("Alarms", "cloudwatch", "DeleteAlarms"),
    ("Bucket", "s3", "CreateBucket PutBucketTagging PutBucketVersioning"),
    ("ControllersRoles", "iam", "SimulatePrincipalPolicy"),
    ("ControllersRoles", "sts", "AssumeRole"),
    ("CostReads", "ce", "GetCostAndUsage"),
    (
        "Ec2Reads",
        "ec2",
        (
            "DescribeAvailabilityZones DescribeCapacityReservations DescribeImages DescribeInstanceTypeOfferings "
            "DescribeInstanceTypes DescribeInstances DescribeLaunchTemplateVersions DescribeLaunchTemplates "
            "DescribeReservedInstances DescribeSpotPriceHistory DescribeSubnets DescribeVolumes"
        ),
    ),
    ("EventsQueue", "sqs", "ReceiveMessage SendMessage"),
    ("Image", "ecr", "DescribeImages"),
    ("LambdaReads", "lambda", "GetAccountSettings ListEventSourceMappings ListFunctions"),
    ("Lease", "dynamodb", "DeleteItem GetItem PutItem Query UpdateItem"),
    ("LinkedRoles", "iam", "CreateServiceLinkedRole"),
    ("MailIdentities", "sesv2", "GetEmailIdentity"),
    ("MailReads", "sesv2", "GetAccount"),
    ("Mappings", "lambda", "DeleteEventSourceMapping"),
    ("NamedFunctions", "lambda", "GetFunctionConfiguration ListTags"),
    ("NewMappings", "lambda", "CreateEventSourceMapping"),
    ("Objects", "s3", "GetObject PutObject"),
    ("OwnFunctions", "lambda", "DeleteFunction GetFunction UpdateFunctionCode"),
    ("OwnInstances", "ec2", "StartInstances StopInstances TerminateInstances"),
    ("OwnRoles", "iam", "DeleteRole DeleteRolePolicy GetRole PutRolePolicy"),
    ("OwnTemplates", "ec2", "CreateLaunchTemplateVersion DeleteLaunchTemplate ModifyLaunchTemplate"),
    ("OwnVolumes", "ec2", "DeleteVolume"),
    ("Plans", "savingsplans", "DescribeSavingsPlanRates DescribeSavingsPlans"),
    ("PriceReads", "freetier", "GetAccountPlanState"),
    ("PriceReads", "pricing", "GetProducts"),
    ("Queues", "sqs", "DeleteQueue GetQueueAttributes GetQueueUrl SetQueueAttributes"),
    ("QuotaReads", "service-quotas", "ListServiceQuotas"),
    ("Record", "route53", "ChangeResourceRecordSets"),
    ("Records", "route53", "ListResourceRecordSets"),
    ("RolloutLock", "ssm", "DeleteParameter GetParameter PutParameter"),
    ("Rotated", "secretsmanager", "DescribeSecret PutSecretValue UpdateSecretVersionStage"),
    ("Rules", "events", "DeleteRule PutTargets RemoveTargets"),
    ("Schedule", "scheduler", "DeleteSchedule"),
    ("StackReads", "cloudformation", "DescribeStacks"),
    (
        "Stacks",
        "cloudformation",
        (
            "CreateChangeSet DeleteChangeSet DeleteStack DescribeChangeSet DescribeStackEvents ExecuteChangeSet "
            "GetTemplate ListStackResources"
        ),
    ),
    ("StoreSecret", "secretsmanager", "GetSecretValue"),
    ("TagReads", "resourcegroupstaggingapi", "GetResources"),
)
"""Calls that take the action of their name and no other, by scope and service."""
_NEEDS: Mapping[tuple[str, str], tuple[Need, ...]] = MappingProxyType(
    {
        **{
            (service, action): _each(scope, f"{_IAM_NAMES.get(service, service)}:{action}")
            for scope, service, actions in _BY_NAME
            for action in actions.split()
        },
        ("cloudwatch", "PutMetricAlarm"): _each("Alarms", "cloudwatch:PutMetricAlarm", "cloudwatch:TagResource"),
        ("dynamodb", "TransactWriteItems"): _each("Lease", "dynamodb:ConditionCheckItem", "dynamodb:PutItem"),
        ("ec2", "CreateFleet"): (
            *_launch("ec2:CreateFleet", "ec2:RunInstances"),
            Need("iam:CreateServiceLinkedRole", "SpotRole"),
        ),
        ("ec2", "CreateLaunchTemplate"): (
            Need("ec2:CreateLaunchTemplate", "NewTemplates"),
            Need("ec2:CreateTags", "TagTemplates"),
        ),
        ("ec2", "RunInstances"): _launch("ec2:RunInstances"),
        ("events", "PutRule"): _each("Rules", "events:PutRule", "events:TagResource"),
        ("iam", "CreateRole"): _each("OwnRoles", "iam:CreateRole", "iam:TagRole"),
        ("lambda", "CreateFunction"): (
            *_each("NewFunctions", "lambda:CreateFunction", "lambda:TagResource"),
            Need("iam:PassRole", "HandFunctionsRole"),
        ),
        ("lambda", "Invoke"): _each("OwnFunctions", "lambda:InvokeFunction"),
        ("lambda", "UpdateFunctionConfiguration"): (
            Need("lambda:UpdateFunctionConfiguration", "OwnFunctions"),
            Need("iam:PassRole", "HandFunctionsRole"),
        ),
        ("s3", "DeleteObjects"): _each("Objects", "s3:DeleteObject", "s3:DeleteObjectVersion"),
        ("s3", "HeadObject"): _each("Objects", "s3:GetObject", "s3:ListBucket"),
        ("s3", "ListObjectVersions"): _each("Objects", "s3:ListBucketVersions"),
        ("s3", "PutBucketLifecycleConfiguration"): _each("Bucket", "s3:PutLifecycleConfiguration"),
        ("scheduler", "CreateSchedule"): (
            Need("scheduler:CreateSchedule", "Schedule"),
            Need("iam:PassRole", "HandScheduleRole"),
        ),
        ("scheduler", "UpdateSchedule"): (
            Need("scheduler:UpdateSchedule", "Schedule"),
            Need("iam:PassRole", "HandScheduleRole"),
        ),
        ("sesv2", "SendEmail"): _each("Mail", "ses:SendEmail", "ses:SendRawEmail"),
        ("sqs", "ChangeMessageVisibilityBatch"): _each("EventsQueue", "sqs:ChangeMessageVisibility"),
        ("sqs", "CreateQueue"): _each("Queues", "sqs:CreateQueue", "sqs:TagQueue"),
        ("sqs", "DeleteMessageBatch"): _each("EventsQueue", "sqs:DeleteMessage"),
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
        # S3 denies what is not there to who may not list; Lambda tells of failures
        "orphans": (*_LOGS, *_each("Bucket", "s3:ListBucket"), *_each("Topic", "sns:Publish")),
        "probe": _LOGS,
        "report": _LOGS,
        "snapshot-report": _LOGS,
        "train": _LOGS,
        "warm": _LOGS,
        "webhook": (*_LOGS, *_each("UnpostedQueue", "sqs:SendMessage")),
    }
)
"""By role: pulling the model's image, a function's logs, the queue that Lambda reads for a function, and
the one to which it sends what a function could not do."""
