"""Launch templates and the roles of instances: metadata by session alone, encrypted disks, everything tagged."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnParameter, Fn, aws_ec2, aws_iam

from mark.aws.resources import TemplateSpec, tag_list
from mark.config.rollout import MachineSettings
from mark.infra.roles import (
    allow,
    make_role,
    names_of,
    of_images,
    of_roles,
    reads_collector,
    secret_arn,
    store_secret,
)
from mark.infra.stack import ServiceStack, camel, words
from mark.infra.user_data import NodeStart, Start, node_script, packed, start_script
from mark.store.users import StoreUser

LATEST_IMAGE = {
    "amd64": "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64",
    "arm64": "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64",
    "amd64-nvidia": "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id",
}
"""Where AWS publishes its newest images: Amazon Linux 2023, on a disk of 8 GiB and up (its user guide), to which
start scripts add Docker; and with drivers and Docker for GPUs, on 30 GiB (ECS developer guide). The one for
containers without GPUs takes 30 as well. There is none for arm64-nvidia."""


def image_of(stack: ServiceStack, machine: MachineSettings) -> str:
    """The machine image: the settings', or AWS's newest one when the stack is deployed."""
    if machine.ami:
        return machine.ami
    parameter = CfnParameter(
        stack,
        "Image" + words(machine.name),
        type="AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>",
        default=LATEST_IMAGE[machine.name],
        description="Where AWS publishes its newest machine image",
    )
    return parameter.value_as_string


def make_profile(stack: ServiceStack, role: str) -> aws_iam.CfnInstanceProfile:
    """The instance profile `mark-SERVICE-agent` or `-gateway`, with what that process and its start may do."""
    blueprint, rollout = stack.blueprint, stack.blueprint.rollout
    is_agent = role == "agent"
    bucket = stack.imported("bucket") if is_agent else ""
    names = names_of(stack, secret=secret_arn(stack, store_secret(StoreUser(role))), bucket=bucket)
    images = [
        blueprint.agent_image if is_agent else blueprint.image,
        *([rollout.model_image] if is_agent and rollout.model_image else []),
    ]
    log = names.arn("logs", f"log-group:{blueprint.log(role)}:*")
    may = [
        *of_roles(names, *_roles(stack, is_agent=is_agent)),
        *of_images(names, images),
        allow("Log", ("logs:CreateLogStream", "logs:PutLogEvents"), (log,), why="what its processes say"),
    ]
    if not is_agent:
        stack_arn = names.arn("cloudformation", f"stack/{blueprint.name('gateways')}/*")
        may.append(
            allow("Answers", ("cloudformation:SignalResource",), (stack_arn,), why="an update waits for it")
        )
        if blueprint.collector_secret:
            may.append(reads_collector(blueprint))
    name = blueprint.name(role)
    taken = make_role(stack, f"{role.capitalize()}Role", service="ec2", may=may, name=name)
    return aws_iam.CfnInstanceProfile(
        stack, f"{role.capitalize()}Profile", instance_profile_name=name, roles=[taken.ref]
    )


def _roles(stack: ServiceStack, *, is_agent: bool) -> tuple[str, ...]:
    if not is_agent:
        return ("gateway", "agent")
    return ("agent", "member") if stack.blueprint.lean else ("agent",)


def _by_ipv6(group: str) -> dict[str, Any]:
    """The interface of an instance in a subnet that may give public addresses to others."""
    return {
        "deviceIndex": 0,
        "associatePublicIpAddress": False,
        "ipv6AddressCount": 1,
        "deleteOnTermination": True,
        "groups": [group],
    }


def make_template(
    stack: ServiceStack,
    template: TemplateSpec,
    *,
    image: str,
    profile: aws_iam.CfnInstanceProfile,
    group: str,
    start: Start | NodeStart,
    ipv6: bool = False,
    more: dict[str, Any] | None = None,
) -> aws_ec2.CfnLaunchTemplate:
    """The launch template, with what an instance starts from and runs as. ipv6: in place of a public address."""
    script = node_script(start) if isinstance(start, NodeStart) else start_script(start)
    data = {
        "imageId": image,
        "userData": Fn.base64(packed(script)),
        "iamInstanceProfile": {"name": profile.ref},
        **({"networkInterfaces": [_by_ipv6(group)]} if ipv6 else {"securityGroupIds": [group]}),
        **camel(template.data(stack.own_tags)),
        **(more or {}),
    }
    return aws_ec2.CfnLaunchTemplate(
        stack,
        "Template" + words(template.name),
        launch_template_name=template.name,
        launch_template_data=data,
        tag_specifications=[{"resourceType": "launch-template", "tags": camel(tag_list(stack.own_tags))}],
    )
