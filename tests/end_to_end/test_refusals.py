"""What cannot be done is said in one line; a service that is not asked to stay leaves nothing, however it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.rig import LIGHT, Rig, eventually, fetch, rig

ENDED_S = 60.0
"""A service that does not end by itself within this hangs."""


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Rig]:
    """No service runs yet."""
    with rig(tmp_path, "ended") as made:
        yield made


def assert_refused(live: Rig, *arguments: str, says: str) -> None:
    said = live.mark(*arguments)
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
def test_commands_need_a_service(empty: Rig, command: tuple[str, ...]) -> None:
    assert_refused(empty, *command, says="no service mark is up on this machine")


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
def test_a_service_that_cannot_be_is_refused_before_it_starts(empty: Rig, key: str, says: str) -> None:
    (empty.home / "short").write_text("secret")
    service = key if key.startswith("{") else f"{{{key}}}"
    path = empty.config(f"service: {service}\n")
    assert_refused(empty, "up", "--config", str(path), "--detach", says=says)
    assert not empty.processes()


def test_a_port_that_is_taken_is_named(empty: Rig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = empty.config(LIGHT.format(name=empty.name).replace("port: 0", f"port: {port}", 1))
        assert_refused(empty, "up", "--config", str(path), "--detach", says=f"127.0.0.1:{port}")
    empty.assert_gone()


def test_what_init_writes_comes_up_and_ctrl_c_ends_it(empty: Rig) -> None:
    written = empty.mark("init", "--to", "mark.yaml")
    assert written.status == 0
    assert_refused(empty, "init", "--to", "mark.yaml", says="is there already")
    started = empty.start("up", "--config", "mark.yaml", "--name", empty.name)
    try:
        assert started.stdout is not None
        said = started.stdout.readline()  # nothing is said before it is ready
        empty.seen |= empty.processes()
        started.send_signal(signal.SIGINT)
        _, err = started.communicate(timeout=ENDED_S)
    finally:
        started.kill()
        started.communicate()
    assert "is up and serves resnet-50, digits" in said, err
    assert "Traceback" not in err
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
    seen = empty.home / "seen"
    (empty.home / "broken.py").write_text(BROKEN.format(seen=str(seen)))
    started = empty.start("up", "--config", str(empty.config(STARTING.format(name=empty.name))), "--detach")
    try:
        eventually(lambda: "planned" in empty.mark("status", "--name", empty.name).out, within_s=ENDED_S)
        seen.touch()
        out, err = started.communicate(timeout=ENDED_S)
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
from mark.live.commands.rehearsal import service
from mark.config.settings import load_settings

try:
    with service(load_settings(Path(sys.argv[1]), {})) as running:
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
        _, err = started.communicate(timeout=ENDED_S)
    finally:
        started.kill()
        started.communicate()
    assert int(said) in empty.seen, err
    assert started.returncode == 130, err
    empty.assert_gone()


def test_a_token_guards_what_others_reach_and_a_dead_supervisor_leaves_nothing(empty: Rig) -> None:
    host = "0.0.0.0"  # noqa: S104 - what is asked for
    document = empty.up(LIGHT.format(name=empty.name).replace("port: 0", f"host: {host}\n  port: 0", 1))
    token = document["token"]
    assert len(token) >= 32
    gateway = document["gateway"].replace(host, "127.0.0.1")
    page = document["status_page"].replace(host, "127.0.0.1")
    model = document["models"][0]
    for wrong in (None, "", token[:-1], f"{token}x"):
        status, body, _ = fetch(f"{gateway}/v2/models/{model['name']}/infer", model["example"], token=wrong)
        assert status == 401, body
        assert fetch(page, token=wrong)[0] == 401
    status, body, _ = fetch(f"{gateway}/v2/models/{model['name']}/infer", model["example"], token=token)
    assert status == 200
    assert json.loads(body)["outputs"]
    assert fetch(page, token=token)[0] == 200

    refusals_of_a_service_that_runs(empty)

    empty.seen |= empty.processes()
    agents = {row["pid"] for row in empty.instances("running")}
    assert agents
    assert agents <= empty.seen
    os.kill(empty.running["pid"], signal.SIGKILL)
    eventually(lambda: not empty.processes())
    assert_refused(empty, "status", "--name", empty.name, says=f"no service {empty.name} is up")


def refusals_of_a_service_that_runs(live: Rig) -> None:
    name = ("--name", live.name)
    assert_refused(live, "up", "--detach", *name, says=f"process {live.running['pid']} holds {live.folder}")
    assert live.mark("interrupt", "--share", "0.01", *name).out.startswith("0.01 of ")
    assert_refused(live, "chaos", "nonsense", *name, says="throttle")
    assert_refused(live, "chaos", "kill", "nobody", *name, says="agent")
    assert_refused(live, "chaos", "refuse", "--offering", "c5.lrge:spot", *name, says="c5.large:spot")
    assert_refused(live, "interrupt", "--share", "1.5", *name, says="--share")
    assert_refused(live, "load", "--rate", "5", "--duration", "1", "--model", "nope", *name, says="inception-v3")
    assert_refused(live, "load", "--duration", "1", *name, says="--trace FILE or --rate RPS")
