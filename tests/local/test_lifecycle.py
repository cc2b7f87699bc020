"""From a fleet request to real processes, and to their end."""

from __future__ import annotations

import os

from tests.local.conftest import World, fleet, ids_of, template


def test_a_fleet_becomes_processes_that_serve_and_end(world: World) -> None:
    made = fleet(world, template(world), count=2)
    names = ids_of(made)
    assert len(names) == 2
    assert made["Errors"] == []

    pids = [world.wait(name, "running", pid=True)["pid"] for name in names]
    assert [int(world.ask(name)) for name in names] == pids

    ec2 = world.client("ec2")
    changed = ec2.terminate_instances(InstanceIds=names)["TerminatingInstances"]
    assert {one["CurrentState"]["Name"] for one in changed} == {"shutting-down"}
    for name in names:
        world.wait(name, "terminated", pid=False)
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
