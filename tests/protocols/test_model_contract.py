from __future__ import annotations

import numpy as np
import pytest

from mark.domain.tensor import TensorSpec
from mark.protocols.model_contract import class_mistakes, output_mistakes

X = TensorSpec(name="x", datatype="FP32", shape=(-1, 4))
LABEL = TensorSpec(name="label", datatype="INT64", shape=(-1,))
WORDS = TensorSpec(name="words", datatype="BYTES", shape=(-1, -1))


class Whole:
    inputs, outputs = (X,), (LABEL,)

    def predict(self, tensors): ...


def changed(**fields):
    return type("Changed", (Whole,), fields)


def test_a_whole_class_has_no_mistakes():
    assert class_mistakes(Whole) == ()
    assert class_mistakes(Whole()) == ()
    assert class_mistakes(changed(inputs=[X, WORDS])) == ()


def test_all_that_a_class_lacks_is_said_at_once():
    assert class_mistakes(object()) == ("it lacks inputs, outputs, a method predict(inputs) (docs/own-model.md)",)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"inputs": "x"}, "inputs is a str, not a tuple such as"),
        ({"inputs": X}, "inputs is a TensorSpec, not a tuple such as"),
        ({"outputs": ()}, "outputs is empty"),
        ({"inputs": (X, {"name": "y"})}, "inputs[1] is a dict, not a TensorSpec"),
        ({"inputs": (X, X)}, "inputs: the name 'x' stands twice"),
        ({"inputs": (TensorSpec(name="x", datatype="FP31", shape=(-1,)),)}, "did you mean 'FP32'?"),
        ({"inputs": (TensorSpec(name="x", datatype="FP32", shape=(4,)),)}, "begins with the batch, -1"),
        ({"inputs": (TensorSpec(name="x", datatype="FP32", shape=("n", 4)),)}, "should be whole numbers"),
    ],
)
def test_a_wrong_declaration_is_named(fields, said):
    (mistake,) = class_mistakes(changed(**fields))

    assert said in mistake


def test_outputs_as_declared_have_no_mistakes():
    assert output_mistakes({"label": np.array([1, 2])}, (LABEL,), 2) == ()
    assert output_mistakes({"label": [1, 2]}, (LABEL,), 2) == ()
    assert output_mistakes({"words": np.array([["a", "bc"]])}, (WORDS,), 1) == ()


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ({"labl": np.array([1, 2])}, "output 'label' is declared and not returned"),
        ({"labl": np.array([1, 2])}, "output 'labl' is returned and not declared"),
        ({"label": np.array([1.0, 2.0])}, "output 'label' is FP64, declared as INT64"),
        ({"label": np.array([1j, 2j])}, "output 'label' is complex128, declared as INT64"),
        ({"label": np.array([1])}, "output 'label' has shape [1] for a batch of 2, declared as [-1]"),
        ({"label": np.array([[1], [2]])}, "has shape [2, 1]"),
        ([1, 2], "predict returns a list, not a mapping"),
    ],
)
def test_outputs_that_differ_are_named(outputs, said):
    assert any(said in mistake for mistake in output_mistakes(outputs, (LABEL,), 2))
