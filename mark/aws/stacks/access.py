"""Template that an administrator deploys once for others' rollouts: a boundary, a role, and people's policy.

The boundary bounds every role of the service, whatever a template gives to it: all actions on what is the
service's own, by name or tag, what its processes need beside that, and nothing else. So who deploys cannot reach
further than the service does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mark.aws.ec2.tags import SERVICE
from mark.aws.names import boundary_name, bucket_pattern, name_of, rollout_role
from mark.aws.permissions.policies import PolicyDocument, Statement, policy_document, scoped, trust_policy
from mark.aws.permissions.scopes import NO_RESOURCE, SCOPES, Conditions, Names
from mark.aws.stacks.cloudformation import StackTemplate
from mark.aws.stacks.deployer import deployer_policy, rollout_policies

_LAUNCH = ("LaunchFrom", "LaunchTemplates", "LaunchedAlong", "LaunchedTagged")
_BESIDE = {
    "InstanceRole": ("iam:PassRole",),
    "OutsidePause": ("ssm:GetParameter",),
    "Record": ("route53:ChangeResourceRecordSets",),
    "Records": ("route53:ListResourceRecordSets",),
    "Mail": ("ses:SendEmail", "ses:SendRawEmail"),
    "SpotRole": ("iam:CreateServiceLinkedRole",),
    "TagLaunched": ("ec2:CreateTags",),
}
"""Scopes of the service's own permissions that the boundary has too, beside those of launches."""
_ON_ALL = (
    "ce:GetCostAndUsage",
    "cloudwatch:DescribeAlarms",
    "ec2:Describe*",
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:GetAuthorizationToken",
    "ecr:GetDownloadUrlForLayer",
    "savingsplans:DescribeSavingsPlanRates",
    "savingsplans:DescribeSavingsPlans",
    "servicequotas:ListServiceQuotas",
)
"""Reads, and images: an account's repositories are shared, and what a role may pull its own policy says."""
_INTERFACES = tuple(
    f"ec2:{action}"
    for action in (
        "AssignPrivateIpAddresses",
        "CreateNetworkInterface",
        "DeleteNetworkInterface",
        "UnassignPrivateIpAddresses",
    )
)
"""Lambda's own calls for functions in a network, which take no resource that could be named (its guide)."""


def boundary(names: Names, secrets: Sequence[str] = ()) -> PolicyDocument:
    """The permissions boundary of the service's roles. `secrets`: ARNs of those that are not the service's own."""
    own = f"{name_of(names.service, '')}*"
    on_tagged: Conditions = {"StringEquals": {f"aws:ResourceTag/{SERVICE}": names.service}}
    logs = (f"/aws/lambda/{own}", f"/mark/{names.service}/*")
    log_groups = tuple(names.arn("logs", f"log-group:{name}:*") for name in logs)
    named = (
        names.arn("cloudformation", f"stack/{own}"),
        names.arn("dynamodb", f"table/{own}"),
        names.arn("lambda", f"function:{own}"),
        *log_groups,
        f"arn:{names.partition}:s3:::{bucket_pattern(names.service)}",
        names.arn("sns", own),
        names.arn("sqs", own),
    )
    doings = (
        *("cloudformation:SignalResource", "dynamodb:*", "lambda:InvokeFunction", "logs:*", "s3:*"),
        *("sns:Publish", "sqs:*"),
    )
    readable = (names.arn("secretsmanager", f"secret:{own}"), *SCOPES["Webhook"].resources(names), *secrets)
    made = (
        _statement("Own", doings, named, {}, "what bears the service's name"),
        _statement("Secrets", ("secretsmanager:GetSecretValue",), readable, {}, "the service's secrets"),
        _statement("Tagged", ("ec2:*Instances",), names.ec2("instance"), on_tagged, "instances of the service"),
        _statement("Seen", _ON_ALL, ("*",), {}, NO_RESOURCE),
        _statement("Interfaces", _INTERFACES, ("*",), {}, NO_RESOURCE),
        *(scoped(scope, ("ec2:CreateFleet", "ec2:RunInstances"), names) for scope in _LAUNCH),
        *(scoped(scope, actions, names) for scope, actions in _BESIDE.items()),
    )
    return policy_document(item for item in made if item.resources)


def _statement(
    sid: str, actions: tuple[str, ...], resources: tuple[str, ...], conditions: Conditions, why: str
) -> Statement:
    return Statement(sid=sid, actions=actions, resources=resources, conditions=conditions, why=why)


def access_template(
    names: Names, types: Iterable[str], *, secrets: Sequence[str] = (), more: Sequence[Statement] = ()
) -> StackTemplate:
    """The CloudFormation template of all that, for stacks with resources of these types.

    `more`: what the role needs beside that. An account that is `${AWS::AccountId}` is filled in by CloudFormation.
    """
    service = names.service
    rights = rollout_policies(names, types, more)
    policies = {
        "Boundary": (boundary_name(service), boundary(names, secrets)),
        "People": (f"mark.{service}.deployer", deployer_policy(names)),
        **{f"Rights{place}": (f"{rollout_role(service)}-{place}", rule) for place, rule in enumerate(rights)},
    }
    role = {
        "RoleName": rollout_role(service),
        "AssumeRolePolicyDocument": trust_policy("cloudformation", names.account),
        "ManagedPolicyArns": [{"Ref": f"Rights{place}"} for place in range(len(rights))],
    }
    resources = {
        logical: {
            "Type": "AWS::IAM::ManagedPolicy",
            "Properties": {"ManagedPolicyName": name, "PolicyDocument": rule},
        }
        for logical, (name, rule) in policies.items()
    }
    return {
        "Description": f"MArk {service}: who may roll it out, and how far its roles reach",
        "Resources": _filled({**resources, "Rollout": {"Type": "AWS::IAM::Role", "Properties": role}}),
        "Outputs": {"People": {"Description": "Attach it to those who deploy", "Value": {"Ref": "People"}}},
    }


def _filled(value: Any) -> Any:
    """The value, with `Fn::Sub` where CloudFormation has to fill something in."""
    if isinstance(value, Mapping):
        return {key: _filled(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(item) for item in value]
    return {"Fn::Sub": value} if isinstance(value, str) and "${AWS::" in value else value
