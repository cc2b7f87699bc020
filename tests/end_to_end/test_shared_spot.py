"""A spot instance that models share is taken away under load: nothing is lost, and they share another one."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mark.domain.fleet.host_spec import SHARED
from mark.store.published_status import HOSTS
from tests.end_to_end.rig import Rig, eventually, fetch, rig
from tests.end_to_end.test_versions import MODEL, PROFILE

SPEED = 15.0
"""A notice comes two minutes ahead, on the service's clock."""
NAMES = ("one", "two")
TIMES = {"c5.large": {"1": 10, "4": 25}, "lambda": {"1": 100}}
CONFIG = """
models: {home}/models.json
profiles: [{home}/profiles.json]
market: spot
offerings: {{types: [c5.large], standby_share: 0}}
service:
  name: {name}
  port: 0
  status_port: 0
  serve:
    - {{model: one, expected_rps: 10}}
    - {{model: two, expected_rps: 10}}
"""


def write_models(home: Path) -> None:
    home.mkdir()
    profiles = [
        {**PROFILE, "model": name, "instance_type": kind, "latency_ms_by_batch": took}
        for name in NAMES
        for kind, took in TIMES.items()
    ]
    models = [{**MODEL, "name": name, "latency_ms": 1000} for name in NAMES]
    (home / "profiles.json").write_text(json.dumps({"format": "mark-profiles/1", "profiles": profiles}))
    (home / "models.json").write_text(json.dumps({"format": "mark-models/1", "models": models}))


def sharing(live: Rig) -> dict[str, set[str]]:
    """Models that take requests on each shared instance that stays."""
    told, there = HOSTS.read(live.store), {row["id"]: row for row in live.instances("running")}
    return {
        host.id: set(host.serving)
        for host in (told.hosts if told is not None else ())
        if host.id in there and there[host.id]["terminates_at"] is None
    }


@pytest.mark.slow
def test_models_on_a_spot_instance_that_is_taken_away_lose_nothing_and_share_another(tmp_path: Path) -> None:
    write_models(tmp_path / "home")
    with rig(tmp_path / "home", "sharedspot") as live:
        live.up(CONFIG.format(home=live.home, name=live.name))
        eventually(lambda: list(sharing(live).values()) == [set(NAMES)])
        (before,) = sharing(live)
        live.run_at(SPEED)
        found, over = Counter[tuple[str, int, str]](), threading.Event()

        def keep_asking(model: str, example: object) -> None:
            while not over.wait(0.05):
                url = f"{live.running['gateway']}/v2/models/{model}/infer"
                status, _, headers = fetch(url, example)
                found[model, status, headers.get("x-mark-served-by", "")] += 1

        with ThreadPoolExecutor(len(NAMES)) as threads:
            asking = [threads.submit(keep_asking, one["name"], one["example"]) for one in live.running["models"]]
            try:
                eventually(lambda: sum(found.values()) > 50)
                assert live.ask("interrupt", "--share", "1")["instances"] == [before]
                eventually(lambda: set(NAMES) in sharing(live).values())
                eventually(lambda: before not in {row["id"] for row in live.instances("running")})
                asked = sum(found.values())
                eventually(lambda: sum(found.values()) > asked + 50)
            finally:
                over.set()
                for one in asking:
                    one.result()
        assert {status for _, status, _ in found} == {200}, found
        assert before not in sharing(live)
        rows = [row for row in live.instances("running") if row["tags"]["mark:model"] == SHARED]
        assert len(rows) == 1
        live.down()
