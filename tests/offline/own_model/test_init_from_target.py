"""`mark init TARGET` writes a folder whose printed commands work as they are."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from mark.catalog.load import load_models
from mark.config.settings import load_settings
from mark.live.models import make_live_models
from mark.plugins import files
from mark.serving import profiling
from tests.offline.own_model.test_profile_here import MODEL
from tests.offline.own_model.test_user_code import package

SLOW = """def predict(self, tensors):
        __import__("time").sleep(0.03)"""
UNLUCKY = """calls = 0

    def predict(self, tensors):
        Doubler.calls += 1
        if Doubler.calls % 40 == 1:
            raise ValueError("bad luck")"""
INIT = ("init", "own/doubler.py:Doubler", "--seconds", "0.02")


@pytest.fixture(autouse=True)
def model(mark):
    Path("own").mkdir()
    Path("own/doubler.py").write_text(MODEL)
    yield
    files.leave()


def profiles(path: str) -> list[dict]:
    return json.loads(Path(path).read_text())["profiles"]


def served(path: str):
    (model,) = make_live_models(load_settings(Path(path), {}))
    return model.served


def test_the_folder_can_be_served_as_it_is(mark):
    answer = mark(*INIT, "--slo-ms", "200", "--slo-target", "0.995", "--memory-gib", "0.5", "--rps", "3")
    assert answer.status == 0, answer.err
    spec = load_models(Path("own/model.json"))["doubler"]

    assert (spec.slo.latency_s, spec.slo.target, spec.memory_gib) == (0.2, 0.995, 0.5)
    found = served("own/mark.yaml")
    assert {item.instance_type.name for item in found.offerings} == {"c5.large"}
    assert found.overflow is not None, "Lambda is measured by the same calls"
    assert "lambda: " in answer.out
    assert "doubler: 3 requests/s are assumed (expected_rps): rents " in answer.out
    assert re.search(r"first plan: [0-9.]+ USD an hour \(.*\), [0-9,.]+ USD a month", answer.out)
    assert [tensor.name for tensor in found.outputs] == ["y"]
    assert "a stand-in" in answer.out
    assert "#" in Path("own/mark.yaml").read_text()


def test_the_printed_commands_work(mark):
    said = mark(*INIT).out
    commands = [shlex.split(line.partition("#")[0]) for line in re.findall(r"^  (mark .*)$", said, re.MULTILINE)]
    assert [command[1] for command in commands] == ["predict", "profile", "up", "down"]

    predict, profile, *_ = commands
    assert mark(*predict[1:]).status == 0
    assert mark(*profile[1:], "--seconds", "0.2").status == 0
    assert served(commands[2][3]).name == "doubler"
    run = ("simulate", "--config", "own/mark.yaml", "--trace", "load.csv.gz", "--start-s", "600")
    assert json.loads(mark(*run, "--policy", "static-peak", "--json").out)["runs"][0]["model"] == "doubler"


def test_the_load_to_expect_is_that_of_a_trace_and_the_file_names_it(mark):
    rows = "".join(f"{60 * minute},{2 + 2 * (minute % 2)}\n" for minute in range(30))
    Path("mine.csv").write_text(f"timestamp_s,rate_rps\n{rows}")
    answer = mark(*INIT, "--trace", "mine.csv")
    assert answer.status == 0, answer.err
    settings = load_settings(Path("own/mark.yaml"), {})
    assert settings.service.serve[0].expected_rps == 3.0
    assert Path(settings.trace.file or "").resolve() == Path("mine.csv").resolve()
    assert mark(*INIT, "--trace", "none.csv", "--force").status == 2


def test_a_model_slower_than_its_objective_is_told_so_and_what_is_measured_is_kept(mark):
    Path("own/doubler.py").write_text(MODEL.replace("def predict(self, tensors):", SLOW))
    answer = mark(*INIT, "--slo-ms", "20")
    assert answer.status == 0, answer.err
    assert "longer than the 20 ms that you promise" in answer.err
    assert "nothing can serve doubler within the objective" in answer.err
    (batches,) = {tuple(one["latency_ms_by_batch"]) for one in profiles("own/profile.json")}
    assert batches == ("1",)


def test_a_model_that_fails_at_times_is_measured_and_told(mark, monkeypatch):
    """By a clock that each look moves on, so that a busy machine calls it as often."""
    looks = itertools.count(0.0, 1e-4)
    monkeypatch.setattr(profiling, "time", SimpleNamespace(perf_counter=looks.__next__))
    Path("own/doubler.py").write_text(MODEL.replace("def predict(self, tensors):", UNLUCKY))
    answer = mark(*INIT)
    assert answer.status == 0, answer.err
    assert "calls of the model failed" in answer.err
    assert answer.err.count("bad luck") <= 2
    assert "calls failed" in profiles("own/profile.json")[0]["source"]


def test_another_folder_may_hold_the_files(mark):
    assert mark(*INIT, "--out", "elsewhere", "--model", "twice").status == 0

    assert "it is a folder" in mark(*INIT, "--out", "own.yaml").err
    assert served("elsewhere/mark.yaml").name == "twice"
    assert mark("predict", "--config", "elsewhere/mark.yaml").status == 0


def test_a_folder_that_imports_count_from_is_written_with_what_it_is(mark):
    assert mark(*INIT).status == 0
    lines = Path("own/mark.yaml").read_text().splitlines()
    comment, folder = lines[lines.index('        folder: ".."') - 1 :][:2]

    assert "# Imports are looked for here, too: where `mark init` ran" in comment
    assert folder.endswith('".."')
    assert mark("init", "own/doubler.py:Doubler", "--seconds", "0", "--out", ".").status == 0
    assert "folder:" not in Path("mark.yaml").read_text()


def test_a_model_in_a_package_is_named_by_its_module(mark, tmp_path):
    package(tmp_path, "models")
    for name in ("model.json", "profile.json"):
        (tmp_path / "models" / name).unlink()
    answer = mark("init", "models.hand:Hand", "--seconds", "0.2")
    assert answer.status == 0, answer.err

    assert served("models/mark.yaml").name == "hand"
    assert mark("predict", "--config", "models/mark.yaml").status == 0


def test_nothing_that_is_there_is_overwritten_unasked(mark):
    assert mark(*INIT).status == 0
    text = Path("own/model.json").read_text()
    refused = mark(*INIT)

    assert refused.status == 2
    assert "own/mark.yaml, own/model.json, own/profile.json are there already" in refused.err
    assert Path("own/model.json").read_text() == text
    assert mark(*INIT, "--force", "--slo-ms", "77").status == 0
    assert load_models(Path("own/model.json"))["doubler"].slo.latency_s == 0.077


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("class Doubler: ...\n", "it lacks inputs, outputs, a method predict(inputs)"),
        (MODEL.replace('{"y"', '{"z"'), "output 'y' is declared and not returned"),
        (MODEL.replace('return {"y"', 'raise ValueError("no"); return {"y"'), "the model does not take zeros"),
    ],
)
def test_a_model_that_does_not_work_writes_nothing(mark, code, said):
    Path("own/doubler.py").write_text(code)
    answer = mark(*INIT)

    assert answer.status == 2
    assert said in answer.err
    assert sorted(path.name for path in Path("own").glob("*.*")) == ["doubler.py"]


def test_without_measuring_the_next_step_is_to_measure(mark):
    answer = mark(*INIT[:2], "--seconds", "0")

    assert answer.status == 0
    assert "it has no profile yet" in answer.out
    assert not Path("own/profile.json").exists()


@pytest.mark.parametrize("target", ["own/doubler.py:Doubler", "own"])
@pytest.mark.parametrize(
    ("flag", "figure"),
    [
        ("--slo-target", "-1"),
        ("--slo-ms", "-5"),
        ("--slo-ms", "nan"),
        ("--rps", "0"),
        ("--memory-gib", "inf"),
        ("--seconds", "-1"),
    ],
)
def test_a_wrong_flag_is_refused_before_the_model_is_made(mark, target, flag, figure):
    Path("own/doubler.py").write_text("raise AssertionError('it was loaded')\n")
    answer = mark("init", target, flag, figure)

    assert answer.status == 2
    assert answer.err.count("\n") == 1
    assert flag in answer.err
    assert not Path("own/mark.yaml").exists()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("../nofolder", "../nofolder: no such file or folder"),
        ("own/doubler.py", "name a class or function: own/doubler.py:Doubler\n"),
    ],
)
def test_a_target_without_a_name_is_told_what_there_is(mark, target, said):
    answer = mark("init", target)
    assert answer.status == 2
    assert said in answer.err


FUNCTIONS = """
import numpy as np

def twice(x):
    return x * 2

def share(x):
    return x / x.sum()

def named(x):
    return {"total": float(x[0] + x[1]), "size": "big" if x[0] > 1 else "small"}

def narrow(x):
    if x.dtype != np.float32:
        raise TypeError("wants 32 bits")
    return x.sum(axis=-1)

def looked_up(x):
    return ["even", "odd", "third"][int(x[1])]

def shout(text: str, times: int) -> str:
    return text.upper() * times

def lacks(x):
    return None

def full(size: float, floor: int = 2, mode=None) -> float:
    return size / floor

def usual(size: float = 3.0, floor: int = 2):
    return size / floor

def maker(size: float = 3.0):
    class Made:
        inputs = outputs = ()
        predict = None
    return Made()

def listed(*xs: float):
    return sum(xs)

def nothing():
    return 1.0

def divides(size: float):
    return {"y": 1 / size}

async def later(x: float):
    return x

def streamed(x: float):
    yield {"part": None}
"""


@pytest.mark.parametrize(
    ("function", "given", "call", "asked", "answered"),
    [
        (
            "twice",
            ["--data", "[[1.5, 2.0]]"],
            "a whole batch",
            "[[3, 1], [2, 2]]",
            {"y": [[6.0, 2.0], [4.0, 4.0]]},
        ),
        ("share", ["--data", "[[1.5, 2.0]]"], "each item", "[[3, 1], [2, 2]]", {"y": [[0.75, 0.25], [0.5, 0.5]]}),
        (
            "named",
            ["--data", "[[1.5, 2.0]]"],
            "each item",
            "[[3, 1], [1, 2]]",
            {"total": [4.0, 3.0], "size": ["big", "small"]},
        ),
        ("narrow", ["--data", "[[1.5, 2.0]]"], "a whole batch", "[[3, 1]]", {"y": [4.0]}),
        ("looked_up", ["--data", "[[7.0, 2.0]]"], "each item", "[[9, 1]]", {"y": ["odd"]}),
        ("shout", [], "each item", '{"text": ["a", "b"], "times": [1, 2]}', {"y": ["A", "BB"]}),
        ("full", [], "each item", '{"size": [3.0], "floor": [2]}', {"y": [1.5]}),
        ("usual", [], "each item", '{"size": [3.0, 4.0], "floor": [2, 2]}', {"y": [1.5, 2.0]}),
    ],
)
def test_a_function_becomes_a_model(mark, function, given, call, asked, answered):
    Path("own/useful.py").write_text(FUNCTIONS)
    answer = mark("init", f"own/useful.py:{function}", *given, *INIT[2:])
    assert answer.status == 0, answer.err
    assert call in answer.out

    found = json.loads(mark("predict", "--config", "own/mark.yaml", "--data", asked, "--json").out)
    assert found["mistakes"] == []
    assert {name: one["data"] for name, one in found["outputs"].items()} == answered
    assert served("own/mark.yaml").overflow is not None


@pytest.mark.parametrize(
    ("function", "given", "said"),
    [
        ("twice", [], "--data '[[1.5, 2.0]]'"),
        ("twice", ["--data", "3"], "is not a batch"),
        ("lacks", ["--data", "[1]"], "is a NoneType"),
        ("shout", ["--data", "[1]"], "an object of text, times"),
        ("maker", [], "inputs is empty"),
        ("listed", [], "without inputs"),
        ("nothing", [], "without inputs"),
        (
            "divides",
            [],
            "called with zeros, does not answer; one call for each item of a batch: ZeroDivisionError",
        ),
        ("streamed", [], "output 'part' is a NoneType"),
        ("later", [], "is async: not supported; write a plain function"),
        ("later", ["--no-load", "--slo-ms", "9", "--memory-gib", "1"], "is async"),
    ],
)
def test_a_function_that_cannot_be_a_model_writes_nothing(mark, function, given, said):
    Path("own/useful.py").write_text(FUNCTIONS)
    answer = mark("init", f"own/useful.py:{function}", *given, *INIT[2:])

    assert answer.status == 2
    assert said in answer.err
    assert answer.err.count("mark: ") == 1
    assert answer.err.count("one call for each item") <= 1
    assert sorted(path.name for path in Path("own").glob("*.*")) == ["doubler.py", "useful.py"]


def test_own_code_is_never_overwritten_by_a_class_around_other_code(mark):
    Path("own/useful.py").write_text(FUNCTIONS)
    Path("own/useful_shout.py").write_text("MINE = 1\n")
    answer = mark("init", "own/useful.py:shout", "--seconds", "0", "--force")
    assert answer.status == 2
    assert "mark init did not write it" in answer.err
    assert Path("own/useful_shout.py").read_text() == "MINE = 1\n"


def test_a_parameter_that_keeps_its_default_is_named(mark):
    Path("own/useful.py").write_text(FUNCTIONS)
    answer = mark("init", "own/useful.py:full", "--seconds", "0")
    assert "no input, as it has a default: mode;" in answer.err


def test_an_example_is_measured_where_zeros_do_not_do(mark):
    Path("own/doubler.py").write_text(MODEL.replace("return {", "assert tensors['x'].any()\n        return {"))
    assert "does not take zeros" in mark(*INIT).err
    assert mark(*INIT, "--data", "[[1, 2, 3, 4]]").status == 0
    assert profiles("own/profile.json")
