"""The demo's models: numpy alone, found as `mark init FOLDER` finds a user's, and right about what they tell."""

from pathlib import Path

import numpy as np
import pytest

import mark.models.demo
from mark.live.commands.demo import MEAN_RPS
from mark.models.demo.forecast import SENSORS, STEPS, Forecast
from mark.models.demo.language import Language
from mark.models.demo.tagger import Tagger
from mark.offline.own_model.init_from_folder import targets_in
from mark.plugins.load import make_model
from mark.protocols.exchange import zeros

FOLDER = Path(mark.models.demo.__file__).parent


def test_each_has_a_load_in_the_demo() -> None:
    assert {Path(target.rpartition(":")[0]).stem for target in targets_in(FOLDER).targets} == set(MEAN_RPS)


@pytest.mark.parametrize("target", targets_in(FOLDER).targets)
def test_a_batch_is_answered_as_declared(target: str) -> None:
    model = make_model(target, FOLDER)
    answer = model.predict(zeros(tuple(model.inputs), 3))
    assert {spec.name for spec in model.outputs} == set(answer)
    for spec in model.outputs:
        assert answer[spec.name].shape == (3, *spec.shape[1:])


def test_they_answer_what_a_user_expects() -> None:
    texts = np.array([b"Where is my parcel", b"a REFUND of the invoice", b""], dtype=object)
    assert Tagger().predict({"text": texts})["tags"].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    texts = np.array([b"they think that this is it", b"und dann ist das", b"ils sont dans la rue"], dtype=object)
    assert Language().predict({"text": texts})["language"].tolist() == [b"en", b"de", b"fr"]


def test_a_batch_of_readings_is_read_as_each_alone() -> None:
    readings = np.random.default_rng(0).normal(size=(2, STEPS, SENSORS)).astype(np.float32)
    model = Forecast()
    both = model.predict({"readings": readings})["next"]
    alone = np.concatenate([model.predict({"readings": one[None]})["next"] for one in readings])
    assert both == pytest.approx(alone, abs=1e-3)
