"""IAM roles. What a role may do comes from the calls that it makes: `mark.aws.permissions.policies`."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws, aws_iam

from mark.aws.names import TRAIN, boundary_name, repository_of
from mark.aws.permissions.policies import NO_RESOURCE, Names, Statement, policy_document, statements, trust_policy
from mark.aws.resources import LambdaSpec, called_as
from mark.config.rollout import RolloutSettings
from mark.infra.blueprint import Blueprint
from mark.infra.stack import ServiceStack, excuse
from mark.store.users import StoreUser

STORE, TOKEN = "store", "token"
"""The store, and the secret that clients must send."""


TELL_ACCOUNT = ("ecs-tasks", "scheduler")
"""Services that say for which account they take a role (their guides); EC2 and Lambda are not known to."""
LIVE = "live"
"""The alias of a function that keeps environments provisioned."""


def store_secret(user: StoreUser) -> str:
    """The secret by which this user reaches the store: its URL, or in the lean shape the password alone."""
    return f"{STORE}-{user.value}"


def names_of(
    stack: ServiceStack, *, secret: str = "", bucket: str = "", repository: str = "", zone: str = ""
) -> Names:
    """The service as its permissions name it."""
    rollout = stack.blueprint.rollout
    return Names(
        service=stack.blueprint.service,
        region=Aws.REGION,
        account=Aws.ACCOUNT_ID,
        partition=Aws.PARTITION,
        bucket=bucket,
        repository=repository,
        secret=secret,
        sender=rollout.report.sender or "",
        zone=zone,
        host=rollout.node.name or "",
        costs=rollout.report.reconcile,
        infer=tuple(name for one in stack.blueprint.infer for name in _called(one, rollout)),
        train=stack.blueprint.name(TRAIN) if stack.blueprint.trains else "",
        webhook=rollout.alarms.webhook or "",
    )


def _called(function: LambdaSpec, rollout: RolloutSettings) -> tuple[str, ...]:
    """Names by which a model's functions are called: their own, or also the alias of provisioned environments."""
    named = called_as(function)
    return (*named, *(f"{name}:{LIVE}" for name in named)) if rollout.functions.provisioned else named


def secret_arn(stack: ServiceStack, name: str) -> str:
    """The ARN of a secret of the service; Secrets Manager ends it with six characters of its own."""
    where = f"{Aws.PARTITION}:secretsmanager:{Aws.REGION}:{Aws.ACCOUNT_ID}"
    return f"arn:{where}:secret:{stack.blueprint.name(name)}-??????"


def make_role(
    stack: ServiceStack,
    id_: str,
    *,
    service: str,
    may: Sequence[Statement],
    name: str,
) -> aws_iam.CfnRole:
    """A role that `service` of AWS takes; each statement's `why` excuses the stars in its resources."""
    blueprint = stack.blueprint
    bounds = f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:policy/{boundary_name(blueprint.service)}"
    role = aws_iam.CfnRole(
        stack,
        id_,
        role_name=name,
        permissions_boundary=bounds if blueprint.rollout.service_role else None,
        assume_role_policy_document=trust_policy(service, Aws.ACCOUNT_ID if service in TELL_ACCOUNT else ""),
        policies=[{"policyName": "calls", "policyDocument": policy_document(may)}] if may else None,
    )
    for statement in may:
        for resource in statement.resources:
            finding = _shown(stack.resolve(resource))
            if "*" in finding:
                excuse(role, statement.why, nag=(f"AwsSolutions-IAM5[Resource::{finding}]",))
        if "*" in statement.resources and any(_writes(action) for action in statement.actions):
            excuse(role, statement.why, checkov=("CKV_AWS_111",))
    return role


def _writes(action: str) -> bool:
    return not action.partition(":")[2].startswith(("Describe", "Get", "List"))


def _shown(resource: object) -> str:
    """A resource as cdk-nag names it: `arn:<AWS::Partition>:sqs:...`."""
    if isinstance(resource, dict):
        if "Ref" in resource:
            return f"<{resource['Ref']}>"
        if "Fn::Join" in resource:
            return str(resource["Fn::Join"][0]).join(_shown(part) for part in resource["Fn::Join"][1])
        return str(resource.get("Fn::ImportValue", ""))
    return str(resource)


def of_roles(names: Names, *roles: str) -> tuple[Statement, ...]:
    """Permissions of these roles, each statement once."""
    found: list[Statement] = []
    for role in roles:
        found += [item for item in statements(role, names) if item not in found]
    return tuple(found)


def of_images(names: Names, images: Sequence[str]) -> tuple[Statement, ...]:
    """Pull these images from ECR."""
    pulls = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
    repositories = tuple(repository_of(image, names.partition) for image in images)
    return (
        allow("ImageLogin", ("ecr:GetAuthorizationToken",), ("*",), why=NO_RESOURCE),
        allow("Image", pulls, repositories, why="the images that it starts"),
    )


def of_function_image(names: Names, image: str) -> Statement:
    """Lambda reads a function's image by its role, or by a policy of the repository, which is not ours."""
    pulls = ("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
    return allow("Image", pulls, (repository_of(image, names.partition),), why="the image that it runs")


def allow(sid: str, actions: tuple[str, ...], resources: tuple[str, ...], *, why: str) -> Statement:
    """A statement without conditions."""
    return Statement(sid=sid, actions=actions, resources=resources, conditions={}, why=why)


def reads_collector(blueprint: Blueprint) -> Statement:
    """A gateway's start reads the headers for the collector of spans and metrics."""
    why = "the headers that the collector asks for"
    return allow("Collector", ("secretsmanager:GetSecretValue",), (blueprint.collector_secret,), why=why)
