from __future__ import annotations

import json

import numpy as np
import pytest

from mark.domain.tensor import TensorSpec
from mark.ports import InferReply, InferRequest
from mark.protocols.exchange import read_exchange
from mark.protocols.oip import bodies as oip
from mark.protocols.sagemaker import parse_invocation
from mark.protocols.sagemaker_media import answer_type

LINES = "application/jsonlines"
PAIR = (TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),)
TEXT = (TensorSpec(name="x", datatype="BYTES", shape=(-1,)),)
TWO = (*PAIR, TensorSpec(name="y", datatype="INT64", shape=(-1,)))


def asked(body: bytes, kind: str = "application/json", accept: str = "") -> InferRequest:
    return InferRequest(path="/invocations", content_type=kind, body=body, accept=accept)


@pytest.mark.parametrize(
    "body",
    [
        b"[1, 2]\n[3, 4]\n",
        b"[1,2]\r\n\n[3,4]",
        b'{"x": [1, 2]}\n{"x": [3, 4]}',
        b'{"features": [1, 2]}\n{"x": [3, 4]}',
    ],
)
@pytest.mark.parametrize("kind", [LINES, "application/jsonl", "application/x-ndjson; charset=utf-8"])
def test_each_line_is_an_item(body: bytes, kind: str) -> None:
    assert parse_invocation(asked(body, kind), PAIR).inputs["x"].tolist() == [[1, 2], [3, 4]]


def test_items_may_be_texts_or_hold_several_inputs() -> None:
    assert parse_invocation(asked(b'"a"\n"b"', LINES), TEXT).inputs["x"].tolist() == [b"a", b"b"]
    first, second = b'{"y": 5, "x": [1, 2]}', b'{"x": [3, 4], "y": 6}'
    rows = b"[%b, %b]" % (first, second)
    for body, kind in ((b"%b\n%b" % (first, second), LINES), (rows, ""), (b'{"instances": %b}' % rows, "")):
        call = parse_invocation(asked(body, kind), TWO)
        assert {name: array.tolist() for name, array in call.inputs.items()} == {
            "x": [[1, 2], [3, 4]],
            "y": [5, 6],
        }
    assert parse_invocation(asked(b'[{"x": [1, 2]}]'), PAIR).inputs["x"].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "one JSON value"),
        (b"[1, 2", "one JSON value"),
        (b"[1, 2] [3, 4]", "one JSON value"),
        (b"[1, 2], [3, 4]", "one JSON value"),
        (b"[1, 2]\n[3, 4", "one JSON value"),
        (b'[1, 2]\n{"x": [3, 4]}', "all items or none"),
        (b'{"z": [3, 4]}', "lacks the input 'x'"),
        (b"[1, 2]\n[3]", "ragged"),
        (b'["a", "b"]', "values of FP32"),
    ],
)
def test_lines_that_are_wrong(body: bytes, text: str) -> None:
    with pytest.raises(oip.BadRequest, match=text):
        parse_invocation(asked(body, LINES), PAIR)


@pytest.mark.parametrize(
    ("kind", "accept", "answered"),
    [
        ("application/json", "", "application/json"),
        ("application/json", "*/*", "application/json"),
        ("application/json", "text/csv", "text/csv"),
        ("application/json", "text/*", "text/csv"),
        ("application/json", "application/jsonlines", LINES),
        ("application/json", "image/png, application/x-ndjson", LINES),
        ("application/json", "text/csv;q=0.5, application/json;q=0.4", "text/csv"),
        ("text/csv", "", "text/csv"),
        ("text/csv", "*/*", "text/csv"),
        ("text/csv; charset=utf-8", "application/*", "application/json"),
        ("text/csv", "text/csv;q=0, */*;q=0.1", "application/json"),
        (LINES, "", LINES),
        ("application/jsonl", "*", LINES),
    ],
)
def test_the_answer_is_what_the_client_accepts_best(kind: str, accept: str, answered: str) -> None:
    assert answer_type(asked(b"[]", kind, accept)) == answered


@pytest.mark.parametrize(
    "accept", ["image/png", "application/x-npy", "application/json;q=0", "text/csv;q=x", "text/csv;q=nan"]
)
def test_what_is_accepted_and_not_offered_is_406_before_the_model_runs(accept: str) -> None:
    with pytest.raises(oip.BadRequest) as refused:
        parse_invocation(asked(b"[[1, 2]]", accept=accept), PAIR)
    assert refused.value.status == 406


def reply(body: bytes, kind: str, accept: str, **outputs: object) -> InferReply:
    exchange = read_exchange(asked(body, kind, accept), "m", PAIR)
    return exchange.reply({name: np.array(rows) for name, rows in outputs.items()})


def test_answers_are_written_in_each_way() -> None:
    rows = [[1, 2], [3, 4]]
    for body, kind in (
        (b"[[1,2],[3,4]]", "application/json"),
        (b"1,2\n3,4", "text/csv"),
        (b"[1,2]\n[3,4]", LINES),
    ):
        found = reply(body, kind, "application/json", out=rows)
        assert (found.content_type, json.loads(found.body)) == ("application/json", {"predictions": rows})
        found = reply(body, kind, "text/csv", out=rows)
        assert (found.content_type, found.body) == ("text/csv", b"1,2\n3,4")
        found = reply(body, kind, LINES, out=rows)
        assert (found.content_type, found.body) == (LINES, b"[1, 2]\n[3, 4]\n")
    found = reply(b"[[1,2],[3,4]]", "application/json", LINES, out=rows, label=["a", "b"])
    assert [json.loads(line) for line in found.body.splitlines()] == [
        {"out": [1, 2], "label": "a"},
        {"out": [3, 4], "label": "b"},
    ]
    assert reply(b"[[1,2],[3,4]]", "", "text/csv", out=np.array([b"a", b"b"], dtype=object)).body == b"a\nb"


def test_an_open_inference_body_is_answered_as_one_unless_another_type_is_asked_for() -> None:
    body = json.dumps(oip.example_body(PAIR)).encode()
    for accept in ("", "application/json", "application/octet-stream", "*/*"):
        assert b'"outputs"' in reply(body, "application/json", accept, out=[[1, 2]]).body
    assert reply(body, "application/json", "text/csv", out=[[1, 2]]).body == b"1,2"
