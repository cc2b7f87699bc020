"""`mark predict`: a model is tried without a service."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mark.plugins import files
from tests.offline.own_model.test_profile_here import MODEL

TARGET = ("--target", "doubler.py:Doubler")


@pytest.fixture(autouse=True)
def model(mark):
    Path("doubler.py").write_text(MODEL)
    yield
    files.leave()


def document(answer):
    assert answer.status == 0, answer.err
    return json.loads(answer.out)


def test_zeros_are_tried_where_no_input_is_given(mark):
    found = document(mark("predict", *TARGET, "--json"))

    assert (found["model"], found["target"], found["mistakes"]) == ("doubler", "doubler.py:Doubler", [])
    assert found["outputs"] == {"y": {"dtype": "float32", "shape": [1, 4], "data": [[0.0] * 4]}}
    assert found["first_ms"] > 0
    assert found["median_ms"] > 0
    said = mark("predict", *TARGET)
    assert "outputs are as declared" in said.out
    assert "doubler (doubler.py:Doubler), a batch of 1" in said.out


def test_a_drawn_example_is_the_same_for_the_same_seed(mark):
    given = ("predict", *TARGET, "--random", "--rows", "3", "--json")
    first, again, other = (
        document(mark(*given, "--seed", seed))["inputs"]["x"]["data"] for seed in ("1", "1", "2")
    )

    assert first == again != other
    assert len(first) == 3


ROW = [1.0, 2.0, 3.0, 4.0]
DOUBLED = [[2.0, 4.0, 6.0, 8.0]]


@pytest.mark.parametrize(
    "data",
    [
        [ROW],
        {"x": [ROW]},
        {"instances": [ROW]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": ROW}]},
    ],
)
def test_input_is_taken_in_every_shape_of_json(mark, data):
    text = json.dumps(data)
    assert document(mark("predict", *TARGET, "--data", text, "--json"))["outputs"]["y"]["data"] == DOUBLED
    Path("in.json").write_text(text)
    assert document(mark("predict", *TARGET, "--input", "in.json", "--json"))["outputs"]["y"]["data"] == DOUBLED


def test_input_is_taken_from_tables_and_from_numpy(mark):
    Path("in.csv").write_text("1,2,3,4\n")
    np.save("in.npy", np.array([ROW]))
    np.savez("in.npz", x=np.array([ROW]))

    for name in ("in.csv", "in.npy", "in.npz"):
        found = document(mark("predict", *TARGET, "--input", name, "--json"))
        assert found["outputs"]["y"]["data"] == DOUBLED


def test_outputs_other_than_declared_are_a_finding(mark):
    Path("doubler.py").write_text(MODEL.replace('{"y": np', '{"labl": np'))
    answer = mark("predict", *TARGET)

    assert answer.status == 1
    assert "output 'y' is declared and not returned" in answer.err
    assert "output 'labl' is returned and not declared" in answer.err
    assert "labl" in answer.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--data", "[[1, 2]]"), "--data: input 'x' has shape [1, 2], the model takes [-1, 4]"),
        (("--data", "{"), "--data: it is not JSON"),
        (("--data", '{"z": [[1]]}'), "--data: unknown input 'z'; the model takes x"),
        (("--data", '[["a"]]'), "--data: values of x make no array"),
        (("--input", "none.npy"), "cannot read none.npy"),
        (("--input", "load.csv.gz"), "an input is a .json, .csv, .npy or .npz file"),
        (("--input", "in.npy", "--data", "1"), "give --input or --data, not both"),
        (("--rows", "0"), "--rows must be 1 or more"),
    ],
)
def test_a_wrong_input_is_one_line(mark, arguments, said):
    answer = mark("predict", *TARGET, *arguments)

    assert answer.status == 2
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_a_model_that_raises_is_named_with_its_line(mark):
    Path("doubler.py").write_text(MODEL.replace('return {"y"', 'raise KeyError("oh")\n        return {"y"'))
    answer = mark("predict", *TARGET)

    assert answer.status == 2
    assert "the model failed: KeyError: 'oh' (doubler.py, line 10)" in answer.err


def test_no_model_is_refused_with_the_ways_to_name_one(mark):
    assert "--target path/file.py:Name" in mark("predict").err
    assert "unknown shipped model 'digts'; did you mean 'digits'?" in mark("predict", "--model", "digts").err
    assert mark("predict", "--target", "nope/x.py:Y").err == "mark: model file nope/x.py does not exist\n"


def test_what_a_model_prints_is_no_part_of_the_document(mark, tmp_path):
    folder = Path("loud")
    folder.mkdir()
    (folder / "loud.py").write_text(
        "import numpy as np\n"
        "from mark.domain.tensor import TensorSpec\n"
        "class Loud:\n"
        "    inputs = outputs = (TensorSpec(name='x', datatype='FP32', shape=(-1, 2)),)\n"
        "    def predict(self, tensors):\n"
        "        print('seen')\n"
        "        return {'x': tensors['x']}\n"
    )
    said = mark("predict", "--target", "loud/loud.py:Loud", "--json")
    assert said.status == 0, said.err
    assert json.loads(said.out)
    assert said.err.count("seen") == 1


@pytest.mark.parametrize(
    ("answered", "listed", "shown"),
    [
        ("b'text', b''", ["text", ""], ['"text"', '""']),
        ("'caf\u00e9'.encode(), b'[bold]'", ["caf\u00e9", "[bold]"], ['"caf\u00e9"', '"[bold]"']),
        ("b'\\xff\\x00', b'a'", [{"base64": "/wA="}, "a"], ['{"base64": "/wA="}', '"a"']),
        ("b'\\x1b[31m', b'a'", ["\x1b[31m", "a"], ['"\\u001b[31m"', '"a"']),
    ],
    ids=["text", "markup", "no text", "control characters"],
)
def test_an_output_of_texts_is_shown(mark, answered, listed, shown):
    Path("texts.py").write_text(
        "import numpy as np\n"
        "from mark.domain.tensor import TensorSpec\n"
        "class Texts:\n"
        "    inputs = (TensorSpec(name='x', datatype='FP32', shape=(-1,)),)\n"
        "    outputs = (TensorSpec(name='said', datatype='BYTES', shape=(-1, 2)),)\n"
        "    def predict(self, tensors):\n"
        f"        return {{'said': np.array([[{answered}]], dtype=object)}}\n"
    )
    asked = ("predict", "--target", "texts.py:Texts")

    assert document(mark(*asked, "--json"))["outputs"]["said"]["data"] == [listed]
    table = mark(*asked)
    assert "outputs are as declared" in table.out
    for text in shown:
        assert text in table.out
