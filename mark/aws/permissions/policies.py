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
    made = (_statement(scope, actions[scope], names) for scope in sorted(actions))
    return tuple(statement for statement in made if statement.resources)


def _statement(scope: str, actions: set[str], names: Names) -> Statement:
    resources, conditions, why = SCOPES[scope]
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


_NEEDS: Mapping[tuple[str, str], tuple[Need, ...]] = MappingProxyType(
    {
        ("ce", "GetCostAndUsage"): _each("CostReads", "ce:GetCostAndUsage"),
        ("cloudformation", "CreateChangeSet"): _each("Stacks", "cloudformation:CreateChangeSet"),
        ("cloudformation", "DeleteChangeSet"): _each("Stacks", "cloudformation:DeleteChangeSet"),
        ("cloudformation", "DeleteStack"): _each("Stacks", "cloudformation:DeleteStack"),
        ("cloudformation", "DescribeChangeSet"): _each("Stacks", "cloudformation:DescribeChangeSet"),
        ("cloudformation", "DescribeStackEvents"): _each("Stacks", "cloudformation:DescribeStackEvents"),
        ("cloudformation", "DescribeStacks"): _each("StackReads", "cloudformation:DescribeStacks"),
        ("cloudformation", "ExecuteChangeSet"): _each("Stacks", "cloudformation:ExecuteChangeSet"),
        ("cloudformation", "GetTemplate"): _each("Stacks", "cloudformation:GetTemplate"),
        ("cloudformation", "ListStackResources"): _each("Stacks", "cloudformation:ListStackResources"),
        ("cloudwatch", "DeleteAlarms"): _each("Alarms", "cloudwatch:DeleteAlarms"),
        ("cloudwatch", "DescribeAlarms"): _each("AlarmReads", "cloudwatch:DescribeAlarms"),
        ("cloudwatch", "PutMetricAlarm"): _each("Alarms", "cloudwatch:PutMetricAlarm", "cloudwatch:TagResource"),
        ("dynamodb", "DeleteItem"): _each("Lease", "dynamodb:DeleteItem"),
        ("dynamodb", "UpdateItem"): _each("Lease", "dynamodb:UpdateItem"),
        ("dynamodb", "GetItem"): _each("Lease", "dynamodb:GetItem"),
        ("dynamodb", "PutItem"): _each("Lease", "dynamodb:PutItem"),
        ("dynamodb", "Query"): _each("Lease", "dynamodb:Query"),
        ("dynamodb", "TransactWriteItems"): _each("Lease", "dynamodb:ConditionCheckItem", "dynamodb:PutItem"),
        ("ec2", "CreateFleet"): (
            *_launch("ec2:CreateFleet", "ec2:RunInstances"),
            Need("iam:CreateServiceLinkedRole", "SpotRole"),
        ),
        ("ec2", "CreateLaunchTemplate"): (
            Need("ec2:CreateLaunchTemplate", "NewTemplates"),
            Need("ec2:CreateTags", "TagTemplates"),
        ),
        ("ec2", "CreateLaunchTemplateVersion"): _each("OwnTemplates", "ec2:CreateLaunchTemplateVersion"),
        ("ec2", "DeleteLaunchTemplate"): _each("OwnTemplates", "ec2:DeleteLaunchTemplate"),
        ("ec2", "DescribeAvailabilityZones"): _each("Ec2Reads", "ec2:DescribeAvailabilityZones"),
        ("ec2", "DescribeSubnets"): _each("Ec2Reads", "ec2:DescribeSubnets"),
        ("ec2", "DeleteVolume"): _each("OwnVolumes", "ec2:DeleteVolume"),
        ("ec2", "DescribeVolumes"): _each("Ec2Reads", "ec2:DescribeVolumes"),
        ("ec2", "DescribeCapacityReservations"): _each("Ec2Reads", "ec2:DescribeCapacityReservations"),
        ("ec2", "DescribeImages"): _each("Ec2Reads", "ec2:DescribeImages"),
        ("ec2", "DescribeInstanceTypeOfferings"): _each("Ec2Reads", "ec2:DescribeInstanceTypeOfferings"),
        ("ec2", "DescribeInstanceTypes"): _each("Ec2Reads", "ec2:DescribeInstanceTypes"),
        ("ec2", "DescribeInstances"): _each("Ec2Reads", "ec2:DescribeInstances"),
        ("ec2", "DescribeLaunchTemplateVersions"): _each("Ec2Reads", "ec2:DescribeLaunchTemplateVersions"),
        ("ec2", "DescribeLaunchTemplates"): _each("Ec2Reads", "ec2:DescribeLaunchTemplates"),
        ("ec2", "DescribeReservedInstances"): _each("Ec2Reads", "ec2:DescribeReservedInstances"),
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
        ("freetier", "GetAccountPlanState"): _each("PriceReads", "freetier:GetAccountPlanState"),
        ("iam", "CreateServiceLinkedRole"): _each("LinkedRoles", "iam:CreateServiceLinkedRole"),
        ("iam", "CreateRole"): _each("OwnRoles", "iam:CreateRole", "iam:TagRole"),
        ("iam", "DeleteRole"): _each("OwnRoles", "iam:DeleteRole"),
        ("iam", "DeleteRolePolicy"): _each("OwnRoles", "iam:DeleteRolePolicy"),
        ("iam", "GetRole"): _each("OwnRoles", "iam:GetRole"),
        ("iam", "PutRolePolicy"): _each("OwnRoles", "iam:PutRolePolicy"),
        ("iam", "SimulatePrincipalPolicy"): _each("ControllersRoles", "iam:SimulatePrincipalPolicy"),
        ("lambda", "CreateEventSourceMapping"): _each("NewMappings", "lambda:CreateEventSourceMapping"),
        ("lambda", "CreateFunction"): (
            *_each("NewFunctions", "lambda:CreateFunction", "lambda:TagResource"),
            Need("iam:PassRole", "HandFunctionsRole"),
        ),
        ("lambda", "DeleteEventSourceMapping"): _each("Mappings", "lambda:DeleteEventSourceMapping"),
        ("lambda", "DeleteFunction"): _each("OwnFunctions", "lambda:DeleteFunction"),
        ("lambda", "GetAccountSettings"): _each("LambdaReads", "lambda:GetAccountSettings"),
        ("lambda", "GetFunction"): _each("OwnFunctions", "lambda:GetFunction"),
        ("lambda", "GetFunctionConfiguration"): _each("NamedFunctions", "lambda:GetFunctionConfiguration"),
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
        ("resourcegroupstaggingapi", "GetResources"): _each("TagReads", "tag:GetResources"),
        ("route53", "ChangeResourceRecordSets"): _each("Record", "route53:ChangeResourceRecordSets"),
        ("route53", "ListResourceRecordSets"): _each("Records", "route53:ListResourceRecordSets"),
        ("s3", "CreateBucket"): _each("Bucket", "s3:CreateBucket"),
        ("s3", "DeleteObjects"): _each("Objects", "s3:DeleteObject", "s3:DeleteObjectVersion"),
        ("s3", "GetObject"): _each("Objects", "s3:GetObject"),
        ("s3", "HeadObject"): _each("Objects", "s3:GetObject", "s3:ListBucket"),
        ("s3", "ListObjectVersions"): _each("Objects", "s3:ListBucketVersions"),
        ("s3", "PutBucketLifecycleConfiguration"): _each("Bucket", "s3:PutLifecycleConfiguration"),
        ("s3", "PutBucketTagging"): _each("Bucket", "s3:PutBucketTagging"),
        ("s3", "PutBucketVersioning"): _each("Bucket", "s3:PutBucketVersioning"),
        ("s3", "PutObject"): _each("Objects", "s3:PutObject"),
        ("scheduler", "CreateSchedule"): (
            Need("scheduler:CreateSchedule", "Schedule"),
            Need("iam:PassRole", "HandScheduleRole"),
        ),
        ("scheduler", "DeleteSchedule"): _each("Schedule", "scheduler:DeleteSchedule"),
        ("savingsplans", "DescribeSavingsPlanRates"): _each("Plans", "savingsplans:DescribeSavingsPlanRates"),
        ("savingsplans", "DescribeSavingsPlans"): _each("Plans", "savingsplans:DescribeSavingsPlans"),
        ("scheduler", "UpdateSchedule"): (
            Need("scheduler:UpdateSchedule", "Schedule"),
            Need("iam:PassRole", "HandScheduleRole"),
        ),
        ("secretsmanager", "DescribeSecret"): _each("Rotated", "secretsmanager:DescribeSecret"),
        ("secretsmanager", "GetSecretValue"): _each("StoreSecret", "secretsmanager:GetSecretValue"),
        ("secretsmanager", "PutSecretValue"): _each("Rotated", "secretsmanager:PutSecretValue"),
        ("secretsmanager", "UpdateSecretVersionStage"): _each(
            "Rotated", "secretsmanager:UpdateSecretVersionStage"
        ),
        ("service-quotas", "ListServiceQuotas"): _each("QuotaReads", "servicequotas:ListServiceQuotas"),
        ("sesv2", "GetAccount"): _each("MailReads", "ses:GetAccount"),
        ("sesv2", "GetEmailIdentity"): _each("MailIdentities", "ses:GetEmailIdentity"),
        ("sesv2", "SendEmail"): _each("Mail", "ses:SendEmail", "ses:SendRawEmail"),
        ("sqs", "ChangeMessageVisibilityBatch"): _each("EventsQueue", "sqs:ChangeMessageVisibility"),
        ("sqs", "CreateQueue"): _each("Queues", "sqs:CreateQueue", "sqs:TagQueue"),
        ("sqs", "DeleteMessageBatch"): _each("EventsQueue", "sqs:DeleteMessage"),
        ("sqs", "DeleteQueue"): _each("Queues", "sqs:DeleteQueue"),
        ("sqs", "GetQueueAttributes"): _each("Queues", "sqs:GetQueueAttributes"),
        ("sqs", "GetQueueUrl"): _each("Queues", "sqs:GetQueueUrl"),
        ("sqs", "ReceiveMessage"): _each("EventsQueue", "sqs:ReceiveMessage"),
        ("sqs", "SendMessage"): _each("EventsQueue", "sqs:SendMessage"),
        ("sqs", "SetQueueAttributes"): _each("Queues", "sqs:SetQueueAttributes"),
        ("ssm", "DeleteParameter"): _each("RolloutLock", "ssm:DeleteParameter"),
        ("ssm", "GetParameter"): _each("RolloutLock", "ssm:GetParameter"),
        ("ssm", "PutParameter"): _each("RolloutLock", "ssm:PutParameter"),
        ("sts", "AssumeRole"): _each("ControllersRoles", "sts:AssumeRole"),
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
