from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.tensor import TensorSpec
from mark.ports import InferRequest
from mark.protocols.oip import bodies as oip
from mark.protocols.sagemaker import compose_predictions, error_name, parse_invocation, with_message

IMAGE = (TensorSpec(name="x", datatype="FP32", shape=(-1, 2, 2)),)
WHOLE = (TensorSpec(name="x", datatype="INT8", shape=(-1, 2)),)
TEXT = (TensorSpec(name="x", datatype="BYTES", shape=(-1,)),)


def asked(body: object, kind: str = "application/json") -> InferRequest:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return InferRequest(path="/invocations", content_type=kind, body=data)


def test_instances_become_the_one_input() -> None:
    call = parse_invocation(asked({"instances": [[1, 2, 3, 4], [5, 6, 7, 8]]}), IMAGE)

    assert call.inputs["x"].dtype == np.float32
    assert call.inputs["x"].tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]


def test_a_table_becomes_the_one_input() -> None:
    call = parse_invocation(asked(b"1,2\n3,4\n", "text/csv; charset=utf-8"), WHOLE)

    assert call.inputs["x"].tolist() == [[1, 2], [3, 4]]
    assert call.inputs["x"].dtype == np.int8


@pytest.mark.parametrize(
    "body",
    [
        b"9007199254740993\n-1.0e0",
        b"9007199254740993\n-9007199254740993",
        b"9007199254740993.0",
        b"1_0",
        b"1,,",
        b"[9007199254740993, -1]",
        b"[9007199254740993, -1.0]",
        b"[9007199254740993.0]",
    ],
)
def test_whole_numbers_are_exact_or_refused(body: bytes) -> None:
    spec = TensorSpec(name="x", datatype="INT64", shape=(-1, 1))
    kind = "application/json" if body.startswith(b"[") else "text/csv"
    try:
        found = parse_invocation(asked(body, kind), (spec,)).inputs["x"]
    except oip.BadRequest:
        assert b"." in body or b"_" in body or b",," in body
    else:
        assert found.reshape(-1).tolist()[0] == 9007199254740993


def test_texts_and_empty_cells_of_a_table_reach_the_model() -> None:
    table = b'\xef\xbb\xbf5,"a, ""b"""\r\n\r\n c,"two\nlines"'
    texts = parse_invocation(asked(table, "text/csv"), (TensorSpec(name="x", datatype="BYTES", shape=(-1, 2)),))
    cells = parse_invocation(asked(b"1,,3, \n", "text/csv"), IMAGE).inputs["x"]

    assert texts.inputs["x"].tolist() == [[b"5", b'a, "b"'], [b" c", b"two\nlines"]]
    np.testing.assert_array_equal(cells, [[[1, np.nan], [3, np.nan]]])
    for wrong in (b'"a', b"\xff", b"", b"a,b", b"a\nb,c"):
        with pytest.raises(oip.BadRequest):
            parse_invocation(asked(wrong, "text/csv"), TEXT)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (asked({"instances": []}), "at least one item"),
        (asked({"instances": [[1, 2], [3]]}), "ragged"),
        (asked({"instances": [[1.5, 2]]}), "values of INT8"),
        (asked(b"1.5,2", "text/csv"), "values of INT8"),
        (asked({"instances": [[300, 2]]}), "values of INT8"),
        (asked({"instances": [["a", "b"]]}), "values of INT8"),
        (asked({"instances": [[1, 2, 3]]}), r"an item has shape \[3\]"),
        (asked(b"1,x", "text/csv"), "not a table of numbers"),
        (asked(b"", "text/csv"), "no row"),
        (asked(b"zz"), "not JSON"),
        (asked(b"x", "image/png"), "not supported"),
    ],
)
def test_what_is_wrong_is_said(request_: InferRequest, text: str) -> None:
    with pytest.raises(oip.BadRequest, match=text):
        parse_invocation(request_, WHOLE)


def test_answers_come_as_they_were_asked_for() -> None:
    outputs = {"y": np.array([[1.0], [2.0]])}
    plain = asked({"instances": [[1, 2], [3, 4]]})
    table = asked(b"1,2\n3,4", "text/csv")
    open_ = asked(oip.example_body(WHOLE))

    def answer(request: InferRequest) -> bytes:
        return compose_predictions(outputs, asked=request, call=parse_invocation(request, WHOLE), model="m").body

    assert json.loads(answer(plain)) == {"predictions": [[1.0], [2.0]]}
    assert answer(table) == b"1.0\n2.0"
    assert json.loads(answer(open_))["outputs"][0]["name"] == "y"


def test_a_table_holds_all_outputs_as_they_are() -> None:
    outputs = {
        "y": np.array([[np.nan, -np.inf], [1, 2]]),
        "t": np.array([['a, "b"', ""], ["c", "d"]], dtype=object),
    }
    call = oip.InferCall({})

    def answer(*names: str) -> bytes:
        given = {name: outputs[name] for name in names}
        return compose_predictions(given, asked=asked(b"1,2\n3,4", "text/csv"), call=call, model="m").body

    assert answer("y") == b"NaN,-Infinity\n1.0,2.0"
    assert answer("t") == b'"a, ""b""",\nc,d'
    assert answer("y", "t") == b'NaN,-Infinity,"a, ""b""",\n1.0,2.0,c,d'
    call = oip.InferCall({}, outputs={"y": False})
    assert answer("y", "t") == b"NaN,-Infinity\n1.0,2.0"


@given(
    st.binary(max_size=60)
    | st.sampled_from([b'{"instances": [NaN]}', b'{"instances": [[1e999]]}', b"1,2\n3,4\n", b"words\n"])
    | st.lists(st.sampled_from([[1, 2], [[1, 2], [3, 4]], "words", {"x": [1, 2]}]), min_size=1, max_size=2).map(
        lambda rows: json.dumps({"instances": rows}).encode()
    ),
    st.sampled_from(["", "text/csv", "application/json"]),
    st.sampled_from([IMAGE, WHOLE, TEXT]),
)
def test_whatever_comes_is_understood_or_a_bad_request(
    body: bytes, kind: str, specs: tuple[TensorSpec, ...]
) -> None:
    try:
        call = parse_invocation(asked(body, kind), specs)
    except oip.BadRequest:
        return
    assert set(call.inputs) == {"x"}


def test_errors_have_sagemakers_names() -> None:
    assert [error_name(status) for status in (400, 403, 424, 429, 500, 503)] == [
        "ValidationError",
        "AccessDeniedException",
        "ModelError",
        "ThrottlingException",
        "InternalFailure",
        "ServiceUnavailable",
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[1]",
        b'{"error": 5}',
        b'{"error": "a", "message": "b"}',
        pytest.param(b"\xff", id="no UTF-8"),
        b"[" * 9000,
        b'{"error": "' + b"a" * 20_000 + b'"}',
    ],
)
def test_errors_that_are_none_of_ours_stay_as_they_are(body: bytes) -> None:
    assert with_message(body) == body


def test_a_models_error_is_told_where_boto3_looks_for_it() -> None:
    assert json.loads(with_message(b'{"error": "no such input", "code": 5}')) == {
        "error": "no such input",
        "code": 5,
        "message": "no such input",
        "Message": "no such input",
    }
