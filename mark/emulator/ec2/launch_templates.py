"""From what a launch asks for to what is launched: template, overrides, subnet, security groups, tags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moto.core.exceptions import ServiceException

from mark.domain.offerings.offering import InstanceType, Market
from mark.emulator.config import DEFAULT_ZONE, REGION
from mark.emulator.ec2.machine import LaunchSpec
from mark.emulator.errors import ApiError
from mark.emulator.moto_parts import backend_of

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A launch template's version, found; `reference` is how a fleet's reply names it."""

    data: Data
    reference: dict[str, str]


def find_template(reference: Data) -> Template:
    """The template that a launch names by id or name, of the version it names (the default one else)."""
    backend = backend_of("ec2")
    try:
        if "LaunchTemplateId" in reference:
            template = backend.get_launch_template(reference["LaunchTemplateId"])
        elif "LaunchTemplateName" in reference:
            template = backend.get_launch_template_by_name(reference["LaunchTemplateName"])
        else:
            raise ApiError("MissingParameter", "Launch template id or name is required.")
        version = str(reference.get("Version") or "$Default")
        numbers = {"$Default": template.default_version_number, "$Latest": template.latest_version_number}
        number = int(numbers.get(version) or version)
        found = template.get_version(number)
    except ServiceException as error:
        raise ApiError(error.code or "InvalidLaunchTemplateId.NotFound", str(error.message)) from error
    except (IndexError, ValueError) as error:
        raise ApiError("InvalidLaunchTemplateId.VersionNotFound", f"no version {version}") from error
    named = {
        "LaunchTemplateId": template.id,
        "LaunchTemplateName": template.name,
        "Version": str(number),
    }
    return Template(data=found.data, reference=named)


def resolve(
    data: Data, instance_type: InstanceType, market: Market, tags: dict[str, str], client_token: str = ""
) -> LaunchSpec:
    """Launch specification of `data`, a template with its overrides merged."""
    if not data.get("ImageId"):
        raise ApiError("MissingParameter", "The request must contain the parameter ImageId")
    subnet = _subnet(data)
    metadata = data.get("MetadataOptions") or {}
    return LaunchSpec(
        instance_type=instance_type,
        market=market,
        image_id=data["ImageId"],
        zone=subnet.availability_zone,
        subnet_id=subnet.id,
        vpc_id=subnet.vpc_id,
        security_groups=_groups(data, subnet.vpc_id),
        user_data=str(data.get("UserData") or ""),
        tags=tags,
        shutdown_behavior=data.get("InstanceInitiatedShutdownBehavior") or "stop",
        tags_in_metadata=metadata.get("InstanceMetadataTags") == "enabled",
        client_token=client_token,
    )


def named_zone(data: Data) -> str:
    """The availability zone that a launch names, by itself or by its subnet; empty where it names none."""
    return str(_subnet(data).availability_zone) if _subnet_id(data) else _zone(data) or ""


def _zone(data: Data) -> str | None:
    return data.get("AvailabilityZone") or (data.get("Placement") or {}).get("AvailabilityZone")


def _subnet_id(data: Data) -> str | None:
    interfaces = data.get("NetworkInterfaces") or ()
    return data.get("SubnetId") or next((nic["SubnetId"] for nic in interfaces if "SubnetId" in nic), None)


def _subnet(data: Data) -> Any:
    backend, name = backend_of("ec2"), _subnet_id(data)
    try:
        if name:
            return backend.get_subnet(name)
    except ServiceException as error:
        raise ApiError("InvalidSubnetID.NotFound", f"The subnet ID '{name}' does not exist") from error
    subnets = backend.get_default_subnets()
    zone = _zone(data) or f"{REGION}{DEFAULT_ZONE}"
    if zone not in subnets:
        raise ApiError("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
    return subnets[zone]


def _groups(data: Data, vpc_id: str) -> tuple[tuple[str, str], ...]:
    backend = backend_of("ec2")
    names = list(data.get("SecurityGroupIds") or ())
    for nic in data.get("NetworkInterfaces") or ():
        names.extend(nic.get("Groups") or ())
    found = []
    for name in names:
        group = backend.get_security_group_from_id(name)
        if group is None:
            raise ApiError("InvalidGroup.NotFound", f"The security group '{name}' does not exist")
        found.append((group.id, group.name))
    if not found and (default := backend.get_security_group_from_name("default", vpc_id)) is not None:
        found.append((default.id, default.name))
    return tuple(found)
