"""Servers of the Open Inference Protocol and of TensorFlow Serving's REST, over real HTTP."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mark.domain.errors import Misconfigured
from mark.domain.tensor import TensorSpec
from mark.protocols.oip.bodies import BadRequest, compose_infer, parse_infer
from mark.protocols.oip.replies import compose_infer_reply
from mark.serving.backends.oip_server import OipBackend
from mark.serving.backends.tf_serving import TfServingBackend
from tests.serving.backends.asks import INPUTS, OUTPUTS, PATH, ask, error, invocation, outputs, run, wrong
from tests.serving.backends.model_servers import model_server, said

METADATA = {
    "name": "m",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 1]}],
}


def oip_server(*, metadata=METADATA, extensions=("binary_tensor_data",), path="/v2/models/m"):
    """Adds the numbers of each row; a batch with 13 in it fails."""

    def respond(method, asked, headers, body):
        if method == "GET":
            known = {"/v2": {"extensions": list(extensions)}, f"{path}/ready": {}, path: metadata}
            return said(known[asked]) if known.get(asked) is not None else said({"error": "no"}, 404)
        assert asked == f"{path}/infer"
        try:
            call = parse_infer(body, int(headers.get("inference-header-content-length", 0)))
        except BadRequest as refused:
            return said({"error": str(refused)}, 400)
        if (call.inputs["x"] == 13).any():
            return said({"error": "thirteen"}, 422)
        reply = compose_infer_reply("m", {"y": call.inputs["x"].sum(axis=1, keepdims=True)}, call)
        extra = {"inference-header-content-length": str(reply.header_length)} if reply.header_length else {}
        return reply.status, {"content-type": reply.content_type, **extra}, reply.body

    return model_server(respond)


@pytest.mark.parametrize("extensions", [(), ("binary_tensor_data",)])
def test_a_batch_is_one_call_of_the_server(extensions):
    with oip_server(extensions=extensions) as server:
        backend = OipBackend(server.url, name="m")
        (replies,) = run(backend, [ask([1, 2]), ask([3, 4], [5, 6], binary=True), invocation([7, 8]), wrong()])

    assert outputs(replies[0]) == [[3]]
    assert outputs(replies[1]) == [[7], [11]]
    assert json.loads(replies[2].body) == {"predictions": [[15]]}
    assert replies[3].status == 400
    (body,) = server.inferences
    assert (b"binary_data_size" in body) == bool(extensions)
    assert (backend.inputs, backend.outputs) == (INPUTS, OUTPUTS)


def test_only_the_culprit_fails():
    with oip_server() as server:
        (replies,) = run(OipBackend(server.url, name="m"), [ask([1, 1]), ask([13, 0]), ask([2, 2])])
    assert [reply.status for reply in replies] == [200, 422, 200]
    assert "thirteen" in error(replies[1])
    assert outputs(replies[2]) == [[4]]
    assert len(server.inferences) == 5, "all, one, two, one, one"


@pytest.mark.parametrize("metadata", [None, {"name": "m"}, {**METADATA, "inputs": [{"name": "x", "shape": [2]}]}])
def test_a_server_that_does_not_take_batches_is_called_for_each(metadata):
    with oip_server(metadata=metadata) as server:
        batch = [ask([1, 2]), ask([3, 4], binary=True), wrong()]
        (replies,) = run(OipBackend(server.url, name="m"), batch)
    assert [outputs(reply) for reply in replies[:2]] == [[[3]], [[7]]]
    assert replies[2].status == 400
    assert sorted(server.inferences) == sorted(request.body for request in batch)


def test_a_single_request_passes_as_it_is():
    with oip_server(path="/v2/models/theirs") as server:
        asked = ask([1, 2], binary=True)
        (replies,) = run(OipBackend(f"{server.url}/v2/models/theirs", name="m"), [asked])
    assert outputs(replies[0]) == [[3]]
    assert server.inferences == [asked.body]


@pytest.mark.parametrize(
    "answer",
    [
        said({}),
        said([]),
        (200, {}, b"<html>"),
        said({"outputs": [{"name": "y", "datatype": "FP32", "shape": [9]}]}),
    ],
)
def test_a_server_that_answers_nonsense_is_502(answer):
    def respond(method, path, headers, body):
        return answer if method == "POST" else said(METADATA)

    with model_server(respond) as server:
        (replies,) = run(OipBackend(server.url, name="m"), [ask([1, 2]), ask([3, 4])])
    assert [reply.status for reply in replies] == [502, 502]


def test_a_model_that_is_not_there_is_named():
    with oip_server() as server, pytest.raises(Misconfigured, match=r"/v2/models/other/ready is not ready"):
        run(OipBackend(server.url, name="other", ready_within_s=0.05))


def tf_server(predict, *, states=("AVAILABLE",)):
    def respond(method, path, headers, body):
        if method == "GET":
            assert path == "/v1/models/m"
            return said({"model_version_status": [{"version": "1", "state": state} for state in states]})
        assert path == "/v1/models/m:predict"
        try:
            return said({"outputs": predict(json.loads(body)["inputs"])})
        except ValueError as refused:
            return said({"error": str(refused)}, 400)

    return model_server(respond)


def test_tensorflow_serving_gets_one_call_for_a_batch():
    def predict(inputs):
        return [[sum(row)] for row in inputs["x"]]

    with tf_server(predict) as server:
        backend = TfServingBackend(server.url, name="m", inputs=INPUTS, outputs=OUTPUTS)
        (replies,) = run(backend, [ask([1, 2]), invocation([3, 4]), ask([5, 6], [7, 8], binary=True), wrong()])

    assert outputs(replies[0]) == [[3]]
    assert json.loads(replies[1].body) == {"predictions": [[7]]}
    assert outputs(replies[2]) == [[11], [15]]
    assert replies[3].status == 400
    assert len(server.inferences) == 1


def test_tensorflow_serving_with_texts_and_several_outputs():
    texts = (TensorSpec(name="text", datatype="BYTES", shape=(-1,)),)

    def predict(inputs):
        assert inputs["text"] == [{"b64": "YQA="}, {"b64": "w6k="}]
        return {"echo": inputs["text"], "length": [2, 2], "said": ["x", "yz"]}

    batch = [compose_infer({"text": np.array([text], dtype=object)}, path=PATH) for text in (b"a\0", "é".encode())]
    with tf_server(predict) as server:
        (replies,) = run(TfServingBackend(server.url, name="m", inputs=texts, outputs=()), batch)

    assert outputs(replies[0], "echo") == [b"a\0"]
    assert outputs(replies[1], "said") == [b"yz"]
    assert outputs(replies[1], "length") == [2]


def test_tensorflow_serving_names_what_it_refuses_and_when_it_is_not_ready():
    def predict(inputs):
        raise ValueError("no signature")

    with tf_server(predict) as server:
        (replies,) = run(TfServingBackend(server.url, name="m", inputs=INPUTS, outputs=OUTPUTS), [ask([1, 2])])
    assert replies[0].status == 400
    assert "no signature" in error(replies[0])
    with tf_server(predict, states=("LOADING",)) as server, pytest.raises(Misconfigured, match="not ready"):
        run(TfServingBackend(server.url, name="m", inputs=(), outputs=(), ready_within_s=0.05))


@pytest.mark.parametrize(
    "make", [OipBackend, lambda url, name: TfServingBackend(url, name=name, inputs=(), outputs=())]
)
def test_a_server_that_is_gone_is_503_for_all_and_asked_once(make):
    backend = make("http://127.0.0.1:9", name="m")
    backend._takes_batches = True

    async def ready():
        """It was."""

    backend.start = ready
    (replies,) = run(backend, [ask([1, 2]), ask([3, 4])])
    assert [reply.status for reply in replies] == [503, 503]
    assert "cannot be reached" in error(replies[0])
