"""What hostile or broken clients get from a gateway, and that nobody else notices."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mark.serving.http import connection as http_connection
from mark.serving.http.exchange import HttpExchange
from mark.serving.http.head_cache import Head
from mark.serving.http.http_server import HttpServer
from mark.serving.http.limits import HttpLimits
from tests.serving.harness import BODY, INFER, Client, Live, live, until
from tests.waiting import PATIENCE_S

HEAD = b"POST %b HTTP/1.1\r\nhost: x\r\n" % INFER.encode()


async def raw(running: Live, data: bytes) -> tuple[bytes, bool]:
    """What comes back, and whether the connection was closed."""
    client = await running.client()
    client.writer.write(data)
    got = b""
    closed = False
    with suppress(TimeoutError, ConnectionResetError):
        while chunk := await asyncio.wait_for(client.reader.read(65536), PATIENCE_S):
            got += chunk
        closed = True
    await client.close()
    return got, closed


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello", 400),
        (HEAD + b"content-length: 5\r\ncontent-length: 5\r\n\r\nhello", 400),
        (HEAD + b"content-length: +5\r\n\r\nhello", 400),
        (HEAD + b"content-length : 5\r\n\r\nhello", 400),
        (HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (HEAD + b"transfer-encoding: xchunked\r\n\r\n", 501),
        (HEAD + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"content-type: a\r\ncontent-type: b\r\ncontent-length: 0\r\n\r\n", 400),
        (HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (HEAD + b"transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"host: y\r\ncontent-length: 0\r\n\r\n", 400),
        pytest.param(HEAD + b"x: a\x00b\r\n\r\n", 400, id="NUL in a field"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, id="TLS hello"),
        (b"CONNECT other:443 HTTP/1.1\r\nhost: other\r\n\r\n", 400),
        (HEAD + b"x: " + b"y" * 40_000 + b"\r\n\r\n", 431),
        (HEAD + b"x: " + b"y" * 40_000, 431),
        (b"GET /" + b"y" * 40_000 + b" HTTP/1.1\r\n\r\n", 431),
        (HEAD + b"".join(b"x%d: y\r\n" % n for n in range(200)) + b"\r\n", 431),
        (HEAD + b"content-length: 200000\r\n\r\n" + b"x" * 200_000, 413),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"4000\r\n" + b"x" * 0x4000 + b"\r\n4000\r\n", 413),
    ],
)
async def test_what_is_malformed_smuggled_or_oversize_is_refused_and_closed(data: bytes, status: int) -> None:
    async with live(limits=HttpLimits(body_bytes=20_000)) as running:
        got, closed = await raw(running, data + b"x" * 0x4000 if b"chunked\r\n\r\n4000" in data else data)

        assert got.startswith(b"HTTP/1.1 %d " % status)
        assert got.count(b"HTTP/1.1") == 1
        assert closed
        assert (await running.ask()).status == 200


async def test_a_length_beyond_the_limit_is_refused_before_the_body_comes() -> None:
    async with live(limits=HttpLimits(body_bytes=1000)) as running:
        got, closed = await raw(running, HEAD + b"expect: 100-continue\r\ncontent-length: 1001\r\n\r\n")

        assert got.startswith(b"HTTP/1.1 413 ")
        assert closed


async def test_slow_heads_and_bodies_are_given_up_while_others_are_served() -> None:
    async with live(limits=HttpLimits(slow_s=0.15, sweep_s=0.05)) as running:
        slow = asyncio.ensure_future(raw(running, HEAD + b"content-length: 5\r\n\r\nhe"))
        head = asyncio.ensure_future(raw(running, HEAD))
        assert (await running.ask()).status == 200
        for got, closed in await asyncio.gather(slow, head):
            assert got.startswith(b"HTTP/1.1 408 ")
            assert closed


async def test_a_connection_that_says_nothing_is_closed_in_the_end() -> None:
    async with live(limits=HttpLimits(idle_s=0.1, sweep_s=0.05)) as running:
        assert await raw(running, b"") == (b"", True)


@pytest.mark.parametrize("behind", [b"", b"POST /v2 HT", b"nonsense\r\n\r\n"])
@pytest.mark.parametrize("count", [1, 3])
async def test_a_client_that_sends_no_more_gets_its_answers(count: int, behind: bytes) -> None:
    async with live(takes_s=0.01, limits=HttpLimits(leave_s=0.1, sweep_s=0.05)) as running:
        client = await running.client()
        for _ in range(count):
            client.send()
        client.writer.write(behind)
        client.writer.write_eof()
        for _ in range(count):
            assert (await client.read()).status == 200
        if behind.startswith(b"nonsense"):
            assert (await client.read()).status == 400
        assert await client.is_closed()
        await client.close()


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"content-length: 5\r\n\r\nhe"])
async def test_a_client_that_sends_no_more_before_its_request_is_whole_is_let_go(sent: bytes) -> None:
    async with live() as running:
        client = await running.client()
        client.writer.write(sent)
        client.writer.write_eof()
        assert await client.is_closed()
        await client.close()


async def test_each_answer_has_the_date() -> None:
    async with live() as running:
        began = int(time.time())
        for path, method in ((INFER, "POST"), ("/nope", "POST"), ("/v2/health/live", "HEAD"), (INFER, "PUT")):
            reply = await running.ask(path, method=method)
            at = parsedate_to_datetime(reply.headers["date"])
            assert began <= at.timestamp() <= time.time()
            assert reply.headers["date"].endswith(" GMT")


async def test_white_space_around_a_value_is_not_part_of_it() -> None:
    async with live() as running:
        assert (await running.ask(x_mark_deadline_ms=" 500 \t")).status == 200


@pytest.mark.parametrize("host", ["http://gateway.example:8080", "https://x"])
async def test_a_target_may_name_the_host_as_for_a_proxy(host: str) -> None:
    async with live() as running:
        assert (await running.ask(host + INFER)).status == 200
        assert (await running.ask(host, None, "GET")).status == 404


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [(INFER, "GET", "POST"), ("/v2", "POST", "GET, HEAD"), ("/ping", "PUT", "GET, HEAD")],
)
async def test_a_method_that_is_not_allowed_is_answered_with_those_that_are(
    path: str, method: str, allowed: str
) -> None:
    async with live() as running:
        for port in (running.port, running.agents["i-0"].http_port):
            client = Client(*await asyncio.open_connection("127.0.0.1", port))
            reply = await client.ask(path, method=method)
            assert (reply.status, reply.headers["allow"]) == (405, allowed)
            await client.close()


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with live(takes_s=0.01) as running:
        client = await running.client()
        for number in range(5):
            client.send(x_mark_request_id=f"r{number}")
        client.send("/v2/health/live", None, "GET")
        replies = [await client.read() for _ in range(6)]
        await client.close()

        assert [reply.headers.get("x-mark-request-id") for reply in replies[:5]] == [f"r{n}" for n in range(5)]
        assert replies[5].document == {"live": True}


async def test_pipelined_requests_beyond_the_bound_wait_until_others_are_answered() -> None:
    async with live(takes_s=0.001, limits=HttpLimits(pipelined=3)) as running:
        client = await running.client()
        for number in range(50):
            client.send(x_mark_request_id=f"r{number}")
        replies = [await client.read() for _ in range(50)]
        await client.close()

        assert [reply.headers["x-mark-request-id"] for reply in replies] == [f"r{n}" for n in range(50)]


def test_a_connection_is_read_no_further_while_enough_of_its_requests_wait() -> None:
    seen: list[HttpExchange] = []
    connection, sink = HttpServer(seen.append).connection(), Sink()
    connection.connection_made(sink)
    request = b"GET /%06d HTTP/1.1\r\nhost: x\r\n\r\n"
    connection.data_received(b"".join(request % number for number in range(5000)))
    assert not sink.reads
    assert len(connection._pending) < 64 + 4096 / len(request)

    for number in range(5000):
        assert seen[number].target == b"/%06d" % number
        seen[number].reply(200, b"text/plain", b"ok")
    assert sink.reads
    assert b"".join(sink.written).count(b" 200 OK") == 5000
    connection.connection_lost(None)


async def test_what_follows_a_malformed_request_is_not_read() -> None:
    async with live() as running:
        data = HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
        got, _ = await raw(running, data + b"GET /v2 HTTP/1.1\r\n\r\n")

        assert got.count(b"HTTP/1.1") == 1


async def test_a_client_that_waits_for_leave_gets_it() -> None:
    async with live() as running:
        client = await running.client()
        client.writer.write(HEAD + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(BODY))
        assert (await client.read()).status == 100
        client.writer.write(BODY)
        assert (await client.read()).status == 200
        await client.close()


async def test_chunks_one_byte_at_a_time() -> None:
    async with live() as running:
        client = await running.client()
        data = HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
        for place in range(len(data)):
            client.writer.write(data[place : place + 1])
            if place % 20 == 0:
                await asyncio.sleep(0)
        assert (await client.read()).status == 200
        await client.close()


async def test_clients_that_hang_up_in_mid_reply_harm_nobody() -> None:
    async with live(takes_s=0.02) as running:
        big = b'{"inputs":[{"name":"x","datatype":"INT8","shape":[200000],"data":[' + b"1," * 199_999 + b"1]}]}"
        steady, backend = await running.client(), running.agents["i-0"].backend
        for _ in range(2):
            begun = len(backend.batches)
            clients = [await running.client() for _ in range(4)]
            for client in clients:
                client.send(body=big)
            steady.send()
            await until(lambda begun=begun: len(backend.batches) > begun)
            for client in clients:
                client.writer.transport.abort()
            assert (await steady.read()).status == 200
        await steady.close()


async def test_http_1_0_is_answered_and_closed() -> None:
    async with live() as running:
        got, closed = await raw(running, b"GET /v2/health/live HTTP/1.0\r\n\r\n")

        assert got.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in got
        assert closed


@pytest.mark.parametrize("way", ["a body that comes slowly", "an answer that goes out slowly"])
def test_idle_time_before_a_request_is_not_held_against_it(way: str) -> None:
    seen: list[HttpExchange] = []
    connection, sink = HttpServer(seen.append, limits=HttpLimits(slow_s=20, idle_s=75)).connection(), Sink()
    connection.connection_made(sink)
    for _ in range(30):
        connection.check_timeouts(1.0)
    data = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"
    if way.startswith("a body"):
        connection.data_received(data[:-1])
        connection.check_timeouts(1.0)
        connection.data_received(data[-1:])
    else:
        connection.data_received(data)
        for _ in range(30):  # the model thinks
            connection.check_timeouts(1.0)
        connection.pause_writing()
        connection.check_timeouts(1.0)
    assert not sink.closed
    seen[0].reply(200, b"text/plain", b"ok")

    assert b"".join(sink.written).startswith(b"HTTP/1.1 200 ")
    connection.connection_lost(None)


def test_a_head_that_follows_a_large_body_in_one_chunk_is_not_large() -> None:
    seen: list[HttpExchange] = []
    connection = HttpServer(seen.append, limits=HttpLimits(head_bytes=200)).connection()
    connection.connection_made(Sink())
    data = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n" + b"x" * 1000
    connection.data_received(data + data[:20])
    connection.data_received(data[20:])
    for exchange in seen:
        exchange.reply(200, b"text/plain", b"ok")

    assert [len(exchange.body) for exchange in seen] == [1000, 1000]
    connection.connection_lost(None)


class Sink(asyncio.Transport):
    """A transport that remembers; writing after the close raises, as uvloop's does."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False
        self.reads = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed, "written after the close"
        self.written.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    abort = write_eof = close

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True

    def can_write_eof(self) -> bool:
        return True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class Whoever:
    """A streamed answer that nobody tells anything."""

    def on_writable(self) -> None:
        pass

    on_left = on_writable


async def test_a_client_that_sends_no_more_is_asked_nothing_in_the_middle_of_a_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its request may have begun to stream only after it sent its last byte: behind others, or once decoded."""
    monkeypatch.setattr(http_connection, "PROBE_S", 0.0)

    seen: list[HttpExchange] = []
    made, sink = HttpServer(seen.append).connection(), Sink()
    made.connection_made(sink)
    made.data_received(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
    assert made.eof_received()
    await until(lambda: b"100 Continue" in b"".join(sink.written))
    seen[0].stream = Whoever()
    made.begin(seen[0], 200, b"text/plain", b"")
    made.write_part(b"one")
    began = b"".join(sink.written)
    for _ in range(10):
        await asyncio.sleep(0)
    assert b"".join(sink.written) == began
    made.finish(seen[0])
    assert sink.closed


messages = st.sampled_from(
    [
        b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /b HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc",
        b"POST /c HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"POST /d HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
        b"GET /e HTTP/1.0\r\n\r\n",
        b"GET /g HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        b"HEAD /f HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\r\n",
    ]
)


@given(st.lists(messages | st.binary(max_size=30), max_size=6), st.lists(st.integers(0, 400), max_size=8))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_whatever_comes_each_request_is_answered_once_and_nothing_is_written_late(
    parts: list[bytes], cuts: list[int]
) -> None:
    seen: list[HttpExchange] = []
    server = HttpServer(seen.append, limits=HttpLimits(head_bytes=200, body_bytes=50))
    connection, sink = server.connection(), Sink()
    connection.connection_made(sink)
    data = b"".join(parts)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    answered = 0
    for start, stop in itertools.pairwise(edges):
        connection.data_received(data[start:stop])
        while answered < len(seen):
            seen[answered].reply(200, b"text/plain", b"ok")
            seen[answered].reply(200, b"text/plain", b"twice")
            answered += 1
    text = b"".join(sink.written)

    assert text.count(b" 200 OK") == answered
    assert b"twice" not in text
    connection.connection_lost(None)


heads = st.sampled_from(
    [
        b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n",
        b"POST /a HTTP/1.1\r\nhost: x\r\nx-mark-variant: v\r\ncontent-length: %d\r\n\r\n",
        b"\r\nPOST /b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n",
        b"POST /d HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\nconnection: upgrade\r\ncontent-length: %d\r\n\r\n",
        b"POST /a HTTP/1.1\r\nhost: x\r\nX-Mark-Request-Id: r1\r\nContent-Length: %d\r\n\r\n",
        b"POST /a HTTP/1.1\r\nhost: x\r\nX-Mark-Request-Id: another\r\nContent-Length: %d\r\n\r\n",
        b"POST /a HTTP/1.1\r\nhost: x\r\nX-Mark-Request-Id: with a blank\r\nContent-Length: %d\r\n\r\n",
        b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length:%d\r\ntraceparent: 00-1\r\nx-mark-request-id: r1 \r\n\r\n",
        b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length:%d\r\ntraceparent: 00-2\r\nx-mark-request-id: r3 \r\n\r\n",
    ]
)
bodies = st.sampled_from([b"", b"x", b"POST", b"\r\n\r\n", b"y" * 40]) | st.binary(max_size=8)
whole = st.tuples(heads, bodies).map(lambda pair: (pair[0] % len(pair[1]) + pair[1], pair[1])) | bodies.map(
    lambda body: (b"POST /c HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(body), body)
)


def chunked(body: bytes) -> bytes:
    return (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"


@given(st.lists(whole, max_size=8), st.lists(st.integers(0, 900), max_size=6), st.booleans())
def test_heads_that_come_again_are_read_as_the_parser_reads_them(
    sent: list[tuple[bytes, bytes]], cuts: list[int], in_pieces: bool
) -> None:
    seen: list[HttpExchange] = []

    def answer(exchange: HttpExchange) -> None:
        seen.append(exchange)
        exchange.reply(200, b"text/plain", b"ok")

    server = HttpServer(answer)
    connection = server.connection()
    connection.connection_made(Sink())
    data = b"".join(text for text, _ in sent)
    ends = list(itertools.accumulate((len(text) for text, _ in sent), initial=0))
    edges = sorted({*ends, *(cut % (len(data) + 1) for cut in cuts)}) if in_pieces else ends
    for start, stop in itertools.pairwise(edges):
        if stop > start:
            connection.data_received(data[start:stop])

    assert [exchange.body for exchange in seen] == [body for _, body in sent]
    assert [exchange.target for exchange in seen] == [text.split()[1] for text, _ in sent]
    assert [exchange.headers.get("x-mark-variant") for exchange in seen] == [
        b"v" if b"variant" in text.partition(b"content-length")[0] else None for text, _ in sent
    ]
    for name in ("x-mark-request-id", "traceparent", "content-length"):
        assert [exchange.headers.get(name) for exchange in seen] == [header(text, name) for text, _ in sent]
    connection.connection_lost(None)


def header(text: bytes, name: str) -> bytes | None:
    """What a reader in no hurry finds."""
    for line in text.partition(b"\r\n\r\n")[0].split(b"\r\n"):
        if line.lower().startswith(name.encode() + b":"):
            return line.partition(b":")[2].strip(b" \t")
    return None


@pytest.mark.parametrize(
    ("value", "known"),
    [(b"id-2", True), (b"7", True), (b"with blank", False), (b"", False), (b"a\tb", False), (b"x" * 128, False)],
)
def test_a_head_is_known_again_whatever_its_id_and_length_unless_they_are_odd(value: bytes, known: bool) -> None:
    def sent(request_id: bytes, body: bytes) -> bytes:
        return b"POST /a HTTP/1.1\r\nhost: x\r\nx-mark-request-id: %b\r\nContent-Length: %d\r\n\r\n%b" % (
            request_id, len(body), body
        )  # fmt: skip

    headers = {"x-mark-request-id": b"id-1", "content-length": b"2"}
    raw = sent(b"id-1", b"ab").removesuffix(b"ab")
    head = Head(raw, HttpExchange(None, b"POST", b"/a", headers, b"ab", True))

    assert head.match(sent(b"id-1", b"cd")) == (headers, b"cd")
    found = head.match(sent(value, b"other"))
    assert found == (({"x-mark-request-id": value, "content-length": b"5"}, b"other") if known else None)
    for data in (sent(value, b"xy") + b"more", sent(value, b"xyz")[:-1], sent(value, b"xy").replace(b"2", b"+2")):
        assert head.match(data) is None
    assert headers == {"x-mark-request-id": b"id-1", "content-length": b"2"}
