"""Two supernets of one's own in torch in one live service, as docs/papers.md serves them."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.rig import Rig, fetch, rig
from tests.end_to_end.test_variants import MODEL
from tests.models import small_net

SERVE = """
from pathlib import Path

from mark.offline.supernet.served import served_supernet


def net():
    return served_supernet(Path(__file__).parent / "net")


def text():
    return served_supernet(Path(__file__).parent / "text")
"""
SOURCES = {"net": "SmallNet", "text": "SmallText"}
"""A convolutional supernet and a transformer."""
TRAIN = ("supernet", "train", "--epochs", "4", "--batches", "1,8", "--seconds", "0.05", "--json")
CONFIG = """
models: {home}/model.json
profiles: [{home}/net/profile.json, {home}/text/profile.json]
service:
  name: {name}
  port: 0
  status_port: 0
  serve:
"""
SERVED = """
    - model: {model}
      market: on-demand
      offerings: {{types: [c5.large], overflow: false, standby_share: 0}}
      expected_rps: 4
      backend: {{kind: python, target: serve.py:{model}}}
"""


@pytest.mark.slow
def test_trained_supernets_switch_behind_agents(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(small_net.__file__, home / "small_net.py")
    (home / "serve.py").write_text(SERVE, encoding="utf-8")
    models = {"format": "mark-models/1", "models": [{**MODEL, "name": name} for name in SOURCES]}
    (home / "model.json").write_text(json.dumps(models), encoding="utf-8")
    with rig(home, "trained") as live:
        trained = {
            name: live.mark(*TRAIN, "--target", f"small_net.py:{source}", "--model", name, "--out", name).document
            for name, source in SOURCES.items()
        }
        served = "".join(SERVED.format(model=name) for name in SOURCES)
        document = live.up(CONFIG.format(home=home, name=live.name) + served)
        try:
            for model in document["models"]:
                assert_switches(live, document["gateway"], model, trained[model["name"]])
        finally:
            live.down()


def assert_switches(live: Rig, gateway: str, model: dict[str, Any], trained: dict[str, Any]) -> None:
    """Each variant answers when it is asked for, with scores of its own, and metrics count its batches."""
    name, accuracy = model["name"], {one["variant"]: one["accuracy"] for one in trained["variants"]}
    best = max(accuracy.values())
    url, body = f"{gateway}/v2/models/{name}/infer", model["example"]
    status, _, headers = fetch(url, body)
    assert status == 200
    assert accuracy[headers["x-mark-variant"]] == best  # nothing else waits
    answers = {}
    for variant in accuracy:
        status, answer, headers = fetch(url, body, more={"x-mark-variant": variant})
        assert (status, headers["x-mark-variant"]) == (200, variant)
        answers[variant] = json.dumps(json.loads(answer)["outputs"])
    assert len(set(answers.values())) > 1  # weights are switched, not only names
    status, answer, _ = fetch(url, body, more={"x-mark-variant": "huge"})
    assert (status, f"unknown variant of {name}" in json.loads(answer)["error"]) == (400, True)
    batches: Counter[str] = Counter()
    for instance in live.instances("running"):
        if (instance["tags"]["mark:role"], instance["tags"]["mark:model"]) == ("serving", name):
            page = fetch(f"http://{instance['address']}:8000/metrics")[1].decode()
            pattern = r'^mark_agent_variant_batches_total\{.*variant="(.*?)"\} (\d+)'
            for variant, count in re.findall(pattern, page, re.MULTILINE):
                batches[variant] += int(count)
    assert batches.keys() == accuracy.keys()
    assert batches.total() == len(accuracy) + 1
    objectives = {one["name"]: one["objective"] for one in live.ask("status")["models"]}
    assert min(accuracy.values()) <= objectives[name]["accuracy"] <= best
