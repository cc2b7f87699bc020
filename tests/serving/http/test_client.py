"""The client against real servers: those that behave, those that vanish, those that answer nonsense."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from mark.domain.errors import Misconfigured, RetryLater
from mark.serving.http.client import HELD_BYTES, HttpClient
from tests.waiting import PATIENCE_S

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX-Said: So\r\n\r\nhi"


@asynccontextmanager
async def serving(answers, *, seen=None):
    """A server that reads one request after another and answers with what `answers` yields for its number."""
    connections = []

    async def handle(reader, writer):
        connections.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode().lower().split("\r\n")
                length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length"))
                body = await reader.readexactly(length)
                if seen is not None:
                    seen.append((head.decode(), body))
                for part in answers(len(connections)):
                    if part is None:
                        writer.close()
                        return
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(f"http://127.0.0.1:{port}")
    try:
        yield client, connections
    finally:
        await client.close()
        server.close()
        for writer in connections:
            writer.close()
        await server.wait_closed()


async def test_a_connection_is_used_again():
    seen = []
    async with serving(lambda _: [OK], seen=seen) as (client, connections):
        for number in range(3):
            answer = await client.request(
                "POST", "/x", timeout_s=PATIENCE_S, body=b"abc", headers={"n": str(number)}
            )
            assert (answer.status, answer.body, answer.headers["x-said"]) == (200, b"hi", "So")
        assert len(connections) == 1
        assert [body for _, body in seen] == [b"abc"] * 3
        assert "n: 2\r\n" in seen[2][0]
        assert seen[0][0].startswith("POST /x HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "parts",
    [
        [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n", b"1\r\ni\r\n0\r\n\r\n"],
        [OK[:10], OK[10:40], OK[40:]],
        [b"HTTP/1.0 200 OK\r\n\r\nh", b"i", None],
        [b"HTTP/1.1 100 Continue\r\n\r\n", OK],
        [b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi", None],
    ],
)
async def test_answers_in_all_framings(parts):
    async with serving(lambda _: parts) as (client, _):
        for _ in range(2):
            assert (await client.request("GET", "/", timeout_s=PATIENCE_S)).body == b"hi"


async def test_many_calls_share_few_connections():
    async with serving(lambda _: [OK]) as (client, connections):
        client._places = asyncio.Semaphore(3)
        answers = await asyncio.gather(*(client.request("GET", "/", timeout_s=PATIENCE_S) for _ in range(30)))
        assert [answer.body for answer in answers] == [b"hi"] * 30
        assert len(connections) <= 3


async def test_a_connection_closed_while_idle_is_replaced_unseen():
    async with serving(lambda _: [OK]) as (client, connections):
        await client.request("GET", "/", timeout_s=PATIENCE_S)
        connections[0].transport.abort()
        assert (await client.request("GET", "/", timeout_s=PATIENCE_S)).body == b"hi"
        assert len(connections) == 2


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([None], "without an answer"),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi", None], "mid-answer"),
        ([b"SSH-2.0-OpenSSH\r\n\r\n"], "malformed HTTP"),
        ([], "did not answer within 0.05 s"),
    ],
)
async def test_a_broken_answer_is_to_be_tried_again_later(parts, said):
    async with serving(lambda _: parts) as (client, _):
        with pytest.raises(RetryLater, match=said):
            await client.request("GET", "/", timeout_s=0.05 if not parts else 5)


async def test_a_call_after_a_broken_one_gets_its_own_answer():
    async with serving(lambda number: [] if number == 1 else [OK]) as (client, connections):
        with pytest.raises(RetryLater):
            await client.request("GET", "/", timeout_s=0.05)
        assert (await client.request("GET", "/", timeout_s=PATIENCE_S)).body == b"hi"
        assert len(connections) == 2


async def test_an_answer_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr("mark.serving.http.client.MAX_ANSWER_BYTES", 1)

    async with serving(lambda _: [OK]) as (client, _):
        with pytest.raises(RetryLater, match="more than"):
            await client.request("GET", "/", timeout_s=PATIENCE_S)


async def test_nobody_listens():
    client = HttpClient("http://127.0.0.1:9")
    with pytest.raises(RetryLater, match="cannot be reached"):
        await client.request("GET", "/", timeout_s=PATIENCE_S)


@pytest.mark.parametrize("url", ["", "https://x", "localhost:8000", "file:///x"])
def test_other_urls_are_refused(url):
    with pytest.raises(Misconfigured, match="http://host:port"):
        HttpClient(url)


async def test_a_stream_that_is_left_when_all_has_come_leaves_a_connection_that_reads():
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    answers = iter([[head], [head, b"1\r\n2\r\n0\r\n\r\n"]])

    async with serving(lambda _: next(answers)) as (client, connections):
        left = await client.stream("/x", head_within_s=10, body=b"", headers={})
        size = 2 * HELD_BYTES  # the end comes in the same read, after which nothing more is read
        left.connection.data_received(b"%x\r\n%b\r\n0\r\n\r\n" % (size, bytes(size)))
        await left.aclose()
        again = await client.stream("/x", head_within_s=10, body=b"", headers={})
        assert [part async for part in again] == [b"2"]
        await again.aclose()
        assert len(connections) == 1
