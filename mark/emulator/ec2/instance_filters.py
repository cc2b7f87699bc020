"""Filters of DescribeInstances: values with wildcards, any of them; all filters must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from mark.emulator.ec2.machine import Machine, MachineState
from mark.emulator.errors import ApiError

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef

Values = Callable[[Machine], Iterable[str]]

FIELDS: dict[str, Values] = {
    "availability-zone": lambda machine: (machine.spec.zone,),
    "client-token": lambda machine: (machine.spec.client_token,),
    "image-id": lambda machine: (machine.spec.image_id,),
    "instance-id": lambda machine: (machine.id,),
    "instance-lifecycle": lambda machine: ("spot",) if machine.is_spot else (),
    "instance-state-code": lambda machine: (str(int(machine.state)),),
    "instance-state-name": lambda machine: (machine.state.label,),
    "instance-type": lambda machine: (machine.spec.instance_type.name,),
    "private-ip-address": lambda machine: () if machine.state is MachineState.TERMINATED else (machine.address,),
    "reservation-id": lambda machine: (machine.reservation,),
    "spot-instance-request-id": lambda machine: (machine.spot_request,),
    "subnet-id": lambda machine: (machine.spec.subnet_id,),
    "tag-key": lambda machine: machine.tags,
    "vpc-id": lambda machine: (machine.spec.vpc_id,),
}


def matching(machines: Iterable[Machine], filters: Iterable[FilterTypeDef]) -> list[Machine]:
    """The instances that all filters hold for."""
    tests = [(_values(entry["Name"]), entry.get("Values") or []) for entry in filters]
    return [machine for machine in machines if all(_holds(values(machine), wanted) for values, wanted in tests)]


def _values(name: str) -> Values:
    if name.startswith("tag:"):
        key = name.removeprefix("tag:")
        return lambda machine: (machine.tags[key],) if key in machine.tags else ()
    if name not in FIELDS:
        raise ApiError("InvalidParameterValue", f"The filter '{name}' is invalid")
    return FIELDS[name]


def _holds(values: Iterable[str], wanted: Iterable[str]) -> bool:
    return any(fnmatchcase(value, pattern) for value in values for pattern in wanted)
