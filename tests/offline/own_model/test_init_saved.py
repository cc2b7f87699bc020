"""`mark init` of models that are saved in files, which it writes a class around."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import joblib
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline

from mark.config.settings import load_settings
from mark.live.models import make_live_models
from mark.plugins import files

QUICK = ("--seconds", "0.02")
ROWS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])


@pytest.fixture(autouse=True)
def code():
    yield
    files.leave()


def answered(mark, data: str) -> dict[str, list]:
    """What the model of mark.yaml answers."""
    answer = mark("predict", "--config", "mark.yaml", "--data", data, "--json")
    assert answer.status == 0, answer.err
    return {name: one["data"] for name, one in json.loads(answer.out)["outputs"].items()}


def identity(
    path: str,
    *,
    batch: object = "n",
    element: int = TensorProto.FLOAT,
    opset: int = 17,
    ir: int = 9,
    y: str = "y",
):
    tensors = [helper.make_tensor_value_info(name, element, [batch, 2]) for name in ("x", y)]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], [y])], "g", tensors[:1], tensors[1:])
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=ir), path)


def test_a_classifier_answers_its_labels(mark):
    joblib.dump(LogisticRegression(C=1e6).fit(ROWS, ["no", "no", "yes", "yes"]), "churn-v2.joblib")
    answer = mark("init", "churn-v2.joblib", *QUICK)
    assert answer.status == 0, answer.err
    assert "runs code that is in it" in answer.err

    found = answered(mark, "[[1, 1], [0, 0]]")
    assert found["label"] == ["yes", "no"]
    assert found["probabilities"][0][1] > 0.9
    (model,) = make_live_models(load_settings(Path("mark.yaml"), {}))
    assert model.name == "churn-v2"


def test_a_file_with_an_odd_name_is_served_too(mark):
    name = 'a""" + b\\c\U0001f600.joblib'
    joblib.dump(LinearRegression().fit(ROWS, [0.0, 1.0, 2.0, 3.0]), name)
    assert mark("init", name, "--model", "odd", *QUICK).status == 0
    assert answered(mark, "[[1, 1]]")["prediction"][0] == pytest.approx(3.0)


def test_a_regression_predicts_and_a_text_model_is_told_by_an_example(mark):
    Path("line.pkl").write_bytes(pickle.dumps(LinearRegression().fit(ROWS, ROWS.sum(axis=1))))
    assert mark("init", "line.pkl", *QUICK).status == 0
    assert answered(mark, "[[2, 3]]")["prediction"] == [pytest.approx(5.0)]

    words = make_pipeline(CountVectorizer(), LogisticRegression(C=1e6)).fit(["good day", "bad day"], [1, 0])
    joblib.dump(words, "words.joblib")
    refused = mark("init", "words.joblib", *QUICK, "--force")
    assert refused.status == 2
    assert "--data" in refused.err
    assert mark("init", "words.joblib", *QUICK, "--force", "--data", '["good"]').status == 0
    assert answered(mark, '["bad", "good"]')["label"] == [0, 1]


@pytest.mark.parametrize(
    ("saved", "said"), [({"a": 1}, "holds a dict, which is not a model"), (LinearRegression(), "is not fitted")]
)
def test_what_no_example_can_help_is_not_told_to_give_one(mark, saved, said):
    joblib.dump(saved, "odd.joblib")
    answer = mark("init", "odd.joblib", *QUICK)
    assert answer.status == 2
    assert said in answer.err
    assert "--data" not in answer.err


def test_an_onnx_file_says_what_it_takes(mark):
    identity("same.onnx")
    answer = mark("init", "same.onnx", *QUICK)
    assert answer.status == 0, answer.err
    assert "x FP32 [-1, 2]" in answer.out
    assert answered(mark, "[[1, 2], [3, 4]]") == {"y": [[1.0, 2.0], [3.0, 4.0]]}


def test_names_beyond_the_basic_plane_are_served_too(mark):
    identity("s\U0001f600.onnx", y="\U0001f600")
    answer = mark("init", "s\U0001f600.onnx", "--model", "smile", *QUICK)
    assert answer.status == 0, answer.err
    assert answered(mark, "[[1, 2]]") == {"\U0001f600": [[1.0, 2.0]]}


@pytest.mark.parametrize(
    ("element", "batch", "data"),
    [(TensorProto.DOUBLE, 1, [[1.0, 2.0], [3.0, 4.0]]), (TensorProto.STRING, "n", [["a", "\u00e9"]])],
)
def test_a_batch_of_one_and_texts_are_answered(mark, element, batch, data):
    identity("same.onnx", batch=batch, element=element)
    assert mark("init", "same.onnx", *QUICK).status == 0
    assert answered(mark, json.dumps(data)) == {"y": data}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"batch": 8}, "dynamic first dimension"),
        ({"ir": 99}, "install a newer onnxruntime"),
        ({"opset": 99}, "install a newer onnxruntime"),
        (None, "cannot load"),
    ],
)
def test_a_file_that_cannot_be_served_is_refused_in_a_line(mark, made, said):
    if made is None:
        Path("same.onnx").write_text("no model")
    else:
        identity("same.onnx", **made)
    answer = mark("init", "same.onnx", *QUICK)

    assert answer.status == 2
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert [path.name for path in Path().glob("same*")] == ["same.onnx"]


def test_without_onnxruntime_its_extra_is_named(mark, monkeypatch):
    identity("same.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    answer = mark("init", "same.onnx", *QUICK)

    assert answer.status == 2
    assert "mark-serving[onnx]" in answer.err
