"""A user's own model finds its own modules, whatever MArk's packages are called."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from mark.config.settings import load_settings
from mark.domain.errors import Misconfigured
from mark.live.models import make_live_models
from mark.plugins import files
from mark.plugins.load import load_forecaster, load_model, make_model

HAND = """
import numpy as np
from mark.domain.tensor import TensorSpec
from {package}.util import FACTOR

class Hand:
    inputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 4)),)
    outputs = (TensorSpec(name="y", datatype="FP32", shape=(-1, 4)),)

    def predict(self, tensors):
        from {package}.late import OFFSET

        return {{"y": np.asarray(tensors["x"]) * FACTOR + OFFSET}}
"""
SPEC = {"name": "hand", "latency_ms": 200, "target_percent": 99, "memory_gib": 0.5, "payload_mib": 0.01}
PROFILE = {
    "model": "hand",
    "instance_type": "c5.large",
    "evidence": "measured",
    "latency_ms_by_batch": {"1": 3},
}


@pytest.fixture(autouse=True)
def forgotten():
    yield
    files.leave()


def package(folder: Path, name: str, *, factor: int = 2, init: bool = True) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    if init:
        (place / "__init__.py").write_text("")
    (place / "hand.py").write_text(HAND.format(package=name))
    (place / "util.py").write_text(f"FACTOR = {factor}\n")
    (place / "late.py").write_text("OFFSET = 1\n")
    (place / "model.json").write_text(json.dumps({"format": "mark-models/1", "models": [SPEC]}))
    (place / "profile.json").write_text(json.dumps({"format": "mark-profiles/1", "profiles": [PROFILE]}))
    return folder


def answer(target: str, folder: Path) -> object:
    return make_model(target, folder).predict({"x": [[1.0]]})["y"].tolist()


@pytest.mark.parametrize("init", [True, False])
def test_a_package_of_the_folder_is_imported_by_name_and_by_file(tmp_path, init):
    folder = package(tmp_path, "pkg", init=init)

    assert answer("pkg.hand:Hand", folder) == [[3.0]]
    assert answer(f"{folder}/pkg/hand.py:Hand", folder) == [[3.0]]


def test_an_installed_package_of_the_same_name_comes_back_when_other_code_is_loaded(tmp_path):
    package(tmp_path, "models")
    (tmp_path / "mark" / "models").mkdir(parents=True)
    (tmp_path / "mark" / "models" / "digits.py").write_text("raise RuntimeError('not the MArk that runs')\n")
    before, found, other = list(sys.path), list(sys.meta_path), import_module("models")
    assert answer("models.hand:Hand", tmp_path) == [[3.0]]
    digits = load_model("mark.models.digits:Digits", tmp_path)

    assert digits.__module__ == "mark.models.digits"
    assert load_forecaster("last-value").__module__ == "mark.predictors.naive"
    assert import_module("models") is other
    assert answer("models.hand:Hand", tmp_path) == [[3.0]]
    assert load_forecaster("mark.predictors.naive:LastValue").__name__ == "LastValue"
    assert (sys.path, sys.meta_path) == (before, found)


def test_two_folders_with_packages_of_the_same_name_are_two(tmp_path):
    one, two = package(tmp_path / "one", "pkg", factor=2), package(tmp_path / "two", "pkg", factor=5)

    assert [answer("pkg.hand:Hand", folder) for folder in (one, two, one)] == [[[3.0]], [[6.0]], [[3.0]]]


def test_a_stray_file_replaces_nothing_that_is_installed(tmp_path):
    package(tmp_path, "pkg")
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('the wrong one')\n")
    (tmp_path / "orjson.py").write_text("raise RuntimeError('the wrong one')\n")
    hand = tmp_path / "pkg" / "hand.py"
    hand.write_text("import colorsys, orjson\n" + hand.read_text())

    assert answer("pkg.hand:Hand", tmp_path) == [[3.0]]


def test_a_module_that_is_nowhere_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(Misconfigured, match=r"'pkg.none' is neither in .* nor installed"):
        load_model("pkg.none:Hand", package(tmp_path, "pkg"))
    with pytest.raises(Misconfigured, match=r"code is a module of Python's own; name the file, code/hand.py"):
        load_model("code.hand:Hand", package(tmp_path, "code"))
    (tmp_path / "pkg" / "relative.py").write_text("from .util import FACTOR\n")
    with pytest.raises(Misconfigured, match=r"named as its module, package.module:Name"):
        load_model(f"{tmp_path}/pkg/relative.py:Hand", tmp_path)


def test_a_module_counts_from_the_folder_of_the_settings_file(tmp_path, monkeypatch):
    package(tmp_path / "service", "models")
    monkeypatch.chdir(tmp_path)
    path = Path("service/mark.yaml")
    path.write_text('service: {serve: [{model: hand, backend: {kind: python, target: "models.hand:Hand"}}]}\n')

    (model,) = make_live_models(load_settings(path, {}))

    assert model.folder == tmp_path / "service"
    assert [tensor.name for tensor in model.served.inputs] == ["x"]
    assert {offering.instance_type.name for offering in model.served.offerings} == {"c5.large"}
