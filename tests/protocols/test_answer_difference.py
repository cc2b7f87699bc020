"""Two answers to one request: integers and bytes agree exactly, floats within a tolerance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.ports import InferReply
from mark.protocols.answer_difference import answer_difference
from mark.protocols.oip.bodies import InferCall, Tensors, error_reply
from mark.protocols.oip.replies import compose_infer_reply

TOLERANCE = 1e-4


def reply(outputs: Tensors, *, model: str = "m", binary: bool = False) -> InferReply:
    return compose_infer_reply(model, outputs, InferCall({}, binary_outputs=binary))


def json_reply(text: str) -> InferReply:
    return InferReply(200, "application/json", text.encode())


def floats(*values: float) -> Tensors:
    return {"y": np.array([values], np.float32)}


@given(
    values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=5),
    off=st.floats(0, 4),
    one=st.booleans(),
    two=st.booleans(),
)
def test_floats_are_the_same_within_the_tolerance_however_they_are_written(
    values: list[float], off: float, one: bool, two: bool
) -> None:
    usual = np.array([values], np.float64)
    other = usual + off * TOLERANCE * (1 + np.abs(usual))
    found = answer_difference(reply({"y": usual}, binary=one), reply({"y": other}, binary=two), TOLERANCE)
    if off < 0.99:
        assert found is None
    if off > 1.01:
        assert found == f"output y: {len(values)} of {len(values)} values differ"


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.integers(1, 3))
def test_integers_are_the_same_exactly(values: list[int], more: int) -> None:
    usual = {"y": np.array(values, np.int64)}
    other = {"y": usual["y"].copy()}
    assert answer_difference(reply(usual, binary=True), reply(other), 10.0) is None
    other["y"][0] ^= more
    assert answer_difference(reply(usual), reply(other), 10.0) == f"output y: 1 of {len(values)} values differ"


@pytest.mark.parametrize(
    ("usual", "other", "says"),
    [
        (floats(1), {"z": np.ones((1, 1), np.float32)}, "outputs z, not y"),
        (floats(1), floats(1, 2), "FP32 [1, 2], not FP32 [1, 1]"),
        (floats(1), {"y": np.ones((1, 1), np.float64)}, "FP64"),
        ({"y": np.array([b"a", b"b"], object)}, {"y": np.array([b"a", b"c"], object)}, "1 of 2"),
        ({"y": np.array([True, False])}, {"y": np.array([True, True])}, "1 of 2"),
        (floats(float("nan"), float("inf")), floats(float("nan"), float("-inf")), "1 of 2"),
    ],
)
def test_other_outputs_are_a_difference(usual: Tensors, other: Tensors, says: str) -> None:
    assert says in (answer_difference(reply(usual), reply(other), TOLERANCE) or "")
    assert answer_difference(reply(usual), reply(usual, model="another", binary=True), TOLERANCE) is None


def test_the_status_counts_and_the_text_of_an_error_does_not() -> None:
    good = reply(floats(1))
    assert answer_difference(good, error_reply(500, "broken"), TOLERANCE) == "status 500, not 200"
    assert answer_difference(error_reply(400, "a"), error_reply(400, "b"), TOLERANCE) is None


@pytest.mark.parametrize(
    ("usual", "other", "differs"),
    [
        ('{"predictions": [0.5, 1]}', '{"predictions": [0.50001, 1.0]}', False),
        ('{"predictions": [0.5]}', '{"predictions": [0.6]}', True),
        ('{"a": 1}', '{"a": 2}', True),
        ('{"a": 1}', '{"a": true}', True),
        ('{"a": 1}', '{"b": 1}', True),
        ('{"a": "x"}', '{"a": "x" }', False),
        ("[1, 2]", "[1]", True),
        ("1e5", "1" + "0" * 400, True),
        ("0.5,1\n", "0.5,1\r\n", True),
        ("[" * 900 + "1.0" + "]" * 900, "[" * 900 + "1.00001" + "]" * 900, False),
    ],
)
def test_other_protocols_are_compared_by_their_values_or_bytes(usual: str, other: str, differs: bool) -> None:
    found = answer_difference(json_reply(usual), json_reply(other), TOLERANCE)
    assert (found is not None) == differs
