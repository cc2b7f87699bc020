"""`mark init --no-load`: a model whose GPU is missing is not made here, and can be measured where there is one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.config.settings import load_settings
from mark.live.models import make_live_models
from mark.plugins import files
from tests.offline.own_model.test_init_saved import identity
from tests.offline.own_model.test_profile_here import MODEL

CODE = f"""
{MODEL}
class Gpu(Doubler):
    def __init__(self):
        raise AssertionError("no GPU here")

class Late:
    def __init__(self):
        self.inputs, self.outputs = Doubler.inputs, Doubler.outputs

    predict = Doubler.predict

def score(age: float, visits: int) -> float:
    raise AssertionError("no GPU here")

def untold(x):
    return x
"""
STATED = ("--no-load", "--slo-ms", "200", "--memory-gib", "4")


@pytest.fixture(autouse=True)
def model(mark):
    Path("gpu.py").write_text(CODE)
    yield
    files.leave()


@pytest.mark.parametrize("name", ["Gpu", "score"])
def test_the_files_lead_to_a_measured_profile(mark, name):
    answer = mark("init", f"gpu.py:{name}", *STATED)
    assert answer.status == 0, answer.err
    assert "mark profile --config mark.yaml --on g4dn.xlarge --out profile.json" in answer.out

    (one,) = make_live_models(load_settings(Path("mark.yaml"), {}))
    assert {offering.instance_type.name for offering in one.served.offerings} == {"g4dn.xlarge"}
    (profile,) = json.loads(Path("profile.json").read_text())["profiles"]
    assert profile["evidence"] == "assumed"
    asked = mark("profile", "--config", "mark.yaml", "--on", "g4dn.xlarge")
    assert "give --yes to go on" in asked.err, "settings and launch templates allow it"


def test_without_the_flag_it_is_named(mark):
    answer = mark("init", "gpu.py:Gpu", "--slo-ms", "200")
    assert answer.status == 2
    assert "no GPU here" in answer.err
    assert "--no-load" in answer.err


@pytest.mark.parametrize(
    ("target", "flags", "said"),
    [
        ("gpu.py:Gpu", STATED[:3], "give --memory-gib"),
        ("gpu.py:Late", STATED, "it lacks inputs, outputs"),
        ("gpu.py:untold", STATED[:3], "give --memory-gib; untold is not called"),
        ("gpu.py:untold", STATED, "annotations have to tell"),
        ("same.onnx", STATED, "--no-load is for code"),
    ],
)
def test_what_only_a_call_would_tell_is_refused(mark, target, flags, said):
    identity("same.onnx")
    answer = mark("init", target, *flags)

    assert answer.status == 2
    assert said in answer.err
    assert not Path("mark.yaml").exists()
