"""The files of docs/own-model.md; tests/docs runs its commands, tests/end_to_end/test_own_model.py serves it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from mark.config.settings import load_settings
from mark.live.models import make_live_models
from mark.plugins.load import make_model

PAGE = (Path(__file__).parents[3] / "docs" / "own-model.md").read_text()
MODEL, PROFILES = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
CONFIG = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[-1]
LIVE_CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
LIVE_CONFIG = """
service: {serve: [{model: doubler, backend: {kind: python, target: "doubler/doubler.py:Doubler"}}]}
"""


@pytest.fixture
def files(mark):
    Path("mine.json").write_text(MODEL)
    Path("mine-profiles.json").write_text(PROFILES)
    Path("mark.yaml").write_text(CONFIG)


def test_models_of_ones_own_are_listed(mark, files):
    found = json.loads(mark("models", "--config", "mark.yaml", "--json").out)["models"]

    mine = next(item for item in found if item["name"] == "my-classifier")
    assert mine["profiled_on"] == ["c5.large", "c5.xlarge", "lambda"]
    assert any(item["name"] == "inception-v3" for item in found)


def test_a_model_without_a_profile_says_where_profiles_come_from(mark, files):
    given = ["plan", "--models", "mine.json", "--model", "my-classifier", "--rate", "10"]

    assert "named with --profiles (docs/own-model.md)" in mark(*given).err
    assert "assumed-t3 has no profile of my-classifier" in mark(*given, "--profiles", "assumed-t3").err
    assert "did you mean 'my-classifier'?" in mark(*given, "--model", "my-clasifier").err
    assert "none.json: cannot be read" in mark(*given, "--models", "none.json").err


def test_a_class_with_its_files_beside_it_is_served(files):
    folder = Path("doubler")
    folder.mkdir()
    (folder / "doubler.py").write_text(LIVE_CODE)
    for text, name in ((MODEL, "model.json"), (PROFILES, "profile.json")):
        (folder / name).write_text(text.replace("my-classifier", "doubler"))
    Path("live.yaml").write_text(LIVE_CONFIG)

    (model,) = make_live_models(load_settings(Path("live.yaml"), {}))
    answer = make_model(model.served.backend.target, model.folder).predict({"x": np.ones((2, 4), np.float32)})

    assert [tensor.name for tensor in model.served.inputs] == ["x"]
    assert answer["y"].tolist() == [[2.0] * 4] * 2
    assert model.served.overflow is not None
