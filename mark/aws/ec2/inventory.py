"""Inventory: the instances of a service in its account now, by their tags, whoever launched them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mark.aws.ec2.launch import LIVE
from mark.aws.ec2.tags import MODEL, OFFERING, PROFILE_OF, ROLE, SERVICE
from mark.aws.errors import translated
from mark.aws.session import Aws
from mark.domain.errors import AlreadyDone
from mark.domain.fleet.instances import Role
from mark.domain.offerings.offering import of_type

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

FLEET = frozenset(role.value for role in Role)
"""Roles of instances that controllers launch; gateways and nodes have none."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class InventoryItem:
    """An instance. `model` is empty for one that belongs to no model, a gateway's, say."""

    model: str
    role: str
    offering: str
    instance_type: str
    is_spot: bool
    state: str
    id: str
    #: Epoch seconds.
    launched_at: float = 0.0


def fleet_of(found: Sequence[InventoryItem]) -> tuple[InventoryItem, ...]:
    """The instances that controllers launched."""
    return tuple(one for one in found if one.role in FLEET)


def described(ec2: EC2Client, filters: Mapping[str, Sequence[str]]) -> Iterator[InstanceTypeDef]:
    """Instances that these filters let through; where they name no state, those that are not gone."""
    asked = {"instance-state-name": LIVE, **filters}
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": name, "Values": values} for name, values in asked.items()]
    )
    for page in pages:
        for reservation in page["Reservations"]:
            yield from reservation.get("Instances", [])


def list_inventory(aws: Aws, service: str) -> tuple[InventoryItem, ...]:
    """All instances that bear the service's tag and are not gone, by model and role."""
    with translated():
        return tuple(sorted(map(_item, described(aws.ec2, {f"tag:{SERVICE}": [service]}))))


def loose_volumes(aws: Aws, service: str) -> tuple[str, ...]:
    """Volumes with the service's tag that are attached to nothing: ended instances left them, and they cost."""
    with translated():
        pages = aws.ec2.get_paginator("describe_volumes").paginate(
            Filters=[
                {"Name": f"tag:{SERVICE}", "Values": [service]},
                {"Name": "status", "Values": ["available"]},
            ]
        )
        return tuple(sorted(volume["VolumeId"] for page in pages for volume in page["Volumes"]))


def remove_volumes(aws: Aws, names: Iterable[str]) -> None:
    """Remove these volumes, with what is on them; one that is gone is no failure."""
    for name in names:
        with suppress(AlreadyDone), translated():
            aws.ec2.delete_volume(VolumeId=name)


def public_addresses(aws: Aws, service: str, private: Iterable[str]) -> dict[str, str]:
    """Public addresses of the service's instances by these private ones; those without one are left out."""
    filters = {
        f"tag:{SERVICE}": [service],
        "private-ip-address": list(private),
        "instance-state-name": ["running"],
    }
    with translated():
        return {
            instance.get("PrivateIpAddress", ""): address
            for instance in described(aws.ec2, filters)
            if (address := instance.get("PublicIpAddress"))
        }


def _item(instance: InstanceTypeDef) -> InventoryItem:
    tags = {tag.get("Key", ""): tag.get("Value", "") for tag in instance.get("Tags", [])}
    return InventoryItem(
        model=tags.get(MODEL, tags.get(PROFILE_OF, "")),
        role=tags.get(ROLE, ""),
        offering=of_type(tags.get(OFFERING, ""), instance["InstanceType"]),
        instance_type=instance["InstanceType"],
        is_spot=instance.get("InstanceLifecycle") == "spot",
        state=instance["State"]["Name"],
        id=instance["InstanceId"],
        launched_at=instance["LaunchTime"].timestamp(),
    )


def default_subnets(aws: Aws) -> dict[str, str]:
    """The subnets of the account's default network, by availability zone."""
    with translated():
        found = aws.ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])
    return {one["AvailabilityZone"]: one["SubnetId"] for one in found["Subnets"]}
