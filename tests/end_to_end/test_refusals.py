"""What cannot be done is said in one line; a service that is not asked to stay leaves nothing, however it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest

from tests.command_line import Answer, Mark
from tests.end_to_end.rig import LIGHT, UP_S, Rig, Said, eventually, rig
from tests.waiting import PATIENCE_S


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Rig]:
    """No service runs yet."""
    with rig(tmp_path, "ended") as made:
        yield made


Command = Callable[..., Said | Answer]


@pytest.fixture
def inside(empty: Rig, mark: Mark, monkeypatch: pytest.MonkeyPatch) -> Mark:
    """`mark` in this process, for what is refused before any other starts; its folder is the rig's."""
    for name in ("MARK_STATE", "MARK_CACHE"):
        monkeypatch.setenv(name, empty.environment[name])
    return mark


def assert_refused(mark: Command, *arguments: str, says: str) -> None:
    said = mark(*arguments)
    assert said.status == 2, said
    if "--json" in arguments:
        assert json.loads(said.out)["error"]["exit_code"] == 2
    else:
        assert said.out == ""
    refusal = [line for line in said.err.splitlines() if not line.startswith("note: ")]  # of a slow machine
    assert len(refusal) == 1, said.err
    assert refusal[0].startswith("mark: ")
    assert says in refusal[0]


@pytest.mark.parametrize(
    "command",
    [
        ("load", "--rate", "5", "--duration", "1"),
        ("status", "--json"),
        ("interrupt", "--share", "0.4"),
        ("chaos", "kill", "agent"),
        ("explain",),
        ("event", "list"),
        ("down",),
    ],
    ids=lambda command: command[0],
)
def test_commands_need_a_service(inside: Mark, command: tuple[str, ...]) -> None:
    assert_refused(inside, *command, says="no service named mark is up on this machine")


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("gatewys: 3", "gateways"),
        ("gateways: 0", "service.gateways should be greater than 0"),
        ("name: UPPER", "service.name"),
        ("token_file: nowhere", "cannot read service.token_file"),
        ("token_file: short", "16 printable ASCII characters"),
        ("tls_certificate: cert.pem", "service.tls_key"),
        ("{tls_certificate: cert.pem, tls_key: key.pem}", "cannot use the certificate"),
        ("serve: [{model: nope}]", "nope"),
        ("serve: [{model: ncf}, {model: ncf}]", "served twice"),
    ],
)
def test_a_service_that_cannot_be_is_refused_before_it_starts(
    empty: Rig, inside: Mark, key: str, says: str
) -> None:
    (empty.home / "short").write_text("secret")
    service = key if key.startswith("{") else f"{{{key}}}"
    path = empty.config(f"service: {service}\n")
    assert_refused(inside, "up", "--config", str(path), "--detach", says=says)
    assert not empty.processes()


@pytest.mark.parametrize(
    ("answer", "says"), [("", "nobody answered, so nothing was changed; --yes"), ("n\n", "not started")]
)
def test_a_first_plan_above_the_limit_starts_only_after_a_yes(
    empty: Rig, inside: Mark, monkeypatch: pytest.MonkeyPatch, answer: str, says: str
) -> None:
    path = empty.config(LIGHT.format(name=empty.name))
    monkeypatch.setattr("sys.stdin", StringIO(answer))
    said = inside("up", "--config", str(path), "--detach", "--ask-above", "0.001")
    assert (said.status, said.out) == (2, "")
    assert re.search(r"The first plan costs [0-9.]+ USD an hour, more than 0.001 .* Start it\? \[y/N\]", said.err)
    assert says in said.err.splitlines()[-1]
    assert not empty.processes()


def test_a_port_that_is_taken_is_named(empty: Rig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = empty.config(LIGHT.format(name=empty.name).replace("port: 0", f"port: {port}", 1))
        assert_refused(empty.mark, "up", "--config", str(path), "--detach", says=f"127.0.0.1:{port}")
    empty.assert_gone()


BROKEN = """
import os
import time
from pathlib import Path

from mark.domain.tensor import TensorSpec


class Broken:
    inputs = outputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),)

    def __init__(self):
        if "AWS_EC2_METADATA_SERVICE_ENDPOINT" in os.environ:
            Path({tried!r}).touch()
            while not Path({seen!r}).exists():
                time.sleep(0.05)
            raise RuntimeError("libfoo.so.1 is missing on the instance")

    def predict(self, inputs):
        return inputs
"""
"""A model that loads where `mark up` tries it and nowhere else; it fails once the test has seen the start."""
STARTING = """
service:
  name: {name}
  port: 0
  status_port: 0
  serve:
    - model: inception-v3
      backend: {{kind: python, target: broken.py:Broken}}
      offerings: {{types: [c5.large], overflow: false}}
      policy_name: mark
      expected_rps: 4
"""


def test_a_start_that_fails_says_what_was_planned_and_what_the_agent_said(empty: Rig) -> None:
    tried, seen = empty.home / "tried", empty.home / "seen"
    (empty.home / "broken.py").write_text(BROKEN.format(tried=str(tried), seen=str(seen)))
    started = empty.start("up", "--config", str(empty.config(STARTING.format(name=empty.name))), "--detach")
    try:
        eventually(tried.exists, within_s=UP_S)
        eventually(lambda: "planned" in empty.mark("status", "--name", empty.name).out, within_s=UP_S, each_s=2.0)
        seen.touch()
        out, err = started.communicate(timeout=PATIENCE_S)
    finally:
        started.kill()
        started.communicate()
    assert (started.returncode, out) == (2, ""), err
    assert "the agent of instance i-" in err.splitlines()[-1], err
    assert "RuntimeError: libfoo.so.1 is missing on the instance" in err
    assert "the plan's reason: " in err
    explained = empty.ask("explain")
    assert explained["reproduces"] is True
    assert "the last start failed: inception-v3: the agent" in empty.mark("status", "--name", empty.name).err
    empty.assert_gone()


REHEARSING = """
import sys
from pathlib import Path

import numpy as np

from mark.live.commands.load import send
from mark.live.commands.up import service_up
from mark.config.settings import load_settings

try:
    with service_up(load_settings(Path(sys.argv[1]), {}), hold=True) as running:
        print(running.pid, flush=True)
        send(running, running.models[0], np.arange(0.0, 60.0, 0.1), speed=1.0)
except KeyboardInterrupt:
    sys.exit(130)
"""
"""A rehearsal as `mark demo` makes it, without the replay before it; it says when its service is up."""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_rehearsal_that_is_told_to_end_takes_its_service_along(empty: Rig, number: signal.Signals) -> None:
    path = empty.config(LIGHT.format(name=empty.name))
    started = empty.start(str(path), command=(sys.executable, "-c", REHEARSING))
    try:
        assert started.stdout is not None
        said = started.stdout.readline()  # the pid; what follows is the load
        empty.seen |= empty.processes()
        started.send_signal(number)
        _, err = started.communicate(timeout=PATIENCE_S)
    finally:
        started.kill()
        started.communicate()
    assert int(said) in empty.seen, err
    assert started.returncode == 130, err
    empty.assert_gone()
