"""What one request's body can cost in memory and in time: little more than its own size."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref

import numpy as np
import pytest

from mark.domain.tensor import TensorSpec
from mark.ports import InferReply, InferRequest
from mark.protocols import exchange, sagemaker
from mark.protocols.exchange import Exchange, read_exchange, read_exchanges
from mark.protocols.oip.bodies import BadRequest, InferCall, Tensors
from mark.serving.backends import answering

MEGABYTE = 1_000_000
SPEC = (TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),)
TEXTS = (TensorSpec(name="x", datatype="BYTES", shape=(-1,)),)
READ = """
import resource, sys
from pathlib import Path
from mark.domain.tensor import TensorSpec
from mark.ports import InferRequest
from mark.protocols.exchange import read_exchanges
datatype, path, kind, most = sys.argv[1:]
body = sys.stdin.buffer.read()
spec = (TensorSpec(name="x", datatype=datatype, shape=(-1,)),)
request = InferRequest(path=path, content_type=kind, body=body)
def peak():  # of this program alone: what getrusage tells begins with its parent's
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
before = peak()
resource.setrlimit(resource.RLIMIT_AS, (int(most), int(most)))
found = read_exchanges([request], "m", spec)[0]
grown = peak() - before
print(getattr(found, "status", 200), grown // 1024)
"""


def oip_body(data: str, datatype: str, shape: str = "[4]") -> bytes:
    return f'{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":{shape},"data":{data}}}]}}'.encode()


def long_and_many(body_bytes: int) -> str:
    """One long text and as many empty ones as fit: an array of them with one width would take its square."""
    long = body_bytes // 2
    return json.dumps(["x" * long, *[""] * (long // 3)], separators=(",", ":"))


def read(
    body: bytes, datatype: str, path: str = "/v2/models/m/infer", kind: str = "application/json"
) -> list[int]:
    """Status, and megabytes by which a process of its own grew at most. It may have 4 GB."""
    command = [sys.executable, "-c", READ, datatype, path, kind, str(4 * 1024**3)]
    done = subprocess.run(command, input=body, capture_output=True, check=True)  # noqa: S603 - our own text
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize(
    ("body", "datatype", "path"),
    [
        (oip_body(long_and_many(MEGABYTE), "FP32"), "FP32", "/v2/models/m/infer"),
        (oip_body(long_and_many(MEGABYTE), "BYTES", "[166667]"), "BYTES", "/v2/models/m/infer"),
        (b'{"instances":%b}' % long_and_many(MEGABYTE).encode(), "FP32", "/invocations"),
        (b'{"instances":%b}' % long_and_many(MEGABYTE).encode(), "BYTES", "/invocations"),
        (oip_body("[" + "[]," * 333_000 + "[]]", "FP32"), "FP32", "/v2/models/m/infer"),
        (oip_body("[" * 500_000 + "]" * 500_000, "FP32"), "FP32", "/v2/models/m/infer"),
        (oip_body("[1]", "FP32", "[" + "1," * 500_000 + "1]"), "FP32", "/v2/models/m/infer"),
        (oip_body("[1]", "x" * MEGABYTE), "FP32", "/v2/models/m/infer"),
    ],
    ids=["oip", "oip texts", "instances", "instances of texts", "lists", "nesting", "shape", "datatype"],
)
def test_a_body_of_one_megabyte_takes_less_than_32(body: bytes, datatype: str, path: str) -> None:
    status, grown_mb = read(body, datatype, path)

    assert status == (200 if datatype == "BYTES" else 400)
    assert grown_mb < 32


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"12345\n" * 4_000_000, "text/csv", 200),
        (b"12345," * 4_000_000 + b"1", "text/csv", 400),
        (b"1\n" * 10_000_000, "text/csv", 413),
        (b'{"instances":[%b[]]}' % (b"[]," * 6_000_000), "application/json", 413),
    ],
    ids=["rows", "cells", "too many rows", "lists"],
)
def test_a_body_of_20_megabytes_takes_a_small_multiple(body: bytes, kind: str, status: int) -> None:
    found, grown_mb = read(body, "FP32", "/invocations", kind)

    assert found == status
    assert grown_mb < 12 * len(body) / MEGABYTE


def test_a_request_that_asks_for_too_much_memory_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """550 kB that numpy would make 100 GB of; and whatever else memory does not suffice for."""
    good = InferRequest("/v2/models/m/infer", "", oip_body("[1,2]", "FP32", "[1,2]"))
    greedy = good._replace(body=oip_body(long_and_many(550_000), "FP32"))
    without_memory = InferRequest("/invocations", "", b"{}")

    def parse_invocation(*_: object) -> InferCall:
        raise MemoryError

    monkeypatch.setattr(exchange, "parse_invocation", parse_invocation)
    found = read_exchanges([good, greedy, without_memory, good], "m", SPEC)

    assert [getattr(one, "status", 200) for one in found] == [200, 400, 413, 200]
    with pytest.raises(BadRequest) as refused:
        read_exchange(without_memory, "m", SPEC)
    assert refused.value.status == 413


def test_requests_that_memory_does_not_suffice_for_together_are_answered_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write_replies(parts: list[Exchange], outputs: Tensors, version: str) -> list[InferReply]:
        if len(parts) > 1 or parts[0].inputs["x"][0, 0] == 13:
            raise MemoryError
        return exchange.write_replies(parts, outputs, version)

    monkeypatch.setattr(answering, "write_replies", write_replies)
    good = InferRequest("/v2/models/m/infer", "", oip_body("[1,2]", "FP32", "[1,2]"))
    large = good._replace(body=oip_body("[13,2]", "FP32", "[1,2]"))
    replies = answering.answer(answering.answering([good, large, good], "m", SPEC), dict)

    assert [reply.status for reply in replies] == [200, 413, 200]


def test_what_is_wrong_with_a_request_keeps_none_of_its_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[weakref.ref[np.ndarray]] = []
    shaped = sagemaker._shaped

    def noted(array: np.ndarray, spec: TensorSpec) -> dict[str, np.ndarray]:
        kept.append(weakref.ref(array))
        return shaped(array, spec)

    monkeypatch.setattr(sagemaker, "_shaped", noted)
    request = InferRequest("/invocations", "", json.dumps({"instances": [[1, 2, 3]]}).encode())
    gc.disable()
    try:
        (error,) = read_exchanges([request], "m", SPEC)

        assert isinstance(error, BadRequest)
        assert [one() for one in kept] == [None]
    finally:
        gc.enable()


def test_a_table_that_does_not_fit_is_refused_after_its_first_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    read_slices = []
    cells = sagemaker._cells

    def counted(text: str, dtype: np.dtype) -> np.ndarray:
        read_slices.append(len(text))
        return cells(text, dtype)

    monkeypatch.setattr(sagemaker, "_cells", counted)
    body = b"1\n" * 1_000_000
    for spec in (SPEC, (TensorSpec(name="x", datatype="FP32", shape=(4, 1)),)):
        read_slices.clear()
        (error,) = read_exchanges([InferRequest("/invocations", "text/csv", body)], "m", spec)

        assert isinstance(error, BadRequest)
        assert len(read_slices) == 1


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n"])
@pytest.mark.parametrize("slice_bytes", [4, 7, 1000])
def test_a_table_is_the_same_in_slices(monkeypatch: pytest.MonkeyPatch, slice_bytes: int, end: str) -> None:
    monkeypatch.setattr(sagemaker, "SLICE_BYTES", slice_bytes)
    rows = [[1, 2.5], [-3, 40000], [0.001, 6]]
    body = end.join(",".join(map(str, row)) for row in rows).encode() + end.encode()
    (found,) = read_exchanges([InferRequest("/invocations", "text/csv", body)], "m", SPEC)

    assert isinstance(found, Exchange)
    np.testing.assert_array_equal(found.inputs["x"], np.array(rows, dtype=np.float32))


def test_more_texts_than_a_request_may_hold_are_refused() -> None:
    body = b'{"instances":[%b""]}' % (b'"",' * 2**20)
    (error,) = read_exchanges([InferRequest("/invocations", "", body)], "m", TEXTS)

    assert isinstance(error, BadRequest)
    assert error.status == 413
