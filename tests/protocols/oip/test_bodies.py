from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from mark.domain.tensor import TensorSpec
from mark.protocols.oip import bodies as oip
from mark.protocols.oip.replies import compose_infer_reply

ELEMENTS = sorted(set(oip.DTYPES) - {"BYTES"})
SPECS = (
    TensorSpec(name="image", datatype="FP32", shape=(-1, 3)),
    TensorSpec(name="label", datatype="BYTES", shape=(-1,)),
)

arrays = st.sampled_from(ELEMENTS).flatmap(
    lambda name: npst.arrays(oip.DTYPES[name], npst.array_shapes(min_dims=1, max_dims=3, max_side=4))
)


@given(st.dictionaries(st.text(min_size=1, max_size=5), arrays, min_size=1, max_size=3), st.booleans())
def test_inputs_come_back_as_they_were(inputs: dict[str, NDArray[Any]], binary: bool) -> None:
    request = oip.compose_infer(inputs, path="/v2/models/m/infer", binary=binary, name="r1")
    call = oip.parse_infer(request.body, request.header_length)

    assert call.id == "r1"
    assert list(call.inputs) == list(inputs)
    for name, array in inputs.items():
        assert call.inputs[name].dtype == array.dtype
        np.testing.assert_array_equal(call.inputs[name], array)


def test_numbers_that_strict_json_does_not_know_are_written_and_read_as_others_do() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 0.1], dtype="<f4")
    body = oip.compose_infer({"x": values}, path="/", binary=False).body

    assert b'"data": [NaN, Infinity, -Infinity, 0.1' in body
    np.testing.assert_array_equal(oip.parse_infer(body).inputs["x"], values)


def test_numbers_are_written_in_the_fewest_digits() -> None:
    body = oip.compose_infer({"x": np.array([0.1, 3], dtype="<f4")}, path="/", binary=False).body

    assert b'"data":[0.1,3.0]' in body


def test_a_text_that_says_null_stays_one() -> None:
    texts = np.array([b"null"], dtype=object)
    body = oip.compose_infer({"t": texts}, path="/", binary=False).body

    assert oip.parse_infer(body).inputs["t"].tolist() == [b"null"]


@pytest.mark.parametrize("binary", [False, True])
def test_texts_come_back_as_bytes(binary: bool) -> None:
    texts = np.array([[b"one", "zwölf".encode()]], dtype=object)
    request = oip.compose_infer({"t": texts}, path="/", binary=binary)
    call = oip.parse_infer(request.body, request.header_length)

    assert call.inputs["t"].tolist() == texts.tolist()


def test_the_answer_holds_what_was_asked_for_as_it_was_asked_for() -> None:
    body = {
        "id": "7",
        "inputs": [{"name": "x", "datatype": "INT32", "shape": [1], "data": [1]}],
        "outputs": [{"name": "a", "parameters": {"binary_data": True}}, {"name": "b"}],
    }
    call = oip.parse_infer(json.dumps(body).encode())
    outputs = {name: np.array([1.5, 2.5], dtype="<f4") for name in "abc"}
    reply = compose_infer_reply("m", outputs, call)
    document = json.loads(reply.body[: reply.header_length])

    assert document["id"] == "7"
    assert [output["name"] for output in document["outputs"]] == ["a", "b"]
    assert "data" not in document["outputs"][0]
    assert document["outputs"][1]["data"] == [1.5, 2.5]
    assert oip.parse_infer_reply(reply.body, reply.header_length)["a"].tolist() == [1.5, 2.5]


def test_an_output_that_is_not_there_is_refused() -> None:
    call = oip.InferCall(inputs={}, outputs={"z": False})
    with pytest.raises(oip.BadRequest, match="unknown output 'z'"):
        compose_infer_reply("m", {"a": np.zeros(1)}, call)


def test_the_example_is_accepted() -> None:
    call = oip.parse_infer(json.dumps(oip.example_body(SPECS)).encode())

    oip.check_inputs(call.inputs, SPECS)
    assert call.inputs["image"].tolist() == [[0.0, 0.0, 0.0]]
    assert call.inputs["label"].tolist() == [b""]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": "other"}, "unknown input 'other'"),
        ({"datatype": "INT32", "data": [0, 0, 0]}, "is INT32, the model takes FP32"),
        ({"shape": [3, 1]}, r"has shape \[3, 1\]"),
    ],
)
def test_inputs_that_the_model_does_not_take(change: dict[str, object], text: str) -> None:
    body = oip.example_body(SPECS)
    body["inputs"][0].update(change)
    call = oip.parse_infer(json.dumps(body).encode())
    with pytest.raises(oip.BadRequest, match=text):
        oip.check_inputs(call.inputs, SPECS)


def test_a_missing_input_is_named() -> None:
    with pytest.raises(oip.BadRequest, match="'image' is missing"):
        oip.check_inputs({}, SPECS)


TENSOR = {"name": "x", "datatype": "INT8", "shape": [2], "data": [1, 2]}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "must be a JSON object"),
        ({}, "at least one tensor"),
        ({"inputs": [TENSOR], "id": 3}, "id must be a string"),
        ({"inputs": [TENSOR, TENSOR]}, "'x' twice"),
        ({"inputs": [{**TENSOR, "datatype": "BF16"}]}, "unknown datatype 'BF16'"),
        ({"inputs": [{**TENSOR, "data": [1, 2, 3]}]}, "has 3 elements"),
        ({"inputs": [{**TENSOR, "data": [1, 300]}]}, "does not fit int8"),
        ({"inputs": [{**TENSOR, "data": [1, 1.5]}]}, "values of its datatype"),
        (
            {"inputs": [{**TENSOR, "datatype": "FP32", "data": [1, "a"]}]},
            "data does not hold values of its datatype, FP32: values other than numbers",
        ),
        ({"inputs": [{**TENSOR, "data": [1, "a"]}]}, "values of its datatype"),
        ({"inputs": [{**TENSOR, "data": [[1], [2, 3]]}]}, "ragged"),
        ({"inputs": [{**TENSOR, "data": {"a": 1}}]}, "data must be a list"),
        ({"inputs": [{**TENSOR, "datatype": "BYTES", "data": ["a", "\ud800"]}]}, "not valid Unicode"),
        ({"inputs": [{**TENSOR, "shape": [-1]}]}, "shape must be"),
        ({"inputs": [{**TENSOR, "shape": [10**18, 10**18]}]}, "shape must be"),
        ({"inputs": [{**TENSOR, "shape": [2**39, 2**39]}]}, "asks for"),
        ({"inputs": [{**TENSOR, "parameters": {"binary_data_size": 2}}]}, "exceeds the 0 bytes left"),
        ({"inputs": [{**TENSOR, "parameters": {"binary_data_size": -2}}]}, "whole number of bytes"),
        ({"inputs": [{**TENSOR, "parameters": {"shared_memory_region": "r"}}]}, "shared memory"),
        ({"inputs": [TENSOR], "outputs": [{}]}, "each of outputs needs a name"),
    ],
)
def test_what_is_wrong_is_said(document: object, text: str) -> None:
    with pytest.raises(oip.BadRequest, match=text):
        oip.parse_infer(json.dumps(document).encode())


def test_an_optional_field_that_is_null_counts_as_absent() -> None:
    """As pydantic clients of KServe and MLServer write the fields that they did not set."""
    unset = {"shared_memory_region": None, "binary_data_size": None}
    output = {"name": "y", "parameters": {"classification": None, "binary_data": None}}
    around = {"id": None, "parameters": {"binary_data_output": None}}
    for document in (
        {"inputs": [{**TENSOR, "parameters": None}], "outputs": None, **around, "parameters": None},
        {
            "inputs": [{**TENSOR, "parameters": unset}],
            "outputs": [output, {"name": "z", "parameters": None}],
            **around,
        },
    ):
        call = oip.parse_infer(json.dumps(document).encode())

        assert (call.inputs["x"].tolist(), call.id) == ([1, 2], "")
        assert not call.wants_binary("y")
        assert list(call.outputs) == [one["name"] for one in document["outputs"] or []]
    sized = {**TENSOR, "data": None, "parameters": {"binary_data_size": 2}}
    text = json.dumps({"inputs": [sized], "outputs": None}).encode()
    assert oip.parse_infer(text + b"\1\2", len(text)).inputs["x"].tolist() == [1, 2]


def test_a_header_length_beyond_the_body_is_refused() -> None:
    with pytest.raises(oip.BadRequest, match="does not fit a body of 2 bytes"):
        oip.parse_infer(b"{}", 3)


def test_bytes_that_no_input_claims_are_refused() -> None:
    text = json.dumps({"inputs": [TENSOR]}).encode()
    with pytest.raises(oip.BadRequest, match="belong to no input"):
        oip.parse_infer(text + b"zz", len(text))


def test_a_body_nested_beyond_reason_is_refused() -> None:
    with pytest.raises(oip.BadRequest):
        oip.parse_infer(b'{"inputs":' + b"[" * 100_000)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(("name", "datatype", "shape", "data", "parameters"), json_values),
    ),
    st.fixed_dictionaries({}, optional={"datatype": st.sampled_from(sorted(oip.DTYPES)), "name": st.just("x")}),
    st.fixed_dictionaries({}, optional={"outputs": json_values, "parameters": json_values, "id": json_values}),
)
def test_whatever_comes_is_understood_or_a_bad_request(
    tensor: dict[str, object], sane: dict[str, object], around: dict[str, object]
) -> None:
    body = json.dumps({"inputs": [{**tensor, **sane}], **around}).encode()
    with contextlib.suppress(oip.BadRequest):
        assert oip.parse_infer(body).inputs["x"].dtype == oip.DTYPES[str({**tensor, **sane}["datatype"])]


@given(st.binary(max_size=200), st.integers(-5, 210))
def test_garbage_is_a_bad_request(body: bytes, header_length: int) -> None:
    with pytest.raises(oip.BadRequest):
        oip.parse_infer(body, header_length)


def test_documents() -> None:
    metadata = oip.model_metadata("m", SPECS, ())

    assert metadata["inputs"][0] == {"name": "image", "datatype": "FP32", "shape": [-1, 3]}
    assert oip.server_metadata("mark", "1")["extensions"] == ["binary_tensor_data"]
    assert json.loads(oip.error_reply(400, "so").body) == {"error": "so"}


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        (b'{"inputs": [{"name": "x", "shape": [8, 2], "datatype": "FP32", "data": []}]}', 8),
        (b'{"id":"inputs","inputs":[{"name":"shape","shape" : [ 3 ],"data":[]},{"shape":[9]}]}', 3),
        (b'{"parameters": {"shape": [7]}, "inputs": [{"data": [1, 2], "shape": [2]}]}', 2),
        (b'{"inputs": [{"data": ["\\"shape\\": [5]"], "shape": [1]}]}', 1),
        (b'{"inputs": [{"name": "x", "shape": [0, 2]}]}', 1),
        (b'{"inputs": [{"name": "x", "shape": []}]}', 1),
        (b'{"inputs": [{"name": "x", "shape": []}, {"name": "y", "shape": [64, 2]}]}', 1),
        (b'{"inputs": [{"name": "x", "shape": [-1, 2]}, {"name": "y", "shape": [64]}]}', 1),
        (b'{"inputs": [{"name": "x", "shape": [4, 2]}, {"name": "y", "shape": [64]}]}', 4),
        (b'{"inputs": [{"name": "x", "shape": [00000000004, 2]}]}', 4),
        (b'{"inputs": [{"name": "x", "shape": [' + b"9" * 100_000 + b", 2]}]}", oip.MOST_ROWS),
        (b"no JSON", 1),
        (b"", 1),
    ],
    ids=[
        "plain",
        "names like keys",
        "parameters",
        "text",
        "no row",
        "no dimension",
        "no dimension before a larger input",
        "negative",
        "inputs that differ",
        "zeros",
        "a number without end",
        "no JSON",
        "empty",
    ],
)
def test_the_rows_of_a_request_are_those_of_its_first_input(body: bytes, rows: int) -> None:
    assert oip.count_rows(body, 0) == rows


def test_rows_are_not_looked_for_in_binary_tensors() -> None:
    head = b'{"inputs": []}'
    assert oip.count_rows(head + b'"shape": [8]', len(head)) == 1
