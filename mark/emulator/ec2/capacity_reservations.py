"""On-Demand Capacity Reservations of the emulated account: who is in them, what is free, how they are told.

Open ones take what matches by type, zone and tenancy, also what ran before (EC2 user guide, "Capacity
Reservations"): the first that were launched, as many as have a place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mark.domain.commitments.owned import CapacityReservation
from mark.emulator.config import ACCOUNT
from mark.emulator.ec2.machine import Machine, MachineState
from mark.emulator.errors import ApiError
from mark.emulator.paging import page_of

MOST_A_PAGE = 1000
AWAKE = (MachineState.PENDING, MachineState.RUNNING)
FILTERS = {
    "instance-match-criteria": "InstanceMatchCriteria",
    "instance-platform": "InstancePlatform",
    "instance-type": "InstanceType",
    "owner-id": "OwnerId",
    "state": "State",
    "tenancy": "Tenancy",
}


class ReservedCapacity:
    """The account's reservations, all open and active, over its instances."""

    def __init__(self, items: Sequence[CapacityReservation], machines: Iterable[Machine]) -> None:
        self._items, self._machines = items, machines

    def inside(self) -> dict[str, str]:
        """The reservation that each instance is in, by its id; without those in none."""
        left, found = {item.name: int(item.count) for item in self._items}, dict[str, str]()
        for machine in self._machines if self._items else ():
            if machine.is_spot or machine.state not in AWAKE:
                continue
            kind, zone = machine.spec.instance_type.name, machine.spec.zone
            for item in self._items:
                if (item.instance_type, item.zone) == (kind, zone) and left[item.name]:
                    left[item.name] -= 1
                    found[machine.id] = item.name
                    break
        return found

    def free(self, instance_type: str, zone: str) -> int:
        """Places for a type in a zone that nobody takes; of all zones where it is empty."""
        taken = list(self.inside().values())
        return sum(
            int(item.count) - taken.count(item.name)
            for item in self._items
            if item.instance_type == instance_type and zone in ("", item.zone)
        )

    def zone_with_places(self, instance_type: str) -> str:
        """The first zone with a free place for a type; empty where none has one."""
        zones = sorted({item.zone for item in self._items})
        return next((zone for zone in zones if self.free(instance_type, zone)), "")

    def describe(self, params: dict[str, Any]) -> dict[str, Any]:
        """The reply to DescribeCapacityReservations."""
        ids, filters = params.get("CapacityReservationIds") or [], params.get("Filters") or []
        unknown = [one["Name"] for one in filters if one["Name"] not in FILTERS]
        if unknown:
            raise ApiError("InvalidParameterValue", f"The filter '{unknown[0]}' is invalid")
        taken = list(self.inside().values())
        told = [_told(item, taken.count(item.name)) for item in self._items]
        found = [
            one
            for one in told
            if (not ids or one["CapacityReservationId"] in ids)
            and all(one[FILTERS[test["Name"]]] in (test.get("Values") or []) for test in filters)
        ]
        shown, following = page_of(found, params.get("NextToken"), params.get("MaxResults"), most=MOST_A_PAGE)
        return {"CapacityReservations": shown, **({"NextToken": following} if following else {})}


def _told(item: CapacityReservation, taken: int) -> dict[str, Any]:
    return {
        "CapacityReservationId": item.name,
        "OwnerId": ACCOUNT,
        "InstanceType": item.instance_type,
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": item.zone,
        "Tenancy": "default",
        "TotalInstanceCount": int(item.count),
        "AvailableInstanceCount": int(item.count) - taken,
        "InstanceMatchCriteria": "open",
        "ReservationType": "default",
        "State": "active",
        "EndDateType": "unlimited",
    }
