"""What HTTP lets clients do, and the bounds of what they may have a server hold."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mark.serving.http.exchange import HttpExchange
from mark.serving.http.http_server import HttpServer
from mark.serving.http.limits import HttpLimits
from tests.serving.harness import BODY, INFER, live, until
from tests.serving.http.test_http_server import Sink

JAVA = (
    b"POST %b HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: %d\r\nHost: 127.0.0.1:8080\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\n"
    b"User-Agent: Java-http-client/17.0.2\r\nContent-Type: application/json\r\n\r\n"
)
"""As java.net.http.HttpClient sends it, where nobody sets its version."""
WEBSOCKET = (
    b"GET %b HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def answered(
    sent: bytes, cuts: tuple[int, ...] = (), limits: HttpLimits | None = None
) -> tuple[list[HttpExchange], bytes]:
    """The requests that a handler sees, which answers each at once, and all that is written."""
    seen: list[HttpExchange] = []

    def answer(exchange: HttpExchange) -> None:
        seen.append(exchange)
        exchange.reply(200, b"text/plain", b"ok")

    connection, sink = HttpServer(answer, limits=limits).connection(), Sink()
    connection.connection_made(sink)
    edges = [0, *cuts, len(sent)]
    for start, stop in itertools.pairwise(edges):
        if not sink.closed:
            connection.data_received(sent[start:stop])
    connection.connection_lost(None)
    return seen, b"".join(sink.written)


def test_an_offer_to_speak_another_protocol_is_ignored() -> None:
    chunked = JAVA.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked") % b"/c" + b"3\r\nabc\r\n0\r\n\r\n"
    sent = (
        JAVA % (b"/a", 5) + b"hello" + WEBSOCKET % b"/b" + chunked + JAVA % (b"/d", 0)
        + b"POST /e HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi"
    )  # fmt: skip
    expected = [(b"/a", b"hello"), (b"/b", b""), (b"/c", b"abc"), (b"/d", b""), (b"/e", b"hi")]
    whole, written = answered(sent)
    assert [(exchange.target, exchange.body) for exchange in whole] == expected
    assert written.count(b"HTTP/1.1 200 OK") == 5
    for cut in range(len(sent)):
        assert [(exchange.target, exchange.body) for exchange in answered(sent, (cut,))[0]] == expected


def test_an_offer_made_again_takes_the_quick_way() -> None:
    sent = JAVA % (b"/a", 5) + b"hello"
    seen, _ = answered(sent * 3, (len(sent), 2 * len(sent)))

    assert [exchange.body for exchange in seen] == [b"hello"] * 3
    assert seen[2].head is seen[0].head is not None


@pytest.mark.parametrize(
    "sent",
    [
        JAVA % (b"/a", 5) + b"hello" + b"GET /smuggled HTTP/1.1\r\n\r\n",
        JAVA.replace(b"Content-Length: %d", b"Content-Length: 5\r\nTransfer-Encoding: chunked") % b"/a"
        + b"0\r\n\r\n",
        JAVA % (b"/a", 5_000_000) + b"hello",
        WEBSOCKET.replace(b"Host: x\r\n", b"") % b"/a",
    ],
)
def test_an_offer_hides_nothing(sent: bytes) -> None:
    seen, written = answered(sent, limits=HttpLimits(body_bytes=1000))

    assert [exchange.target for exchange in seen if exchange.target != b"/a"] == []
    assert written.count(b" 400 ") + written.count(b" 413 ") == 1


def test_an_offer_keeps_the_clients_word_on_the_connection() -> None:
    sent = WEBSOCKET.replace(b"keep-alive, Upgrade", b"close, Upgrade") % b"/a"
    seen, written = answered(sent + sent)

    assert len(seen) == 1
    assert b"connection: close" in written


async def test_curl_and_javas_request_are_answered() -> None:
    async with live() as running:
        url = f"http://127.0.0.1:{running.port}{INFER}"
        if curl := shutil.which("curl"):
            asked = [curl, "-s", "--http2", "--data-binary", BODY.decode(), url]
            done = await asyncio.to_thread(subprocess.run, asked, stdout=subprocess.PIPE, check=True)
            assert b'"outputs"' in done.stdout
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(JAVA % (INFER.encode(), len(BODY)) + BODY)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /a HTTP/1.1\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: a b\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: a/b\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost:\r\n\r\n", 200),
        (b"GET /a HTTP/1.1\r\nhost: [::1]:8080\r\n\r\n", 200),
        (b"GET /a HTTP/1.0\r\n\r\n", 200),
    ],
)
def test_http_1_1_names_one_host(head: bytes, status: int) -> None:
    _, written = answered(head)

    assert written.startswith(b"HTTP/1.1 %d " % status)


def test_http_1_0_knows_no_leave_to_go_on() -> None:
    sent = b"POST /a HTTP/%b\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nhi"

    assert b"100 Continue" in answered(sent % b"1.1")[1]
    assert b"100 Continue" not in answered(sent % b"1.0")[1]


@pytest.mark.parametrize("filler", [b"1;" + b"x" * 1000 + b"\r\na\r\n", b"0\r\n" + b"x: " + b"y" * 1_000_000, b""])
def test_what_stands_around_chunks_is_bounded(filler: bytes) -> None:
    server = HttpServer(lambda _: None)
    connection, sink = server.connection(), Sink()
    connection.connection_made(sink)
    connection.data_received(b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    sent = filler * 1000 if filler else b"0\r\n" + b"a: b\r\n" * 100_000
    for at in range(0, len(sent), 4096):
        if sink.closed:
            break
        connection.data_received(sent[at : at + 4096])

    assert b"".join(sink.written).startswith(b"HTTP/1.1 400 ")
    assert at < 100_000
    connection.connection_lost(None)


def test_chunks_of_one_byte_are_taken() -> None:
    seen, _ = answered(b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
                       + b"00000001\r\na\r\n" * 20_000 + b"0\r\n\r\n")  # fmt: skip

    assert seen[0].body == b"a" * 20_000


@asynccontextmanager
async def listening(
    limits: HttpLimits,
) -> AsyncIterator[tuple[HttpServer, list[HttpExchange], Callable[..., Any]]]:
    """A server, the requests that it holds unanswered, and what opens a connection and writes a request."""
    held: list[HttpExchange] = []
    writers: list[asyncio.StreamWriter] = []
    server = HttpServer(held.append, limits=limits)
    server.start()
    bound = await asyncio.get_running_loop().create_server(server.connection, "127.0.0.1", 0)

    async def post(length: int, sent: int) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(*bound.sockets[0].getsockname())
        writer.write(b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % length + b"x" * sent)
        writers.append(writer)
        return reader

    yield server, held, post
    for writer in writers:
        writer.close()
    bound.close()
    await server.close()


async def test_a_large_body_waits_for_its_turn_and_small_ones_do_not() -> None:
    async with listening(HttpLimits(bodies_bytes=1_000_000)) as (server, held, post):
        replies = [await post(size, size) for size in (600_000, 600_000, 600_000, 60_000)]

        async def come(count: int) -> bool:
            return len(held) == count

        await until(lambda: come(2))
        for count in (2, 1, 1):
            await until(lambda count=count: come(count))
            assert sum(len(exchange.body) for exchange in held) <= server.budget.held <= 1_000_000
            while held:
                held.pop().reply(200, b"text/plain", b"ok")
        for reader in replies:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert server.budget.take(1_000_000, is_here=False) is not None


async def test_who_waits_too_long_for_his_bodys_turn_is_told_to_come_again() -> None:
    limits = HttpLimits(bodies_bytes=1_000_000, slow_s=0.1, sweep_s=0.02)
    async with listening(limits) as (_, held, post):
        await post(600_000, 600_000)
        await until(lambda: bool(held))
        head = await (await post(600_000, 1000)).readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in head


def test_bytes_of_unknown_length_beyond_the_budget_are_refused() -> None:
    server = HttpServer(lambda _: None, limits=HttpLimits(bodies_bytes=100_000))
    connections = [server.connection() for _ in range(2)]
    sinks = [Sink() for _ in connections]
    for connection, sink in zip(connections, sinks, strict=True):
        connection.connection_made(sink)
        connection.data_received(b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        connection.data_received(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")

    assert sinks[0].written == []
    assert sinks[1].written[0].startswith(b"HTTP/1.1 503 ")
    for connection in connections:
        connection.connection_lost(None)
    assert server.budget.take(100_000, is_here=False) is not None


def test_large_pipelined_bodies_are_read_one_after_another() -> None:
    held: list[HttpExchange] = []
    server = HttpServer(held.append)
    connection, sink = server.connection(), Sink()
    connection.connection_made(sink)
    request = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\n\r\n" + b"x" * 3_000_000
    sent, at = request * 16, 0
    for _ in range(16):
        while sink.reads and at < len(sent):
            connection.data_received(sent[at : at + 65536])
            at += 65536
        assert server.budget.has_room(0, 3 * 3_000_000)
        held.pop().reply(200, b"text/plain", b"ok")

    assert b"".join(sink.written).count(b" 200 OK") == 16
    connection.connection_lost(None)


@pytest.mark.parametrize("framing", [b"content-length: 3000000", b"transfer-encoding: chunked"])
async def test_the_body_of_a_request_without_a_token_is_not_read(framing: bytes) -> None:
    async with live(token="secret") as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"POST %b HTTP/1.1\r\nhost: x\r\n%b\r\n\r\n" % (INFER.encode(), framing))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 401 ")
        assert b"connection: close" in head
        assert b"x-mark-request-id: " in head
        writer.close()


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer"])
async def test_the_scheme_of_a_token_is_written_in_any_case(scheme: str) -> None:
    async with live(token="secret") as running:
        assert (await running.ask("/v2", None, "GET", authorization=f"{scheme} secret")).status == 200
        assert (await running.ask("/v2", None, "GET", authorization=f"{scheme}secret")).status == 401
        assert (await running.ask("/v2", None, "GET", authorization=f"{scheme} Secret")).status == 401


async def test_a_gateway_for_this_machine_only_answers_to_no_other_name() -> None:
    async with live(agents=0, local_only=True) as running:
        for host, status in ((b"localhost:8080", 200), (b"127.0.0.1", 200), (b"evil.example", 421)):
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(b"GET /v2 HTTP/1.1\r\nhost: %b\r\n\r\n" % host)
            assert (await reader.readline()).startswith(b"HTTP/1.1 %d " % status)
            writer.close()
