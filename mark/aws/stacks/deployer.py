"""Permissions to roll a service out: those of people, and those of the role in which CloudFormation acts for them.

People may ask for changes of the service's stacks and hand that role over, no more. The role may make, change and
remove what the stacks hold (`actions.py`): what has a name by the service's name; what EC2 gives an id by the
service's tag, but for the moment in which it is made, since CloudFormation tags some kinds only then. It makes no
role that lacks the permissions boundary (`access.py`), so that nobody gets beyond it by a template of theirs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from mark.aws.ec2.tags import SERVICE
from mark.aws.names import boundary_name, bucket_pattern, name_of, rollout_role
from mark.aws.permissions.policies import PolicyDocument, Statement, policy_document, statements
from mark.aws.permissions.scopes import NO_RESOURCE, Conditions, Names, linked_roles, machine_images
from mark.aws.stacks.actions import stack_actions

_SEEN = re.compile(r"(?<=:)Describe\w+")
ROLES_FOR = ("ec2", "ecs-tasks", "lambda", "scheduler")
"""Services that run as the service's roles."""
GLOBAL_REGION = "us-east-1"
"""Where calls of Route 53 are, which knows no regions (IAM user guide, aws:RequestedRegion)."""


LONGEST_POLICY = 6144
"""Letters of a managed policy, white space not counted (IAM quotas)."""


def deployer_policy(names: Names) -> PolicyDocument:
    """The policy document of people who deploy a service's stacks, and remove them."""
    hands_over = Statement(
        sid="HandRolloutRole",
        actions=("iam:PassRole",),
        resources=(f"arn:{names.partition}:iam::{names.account}:role/{rollout_role(names.service)}",),
        conditions={"StringEquals": {"iam:PassedToService": "cloudformation.amazonaws.com"}},
        why="CloudFormation acts in the role of the service's rollout",
    )
    return policy_document((*statements("deployer", names), hands_over))


def rollout_policies(
    names: Names, types: Iterable[str], more: Sequence[Statement] = ()
) -> tuple[PolicyDocument, ...]:
    """The policy documents of the role in which CloudFormation acts, none longer than a managed policy may be."""
    packed: list[list[Statement]] = [[]]
    for item in (*stack_statements(names, types), *more):
        if length_of(policy_document([*packed[-1], item])) > LONGEST_POLICY:
            packed.append([])
        packed[-1].append(item)
    return tuple(policy_document(items) for items in packed)


def length_of(policy: PolicyDocument) -> int:
    """Letters of a policy document as IAM counts them."""
    return len(json.dumps(policy, separators=(",", ":")))


def boundary_arn(names: Names) -> str:
    """The ARN of the policy that bounds the service's roles."""
    return f"arn:{names.partition}:iam::{names.account}:policy/{boundary_name(names.service)}"


def stack_statements(names: Names, types: Iterable[str]) -> tuple[Statement, ...]:
    """Permissions that CloudFormation needs for resources of these types."""
    grouped: dict[str, set[str]] = {}
    for action in stack_actions(types):
        grouped.setdefault(_scope(action), set()).add(action)
    # by name they are so many that the policy would be longer than a role's may be
    grouped["StackSeen"] = {_SEEN.sub("Describe*", action) for action in grouped.get("StackSeen", ())}
    grouped["StackImages"] = {"ssm:GetParameters"}
    scopes = _scopes(names)
    return tuple(
        Statement(
            sid=sid,
            actions=tuple(sorted(actions)),
            resources=scopes[sid][0],
            conditions=scopes[sid][1],
            why=scopes[sid][2],
        )
        for sid, actions in sorted(grouped.items())
        if actions
    )


_SCOPE_OF: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), scope)
    for pattern, scope in (
        (r"iam:PassRole", "StackRoles"),
        (r"iam:CreateServiceLinkedRole", "StackLinked"),
        (r"iam:(CreateRole|(Delete|Put)RolePolicy|PutRolePermissionsBoundary)", "StackRolesMade"),
        (r"ec2:CreateTags", "StackTags"),
        (r"route53:CreateHostedZone", "StackZoneMade"),
        (r"route53:\w+", "StackZones"),
        (r"(ec2|autoscaling|elasticloadbalancing|elasticache|logs):Describe\w+", "StackSeen"),
        (r"cloudwatch:DescribeAlarms|ecs:DescribeTaskDefinition|secretsmanager:GetRandomPassword", "StackSeen"),
        (r"ec2:(Create(?!Route$|LaunchTemplateVersion)\w+|RunInstances)", "StackMade"),
        (r"ecs:(Der|R)egisterTaskDefinition|lambda:\w+EventSourceMapping|sns:Unsubscribe", "StackUnnamed"),
        (r"ec2:\w+", "StackOwned"),
    )
)
"""Actions -> their scope, the first that suits. `StackRolesMade`: what IAM asks a role's boundary of (service
authorization reference); all that is not here is allowed on what bears the service's name."""


def _scope(action: str) -> str:
    found = (scope for pattern, scope in _SCOPE_OF if pattern.fullmatch(action))
    return next(found, f"StackNamed{action.partition(':')[0].capitalize()}")


def _scopes(names: Names) -> Mapping[str, tuple[tuple[str, ...], Conditions, str]]:
    """Resources, conditions, and why they are no narrower."""
    here = {"StringEquals": {"aws:RequestedRegion": names.region}}
    tags: dict[str, str | list[str]] = {f"/{SERVICE}": names.service}
    return {
        "StackImages": (
            machine_images(names),
            {},
            "templates name AWS's newest image",
        ),
        "StackLinked": (
            *linked_roles(names),
            "made once an account, by the service that uses it",
        ),
        "StackMade": (
            ("*",),
            here,
            "what is made has no tag yet, and may stand in another's network",
        ),
        **{
            f"StackNamed{service.capitalize()}": (arns, {}, "named after the service or its stacks")
            for service, arns in _named(names).items()
        },
        "StackOwned": (
            names.ec2("*"),
            {"StringEquals": {f"aws:ResourceTag{key}": value for key, value in tags.items()}},
            "of the service, by its tags",
        ),
        "StackRoles": (
            (f"{names.role('')}*",),
            {"StringEquals": {"iam:PassedToService": [f"{service}.amazonaws.com" for service in ROLES_FOR]}},
            "processes and functions run as the service's roles",
        ),
        "StackRolesMade": (
            (f"{names.role('')}*",),
            {"StringEquals": {"iam:PermissionsBoundary": boundary_arn(names)}},
            "no role of the service is made, or given rights, without its boundary",
        ),
        "StackSeen": (("*",), here, NO_RESOURCE),
        "StackTags": (
            names.ec2("*"),
            {"StringEquals": {f"aws:RequestTag{key}": value for key, value in tags.items()}},
            "CloudFormation tags some kinds only after it has made them",
        ),
        "StackUnnamed": (("*",), here, NO_RESOURCE),
        "StackZoneMade": (("*",), {"StringEquals": {"aws:RequestedRegion": GLOBAL_REGION}}, NO_RESOURCE),
        "StackZones": (
            tuple(f"arn:{names.partition}:route53:::{kind}/*" for kind in ("change", "hostedzone")),
            {},
            "Route 53 gives zones their ids, and no condition tells whose they are",
        ),
    }


def _named(names: Names) -> Mapping[str, tuple[str, ...]]:
    """By service, all that bears the service's name, or one that CloudFormation gave it.

    That begins with the stack's. Balancers and target groups, whose names have 32 letters, keep five or six of it
    (`EC2Co-EcsEl-1TKLTMITMM0EO` in AWS's examples): `mark-`. `tests/infra/test_deployer.py` has the table.
    """
    own = f"{name_of(names.service, '')}*"
    where = f"{names.region}:{names.account}"
    parts = (
        f"autoscaling:{where}:autoScalingGroup:*:autoScalingGroupName/{own}",
        f"budgets::{names.account}:budget/{own}",
        f"cloudwatch:{where}:alarm:{own}",
        f"cloudwatch::{names.account}:dashboard/{own}",
        f"dynamodb:{where}:table/{own}",
        f"ecs:{where}:cluster/{own}",
        f"ecs:{where}:service/{own}",
        f"ecs:{where}:task-definition/{own}",
        f"elasticache:{where}:*:{own}",
        f"elasticache:{where}:parametergroup:default.*",
        f"elasticloadbalancing:{where}:listener/net/mark-*",
        f"elasticloadbalancing:{where}:loadbalancer/net/mark-*",
        f"elasticloadbalancing:{where}:targetgroup/mark-*",
        f"events:{where}:rule/{own}",
        f"iam::{names.account}:instance-profile/{own}",
        f"iam::{names.account}:role/{own}",
        f"lambda:{where}:function:{own}",
        f"lambda:{where}:event-source-mapping:*",
        f"logs:{where}:log-group:/aws/ecs/containerinsights/{own}",
        f"logs:{where}:log-group:/aws/lambda/{own}",
        f"logs:{where}:log-group:/mark/{names.service}/*",
        f"s3:::{bucket_pattern(names.service)}",
        f"scheduler:{where}:schedule/default/{own}",
        f"secretsmanager:{where}:secret:{own}",
        f"sns:{where}:{own}",
        f"sqs:{where}:{own}",
    )
    found: dict[str, tuple[str, ...]] = {}
    for part in parts:
        service = part.partition(":")[0]
        found[service] = (*found.get(service, ()), f"arn:{names.partition}:{part}")
    return found
