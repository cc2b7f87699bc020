"""`mark init`, `mark predict` and `mark profile` of a model that yields."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.config.settings import load_settings
from mark.live.models import make_live_models
from mark.plugins import files

MODEL = """
import numpy as np
from mark.domain.tensor import TensorSpec

class Words:
    inputs = (TensorSpec(name="text", datatype="BYTES", shape=(-1, 1)),)
    outputs = (TensorSpec(name="word", datatype="BYTES", shape=(-1, 1)),)

    def predict(self, inputs):
        for word in inputs["text"][0, 0].split():
            yield {"word": np.array([[word]], dtype=object)}

def told(text: str):
    yield from text.split()
"""
EXAMPLE = ("--data", '[["a b c"]]')


@pytest.fixture(autouse=True)
def model(mark):
    Path("words.py").write_text(MODEL)
    yield
    files.leave()


def test_a_stream_is_measured_to_its_end_and_served_as_one(mark):
    answer = mark("init", "words.py:Words", *EXAMPLE, "--slo-ms", "500", "--seconds", "0.3")
    assert answer.status == 0, answer.err
    assert "begin within 500 ms" in answer.out

    (one,) = make_live_models(load_settings(Path("mark.yaml"), {}))
    assert one.served.backend.streams
    assert one.served.slo.first_byte_s == 0.5
    assert one.served.overflow is None
    (profile,) = json.loads(Path("profile.json").read_text())["profiles"]
    assert "1" in profile["latency_ms_by_batch"]


def test_parts_are_printed_and_compared_with_what_is_declared(mark):
    found = json.loads(mark("predict", "--target", "words.py:Words", *EXAMPLE, "--json").out)
    assert [part["outputs"]["word"]["data"] for part in found["parts"]] == [[["a"]], [["b"]], [["c"]]]
    assert 0 < found["first_ms"] <= found["whole_ms"]

    said = mark("predict", "--target", "words.py:Words", *EXAMPLE).out
    assert said.index('"a"') < said.index('"c"') < said.index("all 3 after")
    Path("words.py").write_text(MODEL.replace('yield {"word"', 'yield {"other"'))
    differs = mark("predict", "--target", "words.py:Words", *EXAMPLE)
    assert differs.status == 1
    assert "output 'word' is declared and not returned" in differs.err


def test_a_profile_has_the_time_to_the_first_part(mark):
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": ["a b c"]}
    Path("body.json").write_text(json.dumps({"inputs": [tensor]}))
    run = ("profile", "--target", "words.py:Words", "--seconds", "0.2", "--batches", "1,2", "--json")
    answer = mark(*run, "--body", "body.json")
    assert answer.status == 0, answer.err
    points = json.loads(answer.out)["points"]
    assert [point["batch"] for point in points] == [1, 2]
    assert all(point["first_ms"] > 0 for point in points)

    nothing = mark(*run)
    assert nothing.status == 2
    assert "yields nothing" in json.loads(nothing.out)["error"]["message"]


def test_a_function_that_yields_is_a_stream(mark):
    answer = mark("init", "words.py:told", "--data", '["a b"]', "--seconds", "0.3")
    assert answer.status == 0, answer.err
    found = json.loads(mark("predict", "--config", "mark.yaml", "--data", '["a b"]', "--json").out)
    assert [part["outputs"]["y"]["data"] for part in found["parts"]] == [["a"], ["b"]]
    assert found["mistakes"] == []
