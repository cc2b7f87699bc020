"""`mark init FOLDER` writes one mark.yaml for all models of a folder that work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.config.settings import load_settings
from mark.live.models import make_live_models
from mark.offline.own_model.init_from_folder import targets_in
from mark.offline.own_model.wrapper import WRITTEN
from tests.offline.own_model.test_init_saved import identity
from tests.offline.own_model.test_profile_here import MODEL

PRICE = "def predict(size: float) -> float:\n    return 2 * size\n"
SCRIPT = "raise SystemExit('a training that nobody asked for')\n"


@pytest.fixture
def folder(mark) -> Path:
    place = Path("models")
    place.mkdir()
    (place / "doubler.py").write_text(MODEL)
    (place / "price.py").write_text(PRICE)
    (place / "train.py").write_text(SCRIPT)
    (place / "same.onnx").write_bytes(b"")
    return place


def test_models_are_found_by_reading_and_not_again_in_what_was_written(folder):
    found = ("models/doubler.py:Doubler", "models/price.py:predict", "models/same.onnx")
    assert targets_in(folder).targets == found
    written = f'"""Around something. {WRITTEN}"""\n{MODEL}'
    (folder / "same_onnx.py").write_text(written)
    (folder / "price_predict.py").write_text(written)
    assert targets_in(folder).targets == found


def test_own_code_is_used_where_a_class_would_be_written(folder):
    (folder / "price_predict.py").write_text(MODEL)
    (folder / "same_onnx.py").write_text(MODEL)
    found = targets_in(folder)
    assert found.targets == (
        "models/doubler.py:Doubler",
        "models/price_predict.py:Doubler",
        "models/same_onnx.py:Doubler",
    )
    assert list(found.no_models) == ["models/price.py:predict", "models/same.onnx"]


def test_a_class_goes_before_the_saved_file_that_it_loads_or_that_has_its_name(mark):
    Path("models").mkdir()
    Path("models/doubler.py").write_text(f"{MODEL}\nWEIGHTS = 'data/weights.pkl'\n")
    for file in ("doubler.joblib", "weights.pkl"):
        Path("models", file).write_text("what only the class can read")
    found = targets_in(Path("models"))
    assert found.targets == ("models/doubler.py:Doubler",)
    assert found.no_models == {
        "models/doubler.joblib": "Doubler in doubler.py has its name",
        "models/weights.pkl": "Doubler in doubler.py loads it",
    }


def test_one_file_serves_all_and_what_does_not_work_or_has_another_s_name_is_left_out(mark, folder):
    for other in ("same.onnx", "price.py"):
        (folder / other).unlink()
    (folder / "doubler.joblib").write_text("what only the class can read")
    (folder / "crash.py").write_text("import os\n\ndef predict(x: float) -> float:\n    os._exit(3)\n")
    identity("models/echo.onnx")
    (folder / "echo.py").write_text(PRICE)
    (folder / "twice.py").write_text(MODEL.replace("    inputs", "    def __init__(self): 1 / 0\n    inputs"))
    answer = mark("init", "models", "--seconds", "0.02", "--slo-ms", "300")
    assert answer.status == 1
    assert "models/doubler.joblib is not a model of its own: Doubler in doubler.py has its name" in answer.err
    left_out = dict(line.split(" is left out: ") for line in answer.err.splitlines() if "is left out" in line)
    assert [one.split()[1] for one in left_out] == [
        "models/crash.py:predict", "models/echo.py:predict", "models/twice.py:Doubler",
    ]  # fmt: skip
    assert left_out["note: models/echo.py:predict"] == "it is a second model named echo; rename its file"
    assert [path.name for path in folder.glob("echo_*")] == ["echo_onnx.py"]  # nothing around the second
    assert "a second model named doubler" in left_out["note: models/twice.py:Doubler"]  # found before it is made

    models = make_live_models(load_settings(Path("models/mark.yaml"), {}))
    assert [model.name for model in models] == ["doubler", "echo"]
    assert {model.served.slo.latency_s for model in models} == {0.3}
    found = mark("predict", "--config", "models/mark.yaml", "--model", "echo", "--data", "[[3.0, 1.0]]", "--json")
    assert json.loads(found.out)["outputs"]["y"]["data"] == [[3.0, 1.0]]


def test_a_folder_without_models_and_flags_of_one_model_are_refused(mark, folder):
    assert "for one model" in mark("init", "models", "--model", "mine").err
    Path("none").mkdir()
    answer = mark("init", "none")
    assert answer.status == 2
    assert "holds no model" in answer.err
