"""Bodies that are alike are read as each would be alone, whatever stands in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.ports import InferRequest
from mark.protocols.exchange import Exchange, read_exchange, read_exchanges
from mark.protocols.oip import DTYPES, BadRequest, parse_infer
from mark.protocols.oip_alike import form_of

WITHOUT_DATA = (
    '{"x":{"data":[1]},'
    '"inputs":[{"name":"t","datatype":"FP32","shape":[2,0],"parameters":{"binary_data_size":0}}]}'
)
PATH = "/v2/models/m/infer"
VALUES = st.integers(-3, 300) | st.floats(width=32) | st.booleans() | st.text('a]}\\"ö', max_size=3) | st.none()
DATA = st.lists(VALUES, max_size=3) | st.lists(st.lists(VALUES, min_size=1, max_size=2), max_size=2)


def document(
    data: object, datatype: str = "FP32", shape: tuple[int, ...] = (1, 2), more: Mapping[str, object] | None = None
) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": datatype, "shape": list(shape), "data": data}], **(more or {})}


def request(text: str | bytes, path: str = PATH) -> InferRequest:
    return InferRequest(path=path, content_type="", body=text if isinstance(text, bytes) else text.encode())


def alone(one: InferRequest) -> Exchange | str:
    try:
        return read_exchange(one, "m", ())
    except BadRequest as error:
        return str(error)


def same_as_alone(requests: list[InferRequest]) -> None:
    """Each is understood, or refused in the same words, as if it had come alone."""
    for one, found in zip(requests, read_exchanges(requests, "m", ()), strict=True):
        wanted = alone(one)
        if isinstance(wanted, str):
            assert str(found) == wanted
            continue
        assert isinstance(found, Exchange)
        assert found._replace(call=wanted.call) == wanted
        assert found.call._replace(inputs={}) == wanted.call._replace(inputs={})
        assert list(found.inputs) == list(wanted.inputs)
        for name, array in wanted.inputs.items():
            assert found.inputs[name].dtype == array.dtype
            np.testing.assert_array_equal(found.inputs[name], array, strict=True)


@given(
    st.lists(st.tuples(DATA, st.sampled_from(["FP32", "INT8", "UINT64", "BOOL"]), st.booleans()), max_size=6),
    st.sampled_from([(1, 2), (2,), (1, 1)]),
    st.sampled_from([{}, {"id": "7"}, {"outputs": [{"name": "y", "parameters": {"binary_data": True}}]}]),
)
def test_a_batch_is_read_as_each_would_be_alone(
    bodies: list[tuple[object, str, bool]], shape: tuple[int, ...], more: dict[str, object]
) -> None:
    first = request(json.dumps(document([[1.5, 2]], more=more)))
    others = [
        request(json.dumps(document(data, datatype, shape, more), separators=(",", ":") if dense else None))
        for data, datatype, dense in bodies
    ]
    same_as_alone([first, *others, first])


@pytest.mark.parametrize(
    ("like", "other"),
    [
        ('{"inputs":[{"name":"x","datatype":"FP32","data":[1],"shape":[1]}]}', None),
        ('{"inputs":[{"name":"x","datatype":"FP32","data":[[1]],"shape":[1]}]}', None),
        (
            '{"inputs":[{"name":"x","datatype":"FP32","data":[[1]],"shape":[1]}]}',
            '{"inputs":[{"name":"x","datatype":"FP32","data":[[1]]}]}',
        ),
        (
            '{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}',
            '{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1],"shape":[2]}]}',
        ),
        (
            '{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}',
            '{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]},{"name":"y","data":[1]}]}',
        ),
        ('{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[2],"data":[1]}]}', None),
        ('{"inputs":[{"name":"\\"data\\":[1]","datatype":"FP32","shape":[1],"data":[1]}]}', None),
        ('{"data":[1],"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}', None),
        (
            '{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"data":[1]},"data":[1]}]}',
            '{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"data":[3]},"data":[1]}]}',
        ),
        (WITHOUT_DATA, None),
        ('{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"data":["a]"]}]}', None),
    ],
)
def test_what_only_looks_alike_is_read_as_it_says(like: str, other: str | None) -> None:
    changed = like.replace("[1]", "[2]")
    same_as_alone([request(like), request(other or changed), request(changed), request(like)])


def test_values_of_another_path_s_protocol_are_not_taken_for_ours() -> None:
    text = json.dumps(document([1, 2]))
    same_as_alone([request(text), request(text, "/invocations"), request(text)])


def test_a_form_reads_other_values_and_nothing_else() -> None:
    text = json.dumps(document([1.0, 2.0], more={"id": "a"})).encode()
    form = form_of(text, parse_infer(text))

    assert form is not None
    found = form.read(text.replace(b"1.0, 2.0", b"3, 4.5"))
    assert found is not None
    np.testing.assert_array_equal(found.inputs["x"], np.array([[3, 4.5]], DTYPES["FP32"]))
    assert found.id == "a"
    for wrong in (b"3", b"3, 4, 5", b"true, false", b'"3", "4"', b"NaN, 1", b"1, 2], [3", b""):
        assert form.read(text.replace(b"1.0, 2.0", wrong)) is None
    assert form.read(text.replace(b'"a"', b'"b"')) is None
