"""Nothing is left behind, however it ends; and what is killed comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, HTTPClientError

from mark.emulator.ec2.address import AddressPool
from tests.emulator.conftest import HOUSE, World, config_for, fleet, ids_of, template
from tests.emulator.test_lambda import call, function
from tests.waiting import PATIENCE_S, is_gone, until


def children_of(parent: int) -> set[int]:
    """All descendants."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == parent and fields[0] != "Z":
                found |= {int(entry.name)} | children_of(int(entry.name))
    return found


def gone(pids: set[int]) -> bool:
    """Ended; whether they were reaped is up to this machine's init."""
    return until(lambda: all(is_gone(pid) for pid in pids)) is True


def populate(world: World) -> list[int]:
    """Two instances and a function; all their processes."""
    names = ids_of(fleet(world, template(world), count=2))
    pids = [world.wait(name, "running", pid=True)["pid"] for name in names]
    for name in names:
        world.ask(name)
    function(world, "echo")
    return [*pids, call(world, "echo")[0]["pid"]]


def test_a_stop_leaves_nothing(tmp_path: Path) -> None:
    before = children_of(os.getpid())
    world = World(config_for(tmp_path / "logs"))
    pids = populate(world)
    started = children_of(os.getpid()) - before
    assert set(pids) < started
    world.stop()
    assert gone(started)


def test_a_killed_emulator_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.emulator.supervised", str(tmp_path / "logs")]
    with subprocess.Popen(command, cwd=HOUSE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        world = World.__new__(World)
        world.url = process.stdout.readline().strip()
        pids = populate(world)
        family = children_of(process.pid)
        assert set(pids) < family
        process.kill()
        process.wait(PATIENCE_S)
        assert gone(family)


def test_instances_outlive_the_fork_server_as_machines(world: World) -> None:
    (name,) = ids_of(fleet(world, template(world)))
    before = world.wait(name, "running", pid=True)["pid"]
    world.ask(name)
    parent = int(Path(f"/proc/{before}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(parent, signal.SIGKILL)

    after = until(lambda: (found := world.instances()[name])["pid"] not in (0, before) and found)
    assert after["state"] == "running"
    assert int(world.ask(name)) == after["pid"]
    assert gone({before})


def test_two_emulators_share_no_address() -> None:
    one, other = AddressPool("127.78"), AddressPool("127.78")
    try:
        mine = {one.take() for _ in range(300)}
        theirs = {other.take() for _ in range(300)}
        assert len(mine) == len(theirs) == 300
        assert not mine & theirs
    finally:
        one.close()
        other.close()


def test_an_agent_that_cannot_be_imported_is_said(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="nowhere:run"):
        World(config_for(tmp_path / "logs", agent="tests.emulator.nowhere:run"))


def test_a_long_poll_does_not_hold_it_up(tmp_path: Path) -> None:
    world = World(config_for(tmp_path / "logs"))
    sqs = world.client("sqs", attempts=1)
    url = sqs.create_queue(QueueName="empty")["QueueUrl"]

    def poll() -> str:
        try:
            sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)
        except (ClientError, HTTPClientError) as error:
            return type(error).__name__
        return "answered"

    with ThreadPoolExecutor(1) as thread:
        polling = thread.submit(poll)
        until(lambda: world.state()["calls"].get("sqs:ReceiveMessage"))
        world.stop()
        assert polling.result() != "answered"
