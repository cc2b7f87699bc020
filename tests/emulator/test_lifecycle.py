"""From a fleet request to real processes, and to their end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.emulator.conftest import World, fleet, ids_of, template
from tests.waiting import until

STANDBY = {"mark:role": "standby", "mark:offering": "c5.large:on-demand"}


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


def test_an_instance_knows_itself_and_has_a_log(world: World, tmp_path: Path) -> None:
    (name,) = ids_of(fleet(world, template(world), tags={"mark:model": "digits"}))
    found = world.wait(name, "running", pid=True)

    assert world.ask(name, "/imds/latest/meta-data/instance-id") == name
    assert world.ask(name, "/imds/latest/meta-data/instance-type") == "c5.large"
    assert world.ask(name, "/imds/latest/meta-data/tags/instance/mark:model") == "digits"
    assert world.ask(name, "/imds/latest/meta-data/tags/instance/mark:service") == "demo"
    assert json.loads(world.ask(name, "/imds/latest/user-data")) == {"service": "demo"}
    assert float(world.ask(name, "/imds/latest/meta-data/mark/ready-at")) == found["ready_at"]
    assert world.ask(name, "/imds/latest/meta-data/spot/instance-action") == "404"
    assert world.ask(name, "/imds/latest/meta-data/nonsense") == "404"
    world.ask(name)
    assert "GET / HTTP" in (tmp_path / "logs" / f"{name}.log").read_text()

    # pending is not billed, and a boot is over later
    assert found["running_at"] - found["launched_at"] >= 10
    assert found["ready_at"] - found["launched_at"] > 60


def test_exit_zero_is_a_power_off_that_terminates_or_stops(world: World) -> None:
    (serving,) = ids_of(fleet(world, template(world)))
    (standby,) = ids_of(fleet(world, template(world, behavior="stop", name="standbys"), tags=STANDBY))
    (changed,) = ids_of(fleet(world, template(world, behavior="stop", name="changed")))
    world.client("ec2").modify_instance_attribute(
        InstanceId=changed, InstanceInitiatedShutdownBehavior={"Value": "terminate"}
    )
    for name in (serving, standby, changed):
        world.wait(name, "running", pid=True)
        world.ask(name, "/off")

    world.wait(changed, "terminated")
    assert world.wait(serving, "terminated")["reason"] == "Client.InstanceInitiatedShutdown"
    world.wait(standby, "stopped", pid=False)


def test_a_crash_is_restarted_at_the_same_address(world: World) -> None:
    (name,) = ids_of(fleet(world, template(world)))
    before = world.wait(name, "running", pid=True)
    world.ask(name)
    os.kill(before["pid"], signal.SIGKILL)

    after = until(lambda: (found := world.instances()[name])["pid"] not in (0, before["pid"]) and found)
    assert after["state"] == "running"
    assert after["address"] == before["address"]
    assert int(world.ask(name)) == after["pid"]
    assert world.state()["crashes"] == 1


def test_a_standby_stops_and_wakes(world: World) -> None:
    ec2 = world.client("ec2")
    (name,) = ids_of(fleet(world, template(world, behavior="stop"), tags=STANDBY))
    first = world.wait(name, "running", pid=True)
    ec2.stop_instances(InstanceIds=[name])
    world.wait(name, "stopped", pid=False)

    started = ec2.start_instances(InstanceIds=[name])["StartingInstances"][0]
    assert (started["PreviousState"]["Name"], started["CurrentState"]["Name"]) == ("stopped", "pending")
    found = world.wait(name, "running", pid=True)
    assert found["address"] == first["address"]
    assert 20 < found["ready_at"] - found["running_at"] < 300
    assert int(world.ask(name)) == found["pid"]


def test_illegal_transitions_are_errors(world: World) -> None:
    ec2 = world.client("ec2")
    made = template(world)
    (gone,) = ids_of(fleet(world, made))
    (spot,) = ids_of(fleet(world, made, market="spot"))
    world.wait(gone, "running", pid=True)
    ec2.terminate_instances(InstanceIds=[gone])
    world.wait(gone, "terminated")

    with pytest.raises(ClientError, match="IncorrectInstanceState"):
        ec2.start_instances(InstanceIds=[gone])
    with pytest.raises(ClientError, match="IncorrectInstanceState"):
        ec2.stop_instances(InstanceIds=[gone])
    with pytest.raises(ClientError, match="UnsupportedOperation"):
        ec2.stop_instances(InstanceIds=[spot])
    with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
        ec2.terminate_instances(InstanceIds=["i-00000000000000000"])
    ec2.terminate_instances(InstanceIds=[gone])


def test_a_prewarmed_world_is_as_if_it_had_run_before(start: Callable[..., World]) -> None:
    world = start()
    made = template(world, behavior="stop")
    world.mark("POST", "prewarm", {"on": True})
    (serving,) = ids_of(fleet(world, made))
    (standby,) = ids_of(fleet(world, made, tags=STANDBY))
    world.mark("POST", "prewarm", {"on": False})

    now = world.instances()
    assert (now[serving]["state"], now[standby]["state"]) == ("running", "stopped")
    assert now[serving]["ready_at"] == now[serving]["launched_at"]
    assert now[standby]["pid"] == 0
    assert world.ask(serving)


def test_the_clock_can_stand_still_and_jump(start: Callable[..., World]) -> None:
    world = start()
    stand = {"wall_at": time.time(), "service_at": 1_800_000_000.0, "speed": 0.0}
    world.mark("POST", "clock", stand)
    (name,) = ids_of(fleet(world, template(world)))
    for _ in range(10):  # the world goes on meanwhile
        found = world.instances()[name]
    assert (found["state"], found["launched_at"]) == ("pending", 1_800_000_000.0)

    world.mark("POST", "clock", {**stand, "wall_at": time.time(), "speed": 500.0})
    running = world.wait(name, "running", pid=True)
    assert 10 <= running["running_at"] - 1_800_000_000.0 <= 20
