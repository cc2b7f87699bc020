"""What a model of one's own lacks is said in one line that names the file and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.config.settings import load_settings
from mark.domain.errors import Misconfigured
from mark.live.models import make_live_models
from tests.offline.own_model.test_profile_here import MODEL, SPEC
from tests.offline.own_model.test_user_code import PROFILE


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    own = Path("own")
    own.mkdir()
    (own / "doubler.py").write_text(MODEL)
    return own


def config(target="doubler.py:Doubler", model="doubler"):
    path = Path("own/mark.yaml")
    path.write_text(f'service: {{serve: [{{model: {model}, backend: {{kind: python, target: "{target}"}}}}]}}\n')
    return path


def refusal(**changes) -> str:
    with pytest.raises(Misconfigured) as caught:
        make_live_models(load_settings(config(**changes), {}))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def describe(folder: Path, **changes) -> None:
    text = json.dumps({"format": "mark-models/1", "models": [SPEC | changes]})
    (folder / "model.json").write_text(text)


def test_a_missing_model_file_is_named_with_what_writes_it(folder):
    assert refusal().startswith(
        "nothing describes the model doubler: there is no own/model.json "
        "(`mark init own/doubler.py:Doubler` writes it"
    )


def test_a_model_file_of_another_model_is_named(folder):
    describe(folder, name="dubler")

    assert refusal() == "own/model.json: unknown model 'doubler'; did you mean 'dubler'?"


def test_a_missing_profile_is_named_with_what_measures_it(folder):
    describe(folder)

    assert "there is no own/profile.json" in refusal()
    assert "`mark profile --target own/doubler.py:Doubler --model doubler --out own/profile.json`" in refusal()


def test_a_wrong_path_is_said_to_be_wrong(folder):
    assert refusal(target="nope/x.py:Y") == "model file own/nope/x.py does not exist"
    assert "'nope.x' is neither in" in refusal(target="nope.x:Y")
    assert "must read module:attribute" in refusal(target="doubler")


def test_all_that_a_class_lacks_is_said_at_once(folder):
    describe(folder)
    (folder / "profile.json").write_text(
        json.dumps({"format": "mark-profiles/1", "profiles": [PROFILE | {"model": "doubler"}]})
    )
    (folder / "doubler.py").write_text("class Doubler:\n    inputs = ('x',)\n")

    assert (
        "it lacks outputs, a method predict(inputs) (docs/own-model.md); inputs[0] is a str, not a TensorSpec"
        in refusal()
    )
