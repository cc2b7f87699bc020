"""A new version takes over under load and loses nothing; an aborted one answers nobody, whoever was killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mark.domain.clock import ClockAnchor
from mark.live.local.clock_control import set_clock
from mark.live.local.emulator_client import EmulatedControls
from mark.steady_time import steady_time
from tests.end_to_end.rig import Rig, eventually, fetch, rig

SPEED = 30.0
"""Boots take their minutes on the service's clock."""
CODE = """
import numpy as np
from mark.domain.tensor import TensorSpec

class Shop:
    inputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 1)),)
    outputs = (TensorSpec(name="y", datatype="FP32", shape=(-1, 1)),)

    def predict(self, tensors):
        return {{"y": np.full_like(tensors["x"], {answer})}}
"""
CONFIG = """
models: {home}/model.json
profiles: [{home}/profile.json]
service:
  name: {name}
  port: 0
  status_port: 0
  serve:
    - model: shop
      backend: {{kind: python, target: shop/shop.py:Shop}}
      market: on-demand
      offerings: {{types: [c5.large], overflow: false, standby_share: 0}}
      expected_rps: 30
"""
MODEL = {
    "name": "shop", "latency_ms": 2000, "target_percent": 98, "objective_source": "a test", "memory_gib": 0.5,
    "memory_source": "a test", "payload_mib": 0.002, "payload_source": "a test", "architectures": ["amd64"],
    "accelerators": [], "cpu": True, "redispatch": True,
}  # fmt: skip
PROFILE = {
    "model": "shop", "instance_type": "c5.large", "evidence": "assumed", "source": "a test", "formula": "as given",
    "latency_ms_by_batch": {"1": 40, "2": 60, "4": 100},
}  # fmt: skip
BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [0.0]}]}


def write_model(home: Path) -> None:
    (home / "shop").mkdir(parents=True)
    (home / "profile.json").write_text(json.dumps({"format": "mark-profiles/1", "profiles": [PROFILE]}))
    (home / "model.json").write_text(json.dumps({"format": "mark-models/1", "models": [MODEL]}))
    edit(home, 1)


def edit(home: Path, answer: object) -> None:
    """Give the model a file that answers so."""
    (home / "shop" / "shop.py").write_text(CODE.format(answer=answer))


@dataclass
class Load:
    """Requests from a few threads, one after another in each; `answers` holds when each was sent and what came."""

    url: str
    answers: list[tuple[float, int, float | None, float]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, name: str) -> None:
        number = 0
        while not self.stop.wait(0.05):
            number += 1
            sent = time.monotonic()
            status, value = self.ask(f"{name}-{number}")
            self.answers.append((sent, status, value, time.monotonic() - sent))

    def ask(self, request_id: str) -> tuple[int, float | None]:
        """One request; where its gateway was lost it is sent again under its id, as `mark load` does."""
        for _ in range(3):
            try:
                status, body, _ = fetch(self.url, BODY, more={"x-mark-request-id": request_id})
            except OSError:
                continue
            return status, json.loads(body)["outputs"][0]["data"][0] if status == 200 else None
        return 0, None

    def since(self, at: float) -> Counter[float | None]:
        """Answers to what was sent from then on."""
        return Counter(value for sent, _, value, _ in tuple(self.answers) if sent >= at)

    def failed(self) -> int:
        """Requests that got no answer of a model."""
        return sum(status != 200 for _, status, _, _ in tuple(self.answers))

    def assert_good(self, *, failed: int = 0) -> None:
        """No more than so many are lost, and the objective is kept."""
        found = tuple(self.answers)
        assert self.failed() <= failed
        assert {status for _, status, _, _ in found} <= {200, 500}
        assert sum(
            status == 200 and took <= MODEL["latency_ms"] / 1000 for _, status, _, took in found
        ) >= 0.98 * len(found)  # type: ignore[operator]


@contextmanager
def load(url: str, *names: str) -> Iterator[Load]:
    """Load until the block ends. names: of its threads, by which their requests' ids begin."""
    made = Load(url)
    threads = [threading.Thread(target=made.run, args=(name,)) for name in names or ("a", "b")]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        made.stop.set()
        for thread in threads:
            thread.join()


def kill(live: Rig) -> None:
    """End the controller that acts, and a gateway."""
    processes = live.running["processes"]
    holder = live.store.leases.held_by()
    assert holder is not None
    os.kill(processes[holder.partition(".")[0]], signal.SIGKILL)
    os.kill(processes["gateway-0"], signal.SIGKILL)


def status(live: Rig) -> dict[str, Any]:
    return live.ask("rollout", "status", "--model", "shop")


def start(live: Rig, *flags: str) -> dict[str, Any]:
    return live.ask("rollout", "start", "--model", "shop", *flags)


@pytest.mark.slow
def test_versions_replace_one_another_under_load(tmp_path: Path) -> None:
    write_model(tmp_path / "home")
    with rig(tmp_path / "home", "versions") as live:
        live.up(CONFIG.format(home=live.home, name=live.name))
        store = live.store
        now = store.clock().service_time(steady_time())
        anchor = ClockAnchor(wall_at=steady_time(), service_at=now, speed=SPEED)
        set_clock(store, EmulatedControls(live.running["aws_endpoint"]), anchor)
        url = f"{live.running['gateway']}/v2/models/shop/infer"
        with load(url) as sending:
            assert live.mark("rollout", "start", "--model", "shop", "--name", live.name).status == 2, "no new file"
            edit(live.home, 2)
            first = start(live, "--canary", "25,100", "--dwell", "60")
            eventually(lambda: store.versions("shop").weight == 0.25)
            kill(live)
            eventually(lambda: store.versions("shop").stable == first["candidate"])
            assert_promoted(live, sending, first)

            edit(live.home, 3)
            second = start(live, "--canary", "25,100", "--dwell", "100000")
            eventually(lambda: store.versions("shop").weight == 0.25)
            assert_aborted(live, sending, second)
            sending.assert_good()

            edit(live.home, "1 / 0")
            third = start(live, "--canary", "5,100")
            eventually(lambda: status(live)["is_over"])
            assert "burn rate" in status(live)["reason"]
            assert store.versions("shop").is_aborted(third["candidate"])
            sending.assert_good(failed=20)

            edit(live.home, 1)
            assert start(live, "--canary", "100")["candidate"] == first["stable"], (
                "the same files, the same version"
            )
            live.ask("rollout", "promote", "--model", "shop")
            eventually(lambda: store.versions("shop").stable == first["stable"])
            eventually(lambda: sending.since(time.monotonic() - 0.5).keys() == {1.0})
        sending.assert_good(failed=20)
        notes = [note.text for tick in live.ticks("shop") for note in tick.notes if note.kind == "rollout"]
        assert any("promoted" in text for text in notes)
        assert any("aborted by command" in text for text in notes)
        live.down()


def assert_promoted(live: Rig, sending: Load, first: dict[str, Any]) -> None:
    """All is answered by the new version; the old one's instances leave."""
    eventually(lambda: sending.since(time.monotonic() - 0.5).keys() == {2.0})
    members = live.store.membership("shop")
    eventually(lambda: {one.version for one in members.members()} == {first["candidate"]})
    [row] = [one for one in status(live)["versions"] if one["version"] == first["candidate"]]
    assert row["role"] == "stable"
    assert row["answered"] > 0


def assert_aborted(live: Rig, sending: Load, second: dict[str, Any]) -> None:
    """A share is the candidate's, and after the abort nothing is, though controller and gateway were killed."""
    eventually(lambda: 3.0 in sending.since(time.monotonic() - 5.0))
    named = fetch(f"{live.running['gateway']}/v2/models/shop/versions/{second['candidate']}/infer", BODY)
    assert json.loads(named[1])["outputs"][0]["data"] == [3.0]
    assert fetch(f"{live.running['gateway']}/v2/models/shop/versions/000000000000/infer", BODY)[0] == 404
    kill(live)
    asked = time.monotonic()
    assert live.ask("rollout", "abort", "--model", "shop")["phase"] == "aborted"
    aborted = time.monotonic()
    eventually(lambda: sum(sending.since(aborted).values()) >= 50)
    assert sending.since(aborted).keys() == {2.0}
    assert {2.0, 3.0} >= sending.since(asked).keys()
    assert status(live)["weight"] == 0.0
