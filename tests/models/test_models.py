"""The shipped models: what they say of themselves, how good they are on what they never saw, their training."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mark.models
from mark.catalog.schema import parse_profiles
from mark.domain.models.profile import Evidence
from mark.models.digits import Digits
from mark.models.digits.data import digits
from mark.models.digits.evaluate import accuracy as digits_accuracy
from mark.models.digits.train import train as train_digits
from mark.models.lstm_lm import CONTINUED, LanguageModel
from mark.models.lstm_lm.alphabet import CONTEXT, decode, encode
from mark.models.lstm_lm.evaluate import bits_per_character, bits_without_a_model
from mark.models.lstm_lm.train import train as train_lstm_lm
from mark.models.transformer import Polarity
from mark.models.transformer.evaluate import accuracy as polarity_accuracy
from mark.models.transformer.sentences import sentences
from mark.models.transformer.train import train as train_transformer
from mark.models.transformer.words import LABELS
from mark.ports import PythonModel

FOLDER = Path(mark.models.__file__).parent
TYPES = {"FP32": np.float32, "INT64": np.int64, "BYTES": np.object_}


@pytest.fixture(scope="module")
def known() -> dict[str, PythonModel]:
    return {"digits": Digits(), "lstm_lm": LanguageModel(), "transformer": Polarity()}


def batch(name: str, size: int) -> dict[str, np.ndarray]:
    if name == "digits":
        return {"image": digits(held_out=True)[0][:size]}
    return {"text": np.array([f"the gateway is not slow {i}".encode() for i in range(size)], dtype=object)}


@pytest.mark.parametrize("name", ["digits", "lstm_lm", "transformer"])
@pytest.mark.parametrize("size", [1, 5])
def test_outputs_are_what_the_model_says(known, name, size):
    model = known[name]

    given = batch(name, size)
    answer = model.predict(given)

    assert [spec.name for spec in model.inputs] == list(given)
    assert set(answer) == {spec.name for spec in model.outputs}
    for spec in model.outputs:
        assert answer[spec.name].dtype == TYPES[spec.datatype]
        assert answer[spec.name].shape == (size, *spec.shape[1:])


@pytest.mark.parametrize("name", ["digits", "lstm_lm", "transformer"])
def test_an_answer_does_not_depend_on_the_rest_of_its_batch(known, name):
    given = batch(name, 6)
    together = known[name].predict(given)
    (key,) = given

    for row in range(6):
        alone = known[name].predict({key: given[key][row : row + 1]})
        for output, value in alone.items():
            if value.dtype == object:
                assert value[0] == together[output][row]
            else:
                np.testing.assert_allclose(value[0], together[output][row], rtol=1e-4, atol=1e-6)


def test_digits_are_read_right(known):
    assert digits_accuracy(known["digits"]) > 0.95


def test_held_out_digits_are_not_learned():
    held_out, learned = digits(held_out=True)[0], digits(held_out=False)[0]
    assert len(held_out) == 360
    assert len(held_out) + len(learned) == 1797
    assert not {image.tobytes() for image in held_out} & {image.tobytes() for image in learned}


def test_the_language_model_foretells_sentences_of_another_seed(known):
    assert bits_per_character(known["lstm_lm"]) < 0.2 * bits_without_a_model()


def test_the_language_model_finishes_words(known):
    answer = known["lstm_lm"].predict({"text": ["the gateway bounc", "A standby waits f"]})["continuation"]
    assert [text[:3] for text in answer] == [b"es ", b"or "]
    assert all(len(text) == CONTINUED for text in answer)


@pytest.mark.parametrize(
    "text", ["", "\x00", "é" * 100, b"\xff\xfe", "x" * 10_000], ids=["none", "NUL", "accents", "no UTF-8", "long"]
)
def test_odd_texts_get_finite_answers(known, text):
    texts = np.array([text], dtype=object)
    assert np.isfinite(known["lstm_lm"].predict({"text": texts})["bits_per_character"]).all()
    assert known["transformer"].predict({"text": texts})["probabilities"].sum() == pytest.approx(1.0)


def test_polarity_of_sentences_that_were_not_learned(known):
    assert polarity_accuracy(known["transformer"]) > 0.95


def test_not_turns_a_word_round(known):
    texts = [
        "the search was slow.",
        "the search was not slow.",
        "our invoice is wrong , but the support is friendly.",
    ]
    assert list(known["transformer"].predict({"text": texts})["label"]) == [b"negative", b"positive", b"mixed"]


def test_generated_sentences_have_all_labels():
    texts, labels = sentences(seed=5, count=200)
    assert len(set(texts)) == 200
    assert {LABELS[label] for label in labels} == set(LABELS)


def test_the_alphabet_keeps_the_end_of_a_text():
    assert decode(encode("ab", 4)) == "ab"
    assert list(encode("ab", 4)[:2]) == [0, 0]
    assert decode(encode("x" * CONTEXT + "end", CONTEXT)).endswith("xend")
    assert decode(encode("A%", 2)) == "a?"


@pytest.mark.parametrize(
    "train",
    [
        train_digits,
        lambda path: train_lstm_lm(path, sentences=60),
        lambda path: train_transformer(path, count=150),
    ],
)
def test_training_twice_gives_the_same_weights(tmp_path, train, capsys):
    def digest(name: str) -> str:
        return hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()

    def short(path: Path) -> None:
        train(path) if train is not train_digits else train_digits(path, epochs=1)

    short(tmp_path / "one.npz")
    short(tmp_path / "two.npz")

    assert digest("one.npz") == digest("two.npz")
    assert "epoch 1/" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["digits", "lstm_lm", "transformer"])
def test_weights_are_small_plain_arrays(name):
    path = FOLDER / name / "weights.npz"
    assert path.stat().st_size <= 300_000
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        assert all(np.isfinite(stored[key]).all() for key in stored.files)


def test_importing_a_model_does_not_import_torch():
    code = "import sys; from mark.models import digits, lstm_lm, transformer; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603


@pytest.mark.parametrize("name", ["digits", "lstm_lm", "transformer"])
def test_the_shipped_profile_says_that_it_was_measured_elsewhere(name):
    profile, *others = parse_profiles((FOLDER / name / "profile.json").read_text(), name)

    assert others[-1].instance_type == "lambda"
    assert all(one.provenance.evidence is Evidence.ASSUMED and one.provenance.formula for one in others)
    assert profile.model == name
    assert profile.provenance.evidence is Evidence.STAND_IN
    assert profile.provenance.machine
    assert profile.max_batch == 32
    assert not profile.dips()
