"""A new version takes over under load and loses nothing; an aborted one answers nobody, whoever was killed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.rig import Rig, eventually, fetch, rig
from tests.end_to_end.steady_load import BODY, Load, load

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
      expected_rps: 100
"""
MODEL = {
    "name": "shop", "latency_ms": 2000, "target_percent": 98, "objective_source": "a test", "memory_gib": 0.5,
    "memory_source": "a test", "payload_mib": 0.002, "payload_source": "a test", "architectures": ["amd64"],
    "accelerators": [], "cpu": True, "redispatch": True,
}  # fmt: skip
PROFILE = {
    "model": "shop", "instance_type": "c5.large", "evidence": "assumed", "source": "a test", "formula": "as given",
    "latency_ms_by_batch": {"1": 20, "2": 25, "4": 35},
}  # fmt: skip
ASKED = json.loads(BODY)


def write_model(home: Path) -> None:
    (home / "shop").mkdir(parents=True)
    (home / "profile.json").write_text(json.dumps({"format": "mark-profiles/1", "profiles": [PROFILE]}))
    (home / "model.json").write_text(json.dumps({"format": "mark-models/1", "models": [MODEL]}))
    edit(home, 1)


def edit(home: Path, answer: object) -> None:
    """Give the model a file that answers so."""
    (home / "shop" / "shop.py").write_text(CODE.format(answer=answer))


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
        live.run_at(SPEED)
        url = f"{live.running['gateway']}/v2/models/shop/infer"
        with load(url) as sending:
            carries(sending)
            assert live.mark("rollout", "start", "--model", "shop", "--name", live.name).status == 2, "no new file"
            edit(live.home, 2)
            at = time.monotonic()
            first = start(live, "--canary", "25,100", "--dwell", "60")
            eventually(lambda: store.versions("shop").weight == 0.25)
            kill(live)
            eventually(lambda: store.versions("shop").rollout.is_over)
            assert store.versions("shop").stable == first["candidate"], status(live)
            assert_promoted(live, sending, first)
            sending.assert_good("promoted, controller and gateway killed", at)

            at = time.monotonic()
            edit(live.home, 3)
            second = start(live, "--canary", "25,100", "--dwell", "100000")
            eventually(lambda: store.versions("shop").weight == 0.25)
            seconds = assert_aborted(live, sending, second)
            sending.assert_good("aborted by command, controller and gateway killed", at, **seconds)

            at = time.monotonic()
            edit(live.home, "1 / 0")
            third = start(live, "--canary", "5,100")
            eventually(lambda: store.versions("shop").weight == 0.05)
            shared_at = time.monotonic()
            eventually(lambda: store.versions("shop").is_aborted(third["candidate"]))
            aborted_s = time.monotonic() - shared_at
            found = status(live)
            assert found["reason"].startswith("burn rate")
            [row] = [one for one in found["versions"] if one["version"] == third["candidate"]]
            assert (row["answered"], row["failed"] >= 10) == (0, True)
            sending.assert_good("aborted by burn rate", at, failed_by_it=row["failed"], aborted_s=aborted_s)

            at = time.monotonic()
            edit(live.home, 1)
            assert start(live, "--canary", "100")["candidate"] == first["stable"], (
                "the same files, the same version"
            )
            live.ask("rollout", "promote", "--model", "shop")
            eventually(lambda: store.versions("shop").stable == first["stable"])
            eventually(lambda: set(sending.since(time.monotonic() - 0.5)) == {1.0})
            sending.assert_good("gone back after a promotion, promoted by command", at)
        notes = [note.text for tick in live.ticks("shop") for note in tick.notes if note.kind == "rollout"]
        assert any("promoted" in text for text in notes)
        assert any("aborted: by command" in text for text in notes)
        live.down()


def carries(sending: Load) -> None:
    """Wait until the fleet carries the load: it was planned for less before there was any."""

    def is_carried() -> bool:
        last = [one.is_good for one in tuple(sending.answers) if one.sent >= time.monotonic() - 5.0]
        return len(last) >= 3.0 * sending.rps and all(last)

    eventually(is_carried)


def assert_promoted(live: Rig, sending: Load, first: dict[str, Any]) -> None:
    """All is answered by the new version; the old one's instances leave."""
    eventually(lambda: set(sending.since(time.monotonic() - 0.5)) == {2.0})
    members = live.store.membership("shop")
    eventually(lambda: {one.version for one in members.members()} == {first["candidate"]})
    [row] = [one for one in status(live)["versions"] if one["version"] == first["candidate"]]
    assert row["role"] == "stable"
    assert row["answered"] > 0


def assert_aborted(live: Rig, sending: Load, second: dict[str, Any]) -> dict[str, float]:
    """A share is the candidate's, and after the abort nothing is, though controller and gateway were killed.

    What it took, in seconds: the command, and until the last request was sent that the candidate answered.
    """
    eventually(lambda: 3.0 in sending.since(time.monotonic() - 5.0))
    named = fetch(f"{live.running['gateway']}/v2/models/shop/versions/{second['candidate']}/infer", ASKED)
    assert json.loads(named[1])["outputs"][0]["data"] == [3.0]
    assert fetch(f"{live.running['gateway']}/v2/models/shop/versions/000000000000/infer", ASKED)[0] == 404
    kill(live)
    asked = time.monotonic()
    assert live.ask("rollout", "abort", "--model", "shop")["phase"] == "aborted"
    aborted = time.monotonic()
    eventually(lambda: sum(sending.since(aborted).values()) >= 500)
    assert set(sending.since(aborted)) == {2.0}
    assert status(live)["weight"] == 0.0
    last = max((one.sent for one in tuple(sending.answers) if one.value == 3.0), default=asked)
    return {"command_s": aborted - asked, "last_answer_s": max(0.0, last - asked)}
