"""Backends that stream: servers over HTTP, and a model in Python that yields."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import numpy as np
import pytest

from mark.domain.errors import BadRequest, Misconfigured, RetryLater
from mark.domain.tensor import TensorSpec
from mark.ports import InferRequest, StreamedReply
from mark.serving.backends.answering import ModelFailed
from mark.serving.backends.oip_server import OipBackend
from mark.serving.backends.python import PythonBackend
from mark.serving.backends.python_streams import PythonStreamBackend
from mark.serving.backends.servers import InvocationsBackend
from mark.serving.http.client import HELD_BYTES
from mark.serving.passed_on_trace import passed_on

STREAM = InferRequest("/v2/models/m/generate_stream", "application/json", b'{"text_input": "a b c"}')
Serve = Callable[[bytes, asyncio.StreamWriter], Coroutine[Any, Any, None]]


async def all_of(reply: StreamedReply) -> list[bytes]:
    async with aclosing(reply.parts) as parts:
        return [part async for part in parts]


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[str]:
    """A server that hands each request's head and a writer to `serve`; one request a connection after another."""
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                await serve(head, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        for writer in writers:
            writer.close()
        listening.close()


CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


async def test_a_servers_stream_is_passed_on_as_it_comes_and_its_connection_kept() -> None:
    go_on, heads = asyncio.Event(), []

    async def serve(head: bytes, writer: asyncio.StreamWriter) -> None:
        heads.append((head.split(b" ")[1], writer))
        writer.write(CHUNKED + chunk(b"data: 1\n\n"))
        await go_on.wait()
        writer.write(chunk(b"data: 2\n\n") + b"0\r\n\r\n")

    async with server(serve) as url:
        backend = OipBackend(url, name="m")
        reply = await backend.stream(STREAM)
        async with aclosing(reply.parts) as parts:
            assert (reply.status, reply.content_type) == (200, "text/event-stream")
            assert await anext(aiter(parts)) == b"data: 1\n\n"
            go_on.set()
            assert [part async for part in parts] == [b"data: 2\n\n"]
        assert b"".join(await all_of(await backend.stream(STREAM))) == b"data: 1\n\ndata: 2\n\n"
        (path, first), (_, second) = heads
        assert path == b"/v2/models/m/generate_stream"
        assert first is second
        await backend.close()


async def test_a_server_gets_the_headers_of_the_requests_trace() -> None:
    parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    heads: list[bytes] = []

    async def serve(head: bytes, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        writer.write(CHUNKED + b"0\r\n\r\n")

    async with server(serve) as url:
        backend = OipBackend(url, name="m")
        await all_of(await backend.stream(STREAM._replace(trace=passed_on(parent))))
        assert b"traceparent: " + parent in heads[0]
        await backend.close()


async def test_a_server_that_dies_in_mid_stream_is_an_error() -> None:
    async def serve(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + chunk(b"data: 1\n\n"))
        await writer.drain()
        writer.close()

    async with server(serve) as url:
        backend = InvocationsBackend(url)
        reply = await backend.stream(InferRequest("/invocations", "application/json", b"{}"))
        with pytest.raises(RetryLater, match="mid-answer"):
            await all_of(reply)
        await backend.close()


async def test_a_server_that_is_away_or_refuses_is_a_reply_with_its_status() -> None:
    async def serve(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")

    async with server(serve) as url:
        backend = OipBackend(url, name="m")
        reply = await backend.stream(STREAM)
        assert (reply.status, await all_of(reply)) == (400, [b"{}"])
        await backend.close()
    away = OipBackend(url, name="m")
    reply = await away.stream(STREAM)
    assert reply.status == 503
    await away.close()


async def test_a_stream_that_is_left_closes_its_connection_and_gives_its_place_back() -> None:
    gone = asyncio.Event()

    async def serve(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + chunk(b"data: 1\n\n"))
        try:
            while True:
                writer.write(chunk(b"x" * 65536))
                await writer.drain()
        except ConnectionError:
            gone.set()
            raise

    async with server(serve) as url:
        backend = OipBackend(url, name="m", connections=1)
        for _ in range(3):
            gone.clear()
            reply = await backend.stream(STREAM)
            async with aclosing(reply.parts) as parts:
                await anext(aiter(parts))
            await gone.wait()
        await backend.close()


async def test_what_is_not_taken_is_not_read() -> None:
    sent, total = 0, 64 * 2**20

    async def serve(_: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(CHUNKED)
        while sent < total:
            writer.write(chunk(b"x" * 65536))
            sent += 65536
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async with server(serve) as url:
        backend = OipBackend(url, name="m")
        reply = await backend.stream(STREAM)
        async with aclosing(reply.parts) as parts:
            first = len(await anext(aiter(parts)))
            while True:  # until the server is held back
                before = sent
                for _ in range(200):
                    await asyncio.sleep(0)
                if sent == before:
                    break
            assert sent < total / 2
            rest = [len(part) async for part in parts]
        assert first + sum(rest) == total
        assert max(rest) <= 8 * HELD_BYTES
        await backend.close()


class Words:
    """Answers with each word of its text."""

    inputs = (TensorSpec(name="text_input", datatype="BYTES", shape=(-1, 1)),)
    outputs = (TensorSpec(name="text_output", datatype="BYTES", shape=(-1, 1)),)

    def __init__(self) -> None:
        self.closed = 0

    def predict(self, inputs: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        try:
            for word in bytes(inputs["text_input"][0, 0]).split():
                if word == b"wrong":
                    raise BadRequest("no text at all", 422)
                if word == b"fail":
                    raise RuntimeError("no such word")
                yield {"text_output": np.array([[word]], dtype=object)}
        finally:
            self.closed += 1


async def words() -> tuple[PythonStreamBackend, Words]:
    model = Words()
    backend = PythonStreamBackend(lambda: model, name="m")  # type: ignore[arg-type, return-value]
    await backend.start()
    model.closed = 0
    return backend, model


async def test_a_python_model_yields_its_answer() -> None:
    backend, model = await words()
    reply = await backend.stream(STREAM)
    parts = [json.loads(part.removeprefix(b"data: ")) for part in await all_of(reply)]
    assert reply.content_type == "text/event-stream"
    assert [part["text_output"] for part in parts] == ["a", "b", "c"]
    tensor = {"name": "text_input", "datatype": "BYTES", "shape": [1, 1], "data": ["a b"]}
    infer = InferRequest("/v2/models/m/infer", "application/json", json.dumps({"inputs": [tensor]}).encode())
    reply = await backend.stream(infer)
    lines = [json.loads(line) for line in b"".join(await all_of(reply)).splitlines()]
    assert [line["outputs"][0]["data"] for line in lines] == [["a"], ["b"]]
    assert reply.content_type == "application/x-ndjson"
    assert model.closed == 2
    await backend.close()


async def test_a_stream_of_a_python_model_that_is_left_has_its_generator_closed() -> None:
    backend, model = await words()
    reply = await backend.stream(STREAM)
    async with aclosing(reply.parts) as parts:
        await anext(aiter(parts))
        other = await backend.stream(STREAM)  # takes turns on the model's thread
        assert len(await all_of(other)) == 3
    assert model.closed == 2
    await backend.close()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"[]", "JSON object"),
        (b'{"text": "a"}', "unknown input 'text'"),
        (b"{}", "'text_input' is missing"),
        (b'{"text_input": ["a", "b"]}', "text_input"),
    ],
)
async def test_a_request_that_is_wrong_is_refused_before_its_stream(body: bytes, text: str) -> None:
    backend, model = await words()
    reply = await backend.stream(STREAM._replace(body=body))
    assert (reply.status, model.closed) == (400, 0)
    assert text in json.loads(b"".join(await all_of(reply)))["error"]
    await backend.close()


async def test_a_python_model_that_fails_ends_its_own_stream() -> None:
    backend, _ = await words()
    with pytest.raises(ModelFailed, match="no such word"):
        await all_of(await backend.stream(STREAM._replace(body=b'{"text_input": "a fail"}')))
    assert len(await all_of(await backend.stream(STREAM))) == 3
    await backend.close()


async def test_a_request_that_a_python_model_declares_wrong_ends_its_own_stream_with_its_status() -> None:
    backend, _ = await words()
    with pytest.raises(ModelFailed, match="no text at all") as caught:
        await all_of(await backend.stream(STREAM._replace(body=b'{"text_input": "wrong"}')))
    assert caught.value.status == 422
    assert len(await all_of(await backend.stream(STREAM))) == 3
    await backend.close()


async def test_whether_a_python_model_yields_must_fit_its_setting() -> None:
    class Whole(Words):
        def predict(self, inputs: Mapping[str, Any]) -> Any:
            return {"text_output": inputs["text_input"]}

    for backend, text in (
        (PythonBackend(Words, name="m"), "set backend.streams"),  # type: ignore[arg-type]
        (PythonStreamBackend(Whole, name="m"), "write `yield`"),
    ):
        with pytest.raises(Misconfigured, match=text):
            await backend.start()
        await backend.close()
