"""The first answer: from a model and a load, by the commands that the guide prints, to what to run.

The replays of all four ways are the judge: the verdict is the cheapest of them that keeps the objective.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mark.plugins import files
from tests.command_line import Mark

MODEL = """
import time

import numpy as np

from mark.domain.tensor import TensorSpec


class Sleeper:
    inputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 4)),)
    outputs = (TensorSpec(name="y", datatype="FP32", shape=(-1, 1)),)

    def predict(self, tensors):
        time.sleep({seconds} * len(tensors["x"]))
        return {{"y": np.zeros((len(tensors["x"]), 1), np.float32)}}
"""
MINUTES = 26 * 60
"""A day that forecasters learn from, and two hours that are replayed."""
LATENCY_MS = {0.003: "50", 0.3: "1000", 2.0: "5000"}
A_DAY = 3 / 86_400
WAYS = {"sagemaker": "now", "autoscaler-spill": "tuned", "lambda-only": "lambda", "hedged": "mark"}


@pytest.fixture(autouse=True)
def _own_folder(mark: Mark) -> Any:
    yield
    files.leave()


@pytest.mark.slow
@pytest.mark.parametrize("rps", [A_DAY, 0.85, 40.0])
@pytest.mark.parametrize("seconds", LATENCY_MS)
def test_the_verdict_is_the_cheapest_that_keeps_the_objective(mark: Mark, seconds: float, rps: float) -> None:
    Path("sleeper.py").write_text(MODEL.format(seconds=seconds))
    _write_minutes(Path("minutes.csv"), rps)
    made = mark("init", "sleeper.py:Sleeper", "--slo-ms", LATENCY_MS[seconds], "--seconds", "3")
    assert made.status == 0, made.err
    (line,) = (line for line in made.out.splitlines() if line.startswith("what to run, with your traffic: "))
    words = shlex.split(line.rpartition(": ")[2])
    assert words[0] == "mark"
    arguments = ["minutes.csv" if word == "ACCESS_LOG" else word for word in words[1:]]

    answer = mark(*arguments, "--json")
    assert answer.status == 0, answer.err
    document = json.loads(answer.out)
    runs = {run["policy"]: run for run in document["runs"]}
    assert set(runs) == set(WAYS), answer.err
    verdict = document["verdict"]
    if not runs["hedged"]["requests"]:
        assert verdict["run"] is None
        assert verdict["sentence"].startswith("No request came in this time: replay another stretch ")
        return
    kept = {
        WAYS[name]: round(run["cost_usd"]["total"], 6)
        for name, run in runs.items()
        if run["slo"]["attained"] >= run["slo"]["target"]
    }
    assert (verdict["run"] is None) == (not kept)
    if kept:
        assert kept[verdict["run"]] <= min(kept.values()) + 0.01 / 365, "to the cent a month"
    assert verdict["sentence"].startswith(("Run ", "Keep ", "Nothing that was replayed keeps "))


def _write_minutes(path: Path, rps: float) -> None:
    """A file as a dashboard exports it: a count a minute, drawn for that load."""
    rows = ["time,requests"]
    for minute, count in enumerate(np.random.default_rng(7).poisson(rps * 60, MINUTES)):
        day, rest = divmod(minute, 24 * 60)
        rows.append(f"2026-11-{1 + day:02}T{rest // 60:02}:{rest % 60:02}:00Z,{count}")
    path.write_text("\n".join(rows) + "\n")
