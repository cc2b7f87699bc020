"""Counts of a fleet, by what stays, is ready and is awake; what is kept of values is no part of them."""

from __future__ import annotations

from pydantic import TypeAdapter

from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.offerings.offering import Offering
from tests.planner.builders import offering

STANDBY = Instance(id="s", offering="c", state=InstanceState.STOPPED, role=Role.STANDBY)
INSTANCES = (
    Instance(id="1", offering="a", state=InstanceState.READY),
    Instance(id="2", offering="a", state=InstanceState.PENDING),
    Instance(id="3", offering="a", state=InstanceState.DRAINING),
    Instance(id="4", offering="b", state=InstanceState.READY, terminates_at=60.0),
    Instance(id="5", offering="c", state=InstanceState.READY, role=Role.STANDBY),
    STANDBY,
)


def test_a_fleet_is_counted_by_offering() -> None:
    fleet = FleetView(instances=INSTANCES)
    assert fleet.staying == {"a": 2}
    assert fleet.ready == {"a": 1}
    assert fleet.awake == {"a": 3, "b": 1, "c": 1}


def test_what_was_worked_out_is_neither_compared_nor_written() -> None:
    for kept, fresh, kind in (
        (FleetView(instances=INSTANCES), FleetView(instances=INSTANCES), FleetView),
        (offering("small"), offering("small"), Offering),
    ):
        before = TypeAdapter(kind).dump_json(kept)
        assert fresh.ready if isinstance(fresh, FleetView) else fresh.name
        assert (kept == fresh, hash(kept) == hash(fresh), repr(kept) == repr(fresh)) == (True, True, True)
        assert TypeAdapter(kind).dump_json(fresh) == before
