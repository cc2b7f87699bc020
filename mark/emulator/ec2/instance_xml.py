"""DescribeInstances in EC2's own XML, one fragment an instance, kept until the instance changes.

moto's serializer takes 1.6 ms an instance, and a controller describes its whole fleet often.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from xml.sax.saxutils import escape

from mark.emulator.clock import iso
from mark.emulator.config import ACCOUNT
from mark.emulator.ec2.machine import Machine, MachineState

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"


def describe_instances(reservations: Iterable[list[Machine]], next_token: str, reserved: Mapping[str, str]) -> str:
    """The whole reply; each list is one reservation's instances, not empty. reserved: where their capacity is."""
    items = "".join(
        f"<item><reservationId>{group[0].reservation}</reservationId><ownerId>{ACCOUNT}</ownerId><groupSet/>"
        f"<instancesSet>{''.join(_described(machine, reserved) for machine in group)}</instancesSet></item>"
        for group in reservations
    )
    token = f"<nextToken>{next_token}</nextToken>" if next_token else ""
    return reply("DescribeInstances", f"<reservationSet>{items}</reservationSet>{token}")


def reply(action: str, inner: str) -> str:
    """A reply of the EC2 query protocol."""
    request = f"<requestId>{secrets.token_hex(16)}</requestId>"
    return f'<{action}Response xmlns="{NAMESPACE}">{request}{inner}</{action}Response>'


def _described(machine: Machine, reserved: Mapping[str, str]) -> str:
    """Its fragment, and the capacity reservation that it is in, which changes as others end."""
    fragment, name = _fragment(machine), reserved.get(machine.id)
    if name is None:
        return fragment
    return f"{fragment.removesuffix('</item>')}<capacityReservationId>{name}</capacityReservationId></item>"


def _fragment(machine: Machine) -> str:
    if machine.xml is None:
        machine.xml = _render(machine)
    return machine.xml


def _render(machine: Machine) -> str:
    spec = machine.spec
    gone = machine.state is MachineState.TERMINATED
    dns = "" if gone else f"ip-{machine.address.replace('.', '-')}.ec2.internal"
    parts = [
        f"<item><instanceId>{machine.id}</instanceId><imageId>{escape(spec.image_id)}</imageId>",
        f"<instanceState><code>{int(machine.state)}</code><name>{machine.state.label}</name></instanceState>",
        f"<privateDnsName>{dns}</privateDnsName><dnsName/><reason>{machine.reason}</reason>",
        f"<amiLaunchIndex>{machine.index}</amiLaunchIndex><productCodes/>",
        f"<instanceType>{spec.instance_type.name}</instanceType><launchTime>{iso(machine.launched_at)}</launchTime>",
        f"<placement><availabilityZone>{spec.zone}</availabilityZone><groupName/><tenancy>default</tenancy></placement>",
        "<monitoring><state>disabled</state></monitoring>",
        f"<architecture>{spec.instance_type.architecture}</architecture><rootDeviceType>ebs</rootDeviceType>",
        f"<groupSet>{_groups(machine)}</groupSet><tagSet>{_tags(machine)}</tagSet>",
        f"<clientToken>{escape(spec.client_token)}</clientToken><hypervisor>nitro</hypervisor>",
    ]
    if not gone:
        parts.append(
            f"<subnetId>{spec.subnet_id}</subnetId><vpcId>{spec.vpc_id}</vpcId>"
            f"<privateIpAddress>{machine.address}</privateIpAddress>"
        )
    if machine.is_spot:
        parts.append(
            "<instanceLifecycle>spot</instanceLifecycle>"
            f"<spotInstanceRequestId>{machine.spot_request}</spotInstanceRequestId>"
        )
    if machine.reason_code:
        parts.append(
            f"<stateReason><code>{machine.reason_code}</code><message>{machine.reason}</message></stateReason>"
        )
    return "".join(parts) + "</item>"


def _tags(machine: Machine) -> str:
    return "".join(
        f"<item><key>{escape(key)}</key><value>{escape(value)}</value></item>"
        for key, value in machine.tags.items()
    )


def _groups(machine: Machine) -> str:
    return "".join(
        f"<item><groupId>{group}</groupId><groupName>{escape(name)}</groupName></item>"
        for group, name in machine.spec.security_groups
    )
