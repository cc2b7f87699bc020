"""A model with variants behind two gateways: a surge costs accuracy, not time, and then all is as before."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.rig import Rig, eventually, fetch, rig

CONFIG = """
models: {home}/model.json
profiles: [{home}/profile.json]
service:
  name: {name}
  port: 0
  status_port: 0
  serve:
    - model: net
      market: on-demand
      offerings: {{types: [c5.large], overflow: false, standby_share: 0}}
      expected_rps: 4
"""
MODEL = {
    "name": "net", "latency_ms": 1000, "target_percent": 98, "objective_source": "a test", "memory_gib": 0.5,
    "memory_source": "a test", "payload_mib": 0.002, "payload_source": "a test", "architectures": ["amd64"],
    "accelerators": [], "cpu": True, "redispatch": True,
}  # fmt: skip
FULL_MS = {"small": 120, "middle": 250, "large": 500}
ACCURACY = {"small": 0.7, "middle": 0.75, "large": 0.8}
BATCHES = (1, 2, 4, 8)
CALM_RPS, SURGE_RPS = 4, 45
"""An instance answers 16 requests/s with `large`, and 66 with `small`."""


def profile(variant: str) -> dict[str, Any]:
    """From a third of the full batch's time on."""
    latency_ms = {str(size): FULL_MS[variant] * (1 / 3 + 2 / 3 * (size - 1) / 7) for size in BATCHES}
    return {
        "model": "net", "instance_type": "c5.large", "variant": variant, "evidence": "assumed", "source": "a test",
        "formula": "as given", "accuracy": ACCURACY[variant], "latency_ms_by_batch": latency_ms,
    }  # fmt: skip


def write_model(home: Path) -> None:
    home.mkdir()
    profiles = {"format": "mark-profiles/1", "profiles": [profile(variant) for variant in FULL_MS]}
    (home / "profile.json").write_text(json.dumps(profiles), encoding="utf-8")
    (home / "model.json").write_text(json.dumps({"format": "mark-models/1", "models": [MODEL]}), encoding="utf-8")


def objective(live: Rig) -> dict[str, Any]:
    [model] = live.ask("status")["models"]
    found: dict[str, Any] = model["objective"]
    return found


@contextmanager
def load(live: Rig, rate: int, duration_s: int) -> Iterator[subprocess.Popen[str]]:
    """A load that goes on beside the test."""
    process = live.start("load", "--rate", str(rate), "--duration", str(duration_s), "--name", live.name, "--json")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until_accuracy(live: Rig, *, full: bool) -> None:
    """Wait until the last window's answers were all the best variant's, or some were not."""

    def reached() -> bool:
        now = objective(live)["accuracy_now"]
        return now is not None and (now > ACCURACY["large"] - 0.001) == full

    eventually(reached)


@pytest.mark.slow
def test_a_surge_costs_accuracy_and_not_the_objective(tmp_path: Path) -> None:
    write_model(tmp_path / "home")
    with rig(tmp_path / "home", "varied") as live:
        document = live.up(CONFIG.format(home=live.home, name=live.name))
        try:
            assert len([name for name in live.running["processes"] if name.startswith("gateway")]) == 2
            with load(live, CALM_RPS, 120):
                until_accuracy(live, full=True)
            with load(live, SURGE_RPS, 25) as surge:
                until_accuracy(live, full=False)
                out, err = surge.communicate(timeout=90)
                assert surge.returncode == 0, err
            told = json.loads(out)
            assert told["errors"] == {"retried": 0}
            assert told["attained"] >= 0.98
            with load(live, CALM_RPS, 120):
                until_accuracy(live, full=True)
            assert ACCURACY["small"] < objective(live)["accuracy"] < ACCURACY["large"]
            page = fetch(document["status_page"])[1].decode()
            assert "% right" in page
            assert_floors(document)
        finally:
            live.down()


def assert_floors(document: dict[str, Any]) -> None:
    """A floor is kept, or refused with the variant that comes nearest."""
    [model] = document["models"]
    url = f"{document['gateway']}/v2/models/net/infer"
    kept = {**model["example"], "parameters": {"accuracy_floor": 0.76}}
    status, body, headers = fetch(url, kept)
    assert (status, headers["x-mark-variant"], json.loads(body)["model_version"]) == (200, "large", "large")
    status, body, _ = fetch(url, {**model["example"], "parameters": {"accuracy_floor": 0.9}})
    assert status == 400
    assert "large, has 0.8" in json.loads(body)["error"]
