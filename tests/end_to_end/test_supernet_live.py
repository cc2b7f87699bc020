"""A supernet of one's own in torch behind a live agent, as docs/papers.md serves it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.rig import fetch, rig
from tests.end_to_end.test_variants import CONFIG, MODEL, objective
from tests.models import small_net

SERVE = """
from pathlib import Path

from mark.offline.supernet.served import served_supernet


def model():
    return served_supernet(Path(__file__).parent / "supernet")
"""
TRAIN = (
    *("supernet", "train", "--target", "small_net.py:SmallNet", "--epochs", "4", "--batches", "1,8"),
    *("--seconds", "0.05", "--model", "net", "--out", "supernet", "--json"),
)
BACKEND = "      backend: {kind: python, target: serve.py:model}\n"


@pytest.mark.slow
def test_a_trained_supernet_switches_behind_an_agent(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(small_net.__file__, home / "small_net.py")
    (home / "serve.py").write_text(SERVE, encoding="utf-8")
    (home / "model.json").write_text(json.dumps({"format": "mark-models/1", "models": [MODEL]}), encoding="utf-8")
    with rig(home, "trained") as live:
        trained = live.mark(*TRAIN).document
        shutil.copy(home / "supernet" / "profile.json", home / "profile.json")
        accuracy = {one["variant"]: one["accuracy"] for one in trained["variants"]}
        best = max(accuracy.values())
        document = live.up(CONFIG.format(home=home, name=live.name) + BACKEND)
        try:
            [model] = document["models"]
            url, body = f"{document['gateway']}/v2/models/net/infer", model["example"]
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
            assert (status, "unknown variant of net" in json.loads(answer)["error"]) == (400, True)
            assert min(accuracy.values()) <= objective(live)["accuracy"] <= best
        finally:
            live.down()
