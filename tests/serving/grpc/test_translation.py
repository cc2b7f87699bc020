from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mark.protocols.oip import bodies as oip
from mark.protocols.oip.byte_tensors import pack_bytes
from mark.protocols.oip.replies import compose_infer_reply
from mark.serving.grpc.messages import CLASSES
from mark.serving.grpc.translation import (
    CONTENTS,
    MAX_PARTS,
    SMALL_BYTES,
    TYPED_BYTES,
    compose_response,
    model_target,
    parse,
    translate,
)

NAMES = st.text(min_size=1, max_size=8)
SHAPES = arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3)
PARAMETERS = st.dictionaries(
    NAMES, st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text())
)


@st.composite
def tensors(draw: Any) -> np.ndarray[Any, Any]:
    datatype = draw(st.sampled_from(sorted(oip.DTYPES)))
    shape = draw(SHAPES)
    if datatype != "BYTES":
        return np.asarray(draw(arrays.arrays(oip.DTYPES[datatype], shape)))
    size = int(np.prod(shape))
    found = np.empty(size, dtype=object)
    found[:] = draw(st.lists(st.binary(max_size=5), min_size=size, max_size=size))
    return found.reshape(shape)


def raw(array: np.ndarray[Any, Any]) -> bytes:
    return pack_bytes(array) if array.dtype.kind == "O" else array.tobytes()


def put(of: Any, parameters: Mapping[str, object]) -> None:
    for name, value in parameters.items():
        kind = {bool: "bool", int: "int64", float: "double", str: "string"}[type(value)]
        setattr(of.parameters[name], f"{kind}_param", value)


def message_of(inputs: Mapping[str, np.ndarray[Any, Any]], *, typed: bool) -> Any:
    message = CLASSES["ModelInferRequest"](model_name="m", id="r-1")
    for name, array in inputs.items():
        datatype = oip.datatype_of(array)
        tensor = message.inputs.add(name=name, datatype=datatype, shape=array.shape)
        if typed:
            getattr(tensor.contents, CONTENTS[datatype][0]).extend(array.reshape(-1).tolist())
        else:
            message.raw_input_contents.append(raw(array))
    return parse("ModelInferRequest", message.SerializeToString())


def same(found: Mapping[str, np.ndarray[Any, Any]], wanted: Mapping[str, np.ndarray[Any, Any]]) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name].dtype == one.dtype and found[name].shape == one.shape and raw(found[name]) == raw(one)
        for name, one in wanted.items()
    )


@given(st.dictionaries(NAMES, tensors(), min_size=1, max_size=3), st.booleans(), PARAMETERS)
def test_a_message_asks_what_the_http_request_asks(
    inputs: dict[str, np.ndarray[Any, Any]], typed: bool, parameters: dict[str, object]
) -> None:
    typed = typed and all(oip.datatype_of(array) in CONTENTS for array in inputs.values())
    message = message_of(inputs, typed=typed)
    put(message, parameters)
    found = translate(message)
    call = oip.parse_infer(found.body, found.header_length)
    assert same(call.inputs, inputs)
    assert (call.id, call.binary_outputs, found.typed) == ("r-1", True, typed)
    assert oip.count_rows(found.body, found.header_length) == max(1, next(iter(inputs.values())).shape[0])
    told = oip.load_json(found.body[: found.header_length])
    assert isinstance(told, dict)
    assert told["parameters"] == {**parameters, "binary_data_output": True}


@given(st.dictionaries(NAMES, tensors(), min_size=1, max_size=3), st.booleans(), st.booleans())
def test_a_response_has_what_the_model_answered(
    outputs: dict[str, np.ndarray[Any, Any]], binary: bool, typed: bool
) -> None:
    if not binary:  # JSON has neither bytes that are no text, nor all floats
        outputs = {name: one for name, one in outputs.items() if one.dtype.kind in "biu"}
    if not outputs:
        return
    reply = compose_infer_reply("m", outputs, oip.InferCall({}, "r-1", binary_outputs=binary))
    data = compose_response(reply.body, reply.header_length, typed=typed)
    made = CLASSES["ModelInferResponse"].FromString(data)
    assert (made.model_name, made.model_version, made.id) == ("m", "1", "r-1")
    assert [list(one.shape) for one in made.outputs] == [list(one.shape) for one in outputs.values()]
    if made.raw_output_contents:
        assert list(made.raw_output_contents) == [raw(one) for one in outputs.values()]
        assert not typed or any(one.datatype not in CONTENTS for one in made.outputs)
        return
    for one, array in zip(made.outputs, outputs.values(), strict=True):
        values = getattr(one.contents, CONTENTS[one.datatype][0])
        assert raw(np.array([*values, None], dtype=object)[:-1].astype(array.dtype)) == raw(array)


@given(st.dictionaries(NAMES, st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text()), max_size=3))
def test_a_response_keeps_parameters(parameters: dict[str, object]) -> None:
    body = oip.dump_json({"model_name": "m", "parameters": parameters, "outputs": []})
    made = CLASSES["ModelInferResponse"].FromString(compose_response(body, 0, typed=False))
    told = {name: getattr(one, one.WhichOneof("choice")) for name, one in made.parameters.items()}
    assert told == parameters


def test_a_response_s_fields_that_are_null_count_as_absent() -> None:
    output = {"name": "y", "datatype": "INT32", "shape": [1], "data": [5], "parameters": None}
    body = oip.dump_json({"model_name": "m", "id": None, "parameters": None, "outputs": [output]})
    made = CLASSES["ModelInferResponse"].FromString(compose_response(body, 0, typed=True))
    assert (made.id, list(made.outputs[0].contents.int_contents)) == ("", [5])


@pytest.mark.parametrize("body", [b"", b"[]", b'{"outputs": 3}', b'{"outputs": [{}]}', b'{"model_name": 3}'])
def test_what_is_no_response_is_refused(body: bytes) -> None:
    with pytest.raises(oip.BadRequest):
        compose_response(body, 0, typed=False)


@given(st.binary(max_size=200))
def test_no_message_is_more_than_refused(data: bytes) -> None:
    for padded in (data, data + b"\x3a\x00" * SMALL_BYTES):
        with suppress(oip.BadRequest):
            translate(parse("ModelInferRequest", padded))


@pytest.mark.parametrize(
    ("datatype", "contents", "text"),
    [
        ("INT8", {"int_contents": [128]}, "a value does not fit INT8"),
        ("UINT16", {"uint_contents": [65536]}, "a value does not fit UINT16"),
        ("FP16", {"fp32_contents": [1.0]}, "send raw_input_contents"),
        ("BF16", {}, "send raw_input_contents"),
    ],
)
def test_typed_contents_are_checked(datatype: str, contents: dict[str, Any], text: str) -> None:
    message = CLASSES["ModelInferRequest"](model_name="m")
    message.inputs.add(name="x", datatype=datatype, shape=[1], contents=contents)
    with pytest.raises(oip.BadRequest, match=text):
        translate(message)


def test_messages_that_would_take_many_times_their_size_are_not_parsed() -> None:
    message = CLASSES["ModelInferRequest"](model_name="m")
    message.inputs.add(contents={"fp32_contents": np.zeros(TYPED_BYTES // 4 + 1)})
    many = CLASSES["ModelInferRequest"](inputs=[{} for _ in range(MAX_PARTS + 1)]).SerializeToString()
    spread = CLASSES["ModelInferRequest"](inputs=[{"parameters": {str(n): {} for n in range(9_000)}}])
    named = CLASSES["ModelInferRequest"](model_name="m" * 2**21)
    for data, text in (
        (message.SerializeToString(), "typed contents take at most"),
        (many + b"\x3a\x00" * SMALL_BYTES, "more than"),
        (spread.SerializeToString(), "more than"),
        (named.SerializeToString(), "names, shapes and parameters"),
    ):
        with pytest.raises(oip.BadRequest, match=text):
            parse("ModelInferRequest", data)


def test_names_are_quoted_in_paths() -> None:
    assert model_target("a/b?c d", "1.0", "/infer") == b"/v2/models/a%2Fb%3Fc%20d/versions/1.0/infer"
