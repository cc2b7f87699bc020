"""Reserved capacity of the emulated account: it is used first, and refuses nobody that it has a place for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mark.domain.commitments.owned import CapacityReservation, Commitments
from mark.emulator.config import REGION
from tests.emulator.conftest import World, config_for, fleet, ids_of, template

FIRST = {"CapacityReservationOptions": {"UsageStrategy": "use-capacity-reservations-first"}}
KEPT = CapacityReservation(name="cr-1", instance_type="m5.large", zone=f"{REGION}b", count=2.0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(config_for(tmp_path, commitments=Commitments(capacity_reservations=(KEPT,))))
    yield made
    made.stop()


def free(world: World) -> int:
    (told,) = world.client("ec2").describe_capacity_reservations()["CapacityReservations"]
    return int(told["AvailableInstanceCount"])


def test_a_fleet_uses_it_first_and_is_refused_only_what_is_beyond(world: World) -> None:
    made, ec2 = template(world), world.client("ec2")
    world.mark("POST", "faults", {"kind": "capacity", "action": "CreateFleet"})
    got = fleet(world, made, count=3, types=["m5.large", "c5.large"], OnDemandOptions=FIRST)
    assert {one["InstanceType"] for one in got["Instances"]} == {"m5.large"}
    assert {error["ErrorCode"] for error in got["Errors"]} == {"InsufficientInstanceCapacity"}
    ids = ids_of(got)
    told = ec2.describe_instances(InstanceIds=ids)["Reservations"]
    inside = [one for group in told for one in group["Instances"]]
    assert {(one["CapacityReservationId"], one["Placement"]["AvailabilityZone"]) for one in inside} == {
        ("cr-1", KEPT.zone)
    }
    assert (len(ids), free(world)) == (2, 0)
    assert not fleet(world, made, types=["m5.large"], OnDemandOptions=FIRST)["Instances"]
    ec2.terminate_instances(InstanceIds=ids[:1])
    assert free(world) == 1
    assert not fleet(world, made, market="spot", types=["m5.large"])["Instances"]
    assert len(ids_of(fleet(world, made, types=["m5.large"], OnDemandOptions=FIRST))) == 1
