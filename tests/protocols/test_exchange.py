"""A batch's answers: written together, each is what it would be alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from mark.domain.tensor import TensorSpec
from mark.ports import InferRequest
from mark.protocols.exchange import Exchange, read_exchange, read_exchanges, write_replies
from mark.protocols.oip.bodies import DTYPES, BadRequest, InferCall, parse_infer_reply
from mark.protocols.oip.generate import write_event

ELEMENTS = sorted(set(DTYPES) - {"BYTES"})
TEXTS = st.lists(st.binary(max_size=6) | st.text('],["\\ nö', max_size=6), min_size=12, max_size=12)


def exchange(rows: int, call: InferCall, path: str = "/v2/models/m/infer") -> Exchange:
    request = InferRequest(path=path, content_type="application/json", body=b'{"instances":[]}')
    return Exchange("m", request, call, rows, frozenset(), path == "/invocations")


def body(data: object, datatype: str = "FP32") -> InferRequest:
    tensor = {"name": "x", "datatype": datatype, "shape": [1, 2], "data": data}
    return InferRequest(path="/v2/models/m/infer", content_type="", body=json.dumps({"inputs": [tensor]}).encode())


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Exchange], dict[str, NDArray[Any]]]:
    """Requests that ask for this or that, and the outputs of all their rows."""
    calls = st.builds(
        InferCall,
        inputs=st.just({}),
        id=st.text(max_size=3),
        outputs=st.dictionaries(st.sampled_from(["a", "b"]), st.booleans()),
        binary_outputs=st.booleans(),
    )
    exchanges = draw(st.lists(st.builds(exchange, st.integers(1, 3), calls), min_size=1, max_size=4))
    rows = sum(one.rows for one in exchanges)
    outputs = {}
    for name in ("a", "b", "c"):
        tail = draw(npst.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3))
        outputs[name] = draw(npst.arrays(DTYPES[draw(st.sampled_from(ELEMENTS))], (rows, *tail)))
    if draw(st.booleans()):
        texts = np.empty(12, dtype=object)
        texts[:] = draw(TEXTS)
        outputs["b"] = texts[:rows]
    return exchanges, outputs


@given(batches())
def test_each_answer_holds_the_rows_that_are_its_own(
    batch: tuple[list[Exchange], dict[str, NDArray[Any]]],
) -> None:
    exchanges, outputs = batch
    end = 0
    for one, reply in zip(exchanges, write_replies(exchanges, outputs), strict=True):
        begin, end = end, end + one.rows
        mine = {name: array[begin:end] for name, array in outputs.items()}
        found = parse_infer_reply(reply.body, reply.header_length)
        document = json.loads(reply.body[: reply.header_length or None])

        assert reply == one.reply(mine)
        assert list(found) == list(one.call.outputs or outputs)
        assert document.get("id", "") == one.call.id
        for name, array in found.items():
            if array.dtype.kind != "O":
                np.testing.assert_array_equal(array, mine[name])
                assert array.dtype == mine[name].dtype
            elif not any(isinstance(value, bytes) for value in mine[name]):
                assert len(array) == one.rows


def no_json(token: str) -> None:
    raise AssertionError(f"{token} is no JSON")


def test_numbers_that_are_not_finite_are_texts_that_each_parser_reads_and_harm_no_neighbour() -> None:
    outputs = {"y": np.array([[0.1, 2], [np.nan, -np.inf]], dtype="<f4")}
    for path in ("/v2/models/m/infer", "/invocations"):
        well, odd = write_replies([exchange(1, InferCall({}), path)] * 2, outputs)
        documents = [json.loads(one.body, parse_constant=no_json) for one in (well, odd)]

        if path == "/invocations":
            assert [one["predictions"][0] for one in documents] == [[np.float32(0.1), 2], ["NaN", "-Infinity"]]
        else:
            assert [one["outputs"][0]["data"] for one in documents] == [[0.1, 2], ["NaN", "-Infinity"]]
            np.testing.assert_array_equal(parse_infer_reply(odd.body)["y"], outputs["y"][1:])
    event = write_event("m", "1", {"y": outputs["y"][1:]})
    assert json.loads(event.removeprefix(b"data: "), parse_constant=no_json)["y"] == ["NaN", "-Infinity"]


@pytest.mark.parametrize("count", [1, 40], ids=["few", "many"])
def test_numbers_that_are_not_finite_are_read_by_their_names(count: int) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [count, 2], "data": ["NaN", "-Infinity"] * count}
    rows = [["NaN", "-Infinity"]] * count
    spec = TensorSpec(name="x", datatype="FP32", shape=(-1, 2))
    for path, asked in (("/v2/models/m/infer", {"inputs": [tensor]}), ("/invocations", {"instances": rows})):
        found = read_exchange(InferRequest(path, "application/json", json.dumps(asked).encode()), "m", (spec,))

        np.testing.assert_array_equal(found.inputs["x"], np.array([[np.nan, -np.inf]] * count, np.float32))
    for data, datatype in ((["nan", 1.0], "FP32"), (["NaN", 1], "INT32"), ([True, "NaN"], "FP64")):
        with pytest.raises(BadRequest, match="values of its datatype"):
            read_exchange(body(data, datatype), "m", ())


def test_an_output_that_one_asks_for_in_vain_is_its_own_400() -> None:
    vain = exchange(1, InferCall({}, outputs={"z": False}))
    good, bad = write_replies([exchange(1, InferCall({})), vain], {"y": np.zeros(2)})

    assert (good.status, bad.status) == (200, 400)
    assert b"unknown output 'z'" in bad.body


def test_sagemaker_s_clients_share_a_batch() -> None:
    parts = [exchange(1, InferCall({})), exchange(2, InferCall({}), "/invocations")]
    _, reply = write_replies(parts, {"y": np.array([1, 2, 3])})

    assert json.loads(reply.body) == {"predictions": [2, 3]}


@pytest.mark.parametrize("output", [np.zeros((2, 1)), np.zeros(()), np.zeros((4, 3))])
def test_an_output_of_other_rows_is_refused(output: NDArray[Any]) -> None:
    with pytest.raises(ValueError, match="for a batch of 3"):
        write_replies([exchange(1, InferCall({})), exchange(2, InferCall({}))], {"y": output})


def test_a_batch_is_read_as_each_would_be_alone() -> None:
    requests = [body([1.5, 1e300]), body([1, 1.5], "INT8"), body([[1, 2]]), body([True, False])]
    found = read_exchanges(requests, "m", ())

    assert [type(one) is Exchange for one in found] == [True, False, True, False]
    for request, one in zip(requests, found, strict=True):
        if isinstance(one, Exchange):
            np.testing.assert_array_equal(one.inputs["x"], read_exchange(request, "m", ()).inputs["x"])
            assert one.inputs["x"].flags.writeable
        else:
            with pytest.raises(BadRequest, match=str(one)[:20]):
                read_exchange(request, "m", ())


def test_binary_tensors_are_the_model_s_own() -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    head = json.dumps({"inputs": [tensor]}).encode()
    request = InferRequest("/v2/models/m/infer", "", head + np.ones(2, "<f4").tobytes(), len(head))

    assert read_exchange(request, "m", ()).inputs["x"].flags.writeable
