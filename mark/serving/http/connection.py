"""One client's connection: an asyncio protocol around httptools' parser.

No task and no future per request: a connection collects a request, hands it to the handler, and writes the answer
when it comes. Pipelined requests are answered one after the other. The parser refuses whatever could be read in
two ways (Content-Length with Transfer-Encoding, two lengths, bad chunks); limits bound what a client may make us
hold; one sweep over all connections, not a timer each, finds those that are slow. uvloop's transports raise when
they are written to after they closed, so a connection that is closing never writes.

Reading stops while enough requests wait here (`_is_full`), while a body waits for its share of the server's
budget (`_awaits`), and while the client does not read its answers (`_paused`). What has been read and not parsed
then is in `_rest`. What becomes of the bytes that a client sends is its `State`; TRANSITIONS lists all changes.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections import deque
from contextlib import suppress
from email.utils import formatdate
from enum import Enum
from http import HTTPStatus
from time import time
from typing import Any, Protocol, cast

import httptools

from mark.serving.http.body_budget import HELD, SMALL_BYTES, UNCOUNTED_BYTES, BodyBudget, BodyLease
from mark.serving.http.exchange import HttpExchange
from mark.serving.http.head_cache import MAX_VALUE_BYTES, VARYING, Head
from mark.serving.http.headers import CANONICAL_NAMES, LIST_HEADERS
from mark.serving.http.limits import Admits, Handler, HttpLimits, OnError
from mark.serving.unexpected_errors import INTERNAL_ERROR, UnexpectedErrors

_STATUS = {status.value: f"{status.value} {status.phrase}".encode() for status in HTTPStatus}
_WITHOUT_LENGTH = (204, 304)
"""Statuses whose answers have no body, and so no Content-Length (RFC 9110, 8.6)."""
_CLOSE = b"connection: close\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_RETRY = b"retry-after: 1\r\n"
_HOST = re.compile(rb"[\w.~!$&'()*+,;=%:\[\]-]*", re.ASCII)
"""A valid Host header (RFC 3986: host and port)."""
SLICE_BYTES = 4096
"""So much is parsed at a time where a read holds more requests than may wait."""
WAITING_BYTES = 256 * 1024
"""Bodies of requests that wait on one connection, before it is read no further."""
CHUNK_HEAD_BYTES = 16
"""Framing bytes of a chunk; extensions and trailers of all chunks may take head_bytes more."""
STREAM_BUFFER_BYTES = 16 * 1024
"""Bytes of a streamed answer that wait here for the client; beyond it the stream's source is held back."""
PROBE_S, LONGEST_PROBE_S = 0.2, 5.0
"""Time until a client that sends no more is asked whether it waits; it doubles each time, up to the other."""
LINGER_S = 2.0
"""Time that a refused client may go on sending before its connection is reset."""


class State(Enum):
    """Place in the stream of requests, and with it what becomes of the bytes that come."""

    IDLE = "between two requests"
    HEAD = "in a request's head"
    BODY = "behind a head that is sound"
    DEAF = "dropped: a request was refused before its end, and its answer closes"
    LINGERING = "dropped: all is answered, our side is closed"
    CLOSED = "none come"


IDLE, HEAD, BODY, DEAF, LINGERING, CLOSED = State
TRANSITIONS = {
    IDLE: {HEAD, DEAF, CLOSED},
    HEAD: {BODY, DEAF, CLOSED},
    BODY: {IDLE, DEAF, CLOSED},
    DEAF: {LINGERING, CLOSED},
    LINGERING: {CLOSED},
    CLOSED: frozenset[State](),
}


@functools.lru_cache(maxsize=256)
def _first_lines(status: int, content_type: bytes, second: int) -> bytes:
    """The status line, and the headers of each answer in that second: Date is demanded of one that has a clock."""
    line = _STATUS.get(status) or b"%d Unknown" % status
    date = formatdate(second, usegmt=True).encode()
    return b"HTTP/1.1 %b\r\ndate: %b\r\ncontent-type: %b\r\n" % (line, date, content_type)


class ServerRoom(Protocol):
    """The server of a connection: it owns the limits, the handler and the set of connections."""

    handler: Handler
    on_error: OnError
    admits: Admits
    limits: HttpLimits
    budget: BodyBudget
    unexpected: UnexpectedErrors
    connections: set[HttpConnection]
    refused: int
    is_leaving: bool
    make: type[HttpExchange]


class HttpConnection(asyncio.Protocol):
    """One client. At most one of its requests is with the handler; those behind it wait in `_pending`."""

    __slots__ = (
        "_awaited_s", "_awaits", "_body", "_body_bytes", "_chunked", "_current",
        "_dispatching", "_finished", "_frame_bytes", "_halted", "_head", "_head_bytes", "_headers",
        "_idle_s", "_known", "_lease", "_offered", "_parser", "_parts", "_paused",
        "_pending", "_pending_bytes", "_reading", "_refusal", "_replayed", "_rest", "_seen",
        "_server", "_state", "_taking", "_target", "_transport",
    )  # fmt: skip

    def __init__(self, server: ServerRoom) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpRequestParser(self)
        self._pending: deque[HttpExchange] = deque()
        self._current: HttpExchange | None = None
        self._state = IDLE
        self._dispatching = self._paused = self._halted = self._taking = False
        self._chunked = self._offered = self._replayed = False
        self._reading = True
        self._refusal: tuple[int, str] | None = None
        self._head: Head[Any] | None = None
        self._target = self._rest = b""
        self._known: dict[str, bytes] = {}
        self._body: bytes | bytearray = b""
        self._lease: BodyLease | None = None
        self._awaits = self._headers = self._head_bytes = self._pending_bytes = 0
        self._body_bytes = self._frame_bytes = self._parts = self._finished = self._seen = 0
        self._idle_s = self._awaited_s = 0.0

    def _enter(self, state: State) -> None:
        assert state in TRANSITIONS[self._state], f"no way from {self._state} to {state}"
        self._state = state

    @property
    def _is_closing(self) -> bool:
        return self._state is LINGERING or self._state is CLOSED

    def _takes(self) -> bool:
        """True while what comes is parsed."""
        return self._state is IDLE or self._state is HEAD or self._state is BODY

    @property
    def is_busy(self) -> bool:
        """True while a request is with the handler."""
        return self._current is not None

    @property
    def _has_nothing_behind(self) -> bool:
        """True where no request, nor a part of one, has come after the one that is with the handler."""
        return self._state is IDLE and not self._pending and not self._rest

    def close_if_idle(self) -> None:
        """Close it where no request of it waits for an answer, nor is on its way in."""
        if self._current is None and self._has_nothing_behind:
            self._close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        transport = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it
        self._transport = transport
        self._server.connections.add(self)
        if len(self._server.connections) > self._server.limits.connections:
            self._finally(503, "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Called by the loop: whatever is answered from now on goes nowhere."""
        self._forget()
        self._transport = None
        self._parser = None  # it holds us: a cycle would wait for the collector
        self._server.connections.discard(self)

    def pause_writing(self) -> None:
        """Called by the loop: the client does not read, so neither do we."""
        self._paused = True
        self._idle_s = 0.0
        self._steer()

    def resume_writing(self) -> None:
        """Called by the loop."""
        self._paused = False
        self._steer()
        if self._current is not None and self._current.stream is not None:
            self._current.stream.on_writable()

    def eof_received(self) -> bool:
        """Called by the loop: the client sends no more, but may wait for its answers; the last one closes.

        One that waits for a stream has left: nothing else tells it before a write fails, and a model works for it.
        """
        if self._current is not None and self._current.stream is not None:
            return False
        last = self._pending[-1] if self._pending else self._current
        if last is None or self._is_closing or self._transport is None or not self._transport.can_write_eof():
            return False  # TLS knows no half-closed connections
        if self._refusal is None:  # else what was wrong behind it is told, and that closes
            last.keep_alive = False
        self._probe_later(PROBE_S)
        return True

    def _probe_later(self, after_s: float) -> None:
        asyncio.get_running_loop().call_later(after_s, self._probe, min(2 * after_s, LONGEST_PROBE_S))

    def _probe(self, next_s: float) -> None:
        """Find out whether a client that sends no more waits for its answer, or has gone: both look alike.

        One that waits ignores an interim response (RFC 9110, 15.2). One that has gone resets the connection, on
        which the next probe is lost. A stream needs none, as its parts are written; nothing may stand among them.
        """
        if self._current is None or self._is_closing or self._transport is None:
            return
        if self.can_stream:
            if self._current.stream is None:
                self._transport.write(_CONTINUE)
            self._probe_later(next_s)

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        head = self._head
        known = None if head is None or self._state is not IDLE or self._halted else head.match(data)
        if head is None or known is None or len(known[1]) > self._server.limits.body_bytes:
            self._take(data)
            return
        exchange = self._server.make(self, head.method, head.target, *known, True, head)
        if len(known[1]) > UNCOUNTED_BYTES:
            lease = self._server.budget.take(len(known[1]), is_here=True)
            if lease is None:
                self._take(data)
                return
            exchange.lease = lease
        self._finished += 1
        if self._current is None and not self._pending:
            self._current = exchange
            try:
                self._server.handler(exchange)
            except Exception as error:  # noqa: BLE001 - the driver of one request: it gets its answer
                self._server.on_error(exchange, error)
        else:
            self._append(exchange)
            self._steer()

    def _take(self, data: bytes) -> None:
        """Parse what came; where that would be more requests than may wait, as many as may."""
        if not self._takes():
            return
        if self._rest:
            self._rest += data
            return
        room = self._server.limits.pipelined - len(self._pending)
        step = SLICE_BYTES if data.count(b" HTTP/1") > room else len(data) or 1
        self._taking = True
        try:
            for at in range(0, len(data), step):
                if self._is_full():
                    self._rest = data[at:] if at else data
                    break
                self._parse(data[at : at + step] if step < len(data) else data)
                if not self._takes():
                    return
        finally:
            self._taking = False
        self._steer()

    def _is_full(self) -> bool:
        limits = self._server.limits
        return len(self._pending) >= limits.pipelined or self._pending_bytes > WAITING_BYTES

    def _parse(self, data: bytes) -> None:
        before, finished, had = self._state, self._finished, self._body_bytes
        try:
            self._feed(data)
        except httptools.HttpParserCallbackError as error:  # one of ours raised: it is not the client's fault
            self._server.unexpected.note(error.__context__ or error)
            self._refuse(500, INTERNAL_ERROR)
        except httptools.HttpParserError as error:
            self._refuse(400, f"malformed HTTP: {error}")
        if self._finished == finished:  # else part of it belongs to the request before
            if self._state is HEAD:
                self._head_bytes += len(data)
                if self._head_bytes > self._server.limits.head_bytes:
                    self._refuse(431, "headers too large")
            elif self._state is before is BODY and self._chunked:
                self._frame_bytes += len(data) - (self._body_bytes - had)
                if self._frame_bytes > self._server.limits.head_bytes + CHUNK_HEAD_BYTES * self._parts:
                    self._refuse(400, "chunk extensions or trailers are too large")
        if self._state is before is IDLE and self._finished == finished + 1:
            self._learn(data, self._pending[-1])
        self._next()

    def _feed(self, data: bytes) -> None:
        """Parse; an offer to speak another protocol is ignored, as RFC 9110 (7.8) lets a server do.

        The parser takes the head of such a request for all of it: what is behind goes to a new parser, which is
        told the method and the length and nothing of the offer.
        """
        while data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                data = data[offer.args[0] :]
            else:
                return
            if self._state is DEAF:
                return
            self._offered, self._replayed = False, True
            before, self._parser = self._parser, httptools.HttpRequestParser(self)
            self._parser.feed_data(
                b"%b / HTTP/%b\r\nhost: x\r\nconnection: %b\r\n%b\r\n"
                % (
                    before.get_method(),
                    before.get_http_version().encode(),
                    b"keep-alive" if before.should_keep_alive() else b"close",
                    b"".join(
                        b"%b: %b\r\n" % (name.encode(), self._known[name])
                        for name in ("content-length", "transfer-encoding")
                        if name in self._known
                    ),
                )
            )

    def forget_head(self) -> None:
        """Have the head of the next request parsed, and those of what waits, though they were sent before."""
        self._head = None
        for exchange in self._pending:
            exchange.head = None

    def _learn(self, data: bytes, exchange: HttpExchange) -> None:
        """The chunk was one request, no more and no less: remember its head."""
        cut = len(data) - len(exchange.body)
        raw = data[:cut]
        if not exchange.keep_alive or "expect" in exchange.headers or not raw.endswith(b"\r\n\r\n"):
            return
        if data[cut:] != exchange.body or len(exchange.body) != int(exchange.headers.get("content-length", b"0")):
            return
        if len(raw) + len(VARYING) * MAX_VALUE_BYTES <= self._server.limits.head_bytes:
            with suppress(ValueError):
                self._head = exchange.head = Head(raw, exchange)

    def _append(self, exchange: HttpExchange) -> None:
        self._pending.append(exchange)
        self._pending_bytes += len(exchange.body)

    def on_message_begin(self) -> None:
        """Called by the parser, at the first byte: from now on the request must not be slow."""
        if not self._replayed and self._state is IDLE:
            self._enter(HEAD)
            self._idle_s = 0.0

    def on_url(self, url: bytes) -> None:
        """Called by the parser, with a part of it."""
        if not self._replayed:
            self._target = self._target + url if self._target else url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser; also for trailers, which are ignored."""
        if self._state is not HEAD:
            return
        self._headers += 1
        self._head_bytes += len(name) + len(value)
        known = CANONICAL_NAMES.get(name)
        if known is None:
            known = CANONICAL_NAMES.get(name.lower())
            if known is None:
                return
        value = value.rstrip(b" \t")
        if known in self._known:
            if known not in LIST_HEADERS:
                self._refuse(400, f"header {known} twice")
            value = self._known[known] + b", " + value
        self._known[known] = value

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        if self._replayed or self._state is DEAF:
            self._replayed = False
            return
        self._enter(BODY)
        parser, known = self._parser, self._known
        self._chunked = "transfer-encoding" in known
        self._offered = parser.should_upgrade()
        if not self._is_head_sound():
            return
        length = int(known.get("content-length", b"0"))
        expects = known.get("expect", b"").lower() == b"100-continue" and parser.get_http_version() != "1.0"
        if (expects or self._chunked or length > SMALL_BYTES) and not self._server.admits(self._target, known):
            self._cut()
            return
        if length > UNCOUNTED_BYTES:
            self._let_body_in(length)
        if expects and not self._awaits and self._state is BODY:
            self._go_on()

    def _is_head_sound(self) -> bool:
        """Refuse what the limits or the protocol forbid; True where there was nothing of it."""
        limits, known = self._server.limits, self._known
        if self._headers > limits.headers or self._head_bytes + len(self._target) > limits.head_bytes:
            self._refuse(431, "too many or too large headers")
        elif int(known.get("content-length", b"0")) > limits.body_bytes:
            self._refuse(413, f"the body exceeds {limits.body_bytes} bytes")
        elif self._chunked and known["transfer-encoding"].lower() != b"chunked":
            self._refuse(501, "unsupported transfer coding; use chunked")
        elif self._parser.get_method() == b"CONNECT":
            self._refuse(400, "CONNECT is not supported: this server is no proxy")
        elif "host" not in known:
            if self._parser.get_http_version() != "1.0":
                self._refuse(400, "the Host header is missing: HTTP/1.1 requires it")
        elif not _HOST.fullmatch(known["host"]):
            self._refuse(400, "the Host header is invalid")
        return self._state is BODY

    def _let_body_in(self, length: int) -> None:
        """Have the body counted; where the budget is used up, it is read when others are done."""
        budget = self._server.budget
        self._lease = budget.take(length, is_here=length <= SMALL_BYTES)
        if self._lease is not None:
            return
        if length > SMALL_BYTES and budget.queue(self, length):
            self._awaits, self._awaited_s = length, 0.0
        else:
            self._refuse(503, HELD)

    def let_in(self, lease: BodyLease) -> None:
        """Called by the budget: the body may come."""
        self._awaits, self._lease = 0, lease
        self._idle_s = 0.0
        if self._known.get("expect", b"").lower() == b"100-continue":
            self._go_on()
        self._steer()

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        if self._state is DEAF:
            return
        self._parts += 1
        self._body_bytes += len(body)
        if self._body_bytes > self._server.limits.body_bytes:
            self._refuse(413, f"the body exceeds {self._server.limits.body_bytes} bytes")
            return
        if self._chunked and not self._counts(len(body)):
            self._refuse(503, HELD)
            return
        if not self._body:
            self._body = body
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += body

    def _counts(self, more: int) -> bool:
        """Count a body of unknown length as it comes."""
        if self._lease is not None:
            return self._lease.grow(more)
        if self._body_bytes > UNCOUNTED_BYTES:
            self._lease = self._server.budget.take(self._body_bytes, is_here=True)
            return self._lease is not None
        return True

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if self._offered or self._state is DEAF:
            return
        if self._awaits:  # it came whole with its head
            self._server.budget.leave(self)
            self._lease = self._server.budget.take(self._awaits, is_here=True)
            self._awaits = 0
            if self._lease is None:
                self._refuse(503, HELD)
                return
        self._enter(IDLE)
        parser = self._parser
        body = bytes(self._body)
        exchange = self._server.make(
            self, parser.get_method(), self._target, self._known, body, parser.should_keep_alive()
        )
        if self._lease is not None:
            exchange.lease, self._lease = self._lease, None
        self._append(exchange)
        self._finished += 1
        self._target = self._body = b""
        self._known = {}
        self._headers = self._head_bytes = self._body_bytes = self._frame_bytes = self._parts = 0

    def send(self, exchange: HttpExchange, status: int, content_type: bytes, body: bytes, extra: bytes) -> None:
        """Write the answer of the exchange that is being handled, and turn to the next."""
        keep = exchange.keep_alive and not (self._server.is_leaving and self._has_nothing_behind)
        head = b"%b%b%b%b\r\n" % (
            _first_lines(status, content_type, int(time())),
            b"" if status in _WITHOUT_LENGTH else b"content-length: %d\r\n" % len(body),
            extra,
            b"" if keep else _CLOSE,
        )
        large = len(body) > SMALL_BYTES
        if exchange.method == b"HEAD":
            large = False
        elif not large:
            head += body
        exchange.connection = None  # not before: what raised until here can still be answered
        self._current = None
        transport = self._transport
        assert transport is not None
        transport.write(head)
        if large:
            transport.write(body)
        self._turn(keep=keep)

    def _turn(self, *, keep: bool) -> None:
        """Turn to the next request, or close."""
        if not keep:
            self._close()
        elif not self._dispatching and (self._pending or self._halted or self._refusal is not None):
            self._next()

    @property
    def is_writable(self) -> bool:
        """False while the client does not read what was written."""
        return not self._paused

    @property
    def can_stream(self) -> bool:
        """False for a client of HTTP/1.0, which could not tell where such a body ends."""
        return bool(self._parser.get_http_version() != "1.0")

    def begin(self, exchange: HttpExchange, status: int, content_type: bytes, extra: bytes) -> None:
        """Write the head of an answer whose body comes in parts."""
        exchange.keep_alive = exchange.keep_alive and not (self._server.is_leaving and self._has_nothing_behind)
        transport = self._transport
        assert transport is not None
        transport.set_write_buffer_limits(high=STREAM_BUFFER_BYTES)
        transport.write(
            b"%btransfer-encoding: chunked\r\n%b%b\r\n"
            % (_first_lines(status, content_type, int(time())), extra, b"" if exchange.keep_alive else _CLOSE)
        )

    def write_part(self, body: bytes) -> None:
        """Write a part of the body as a chunk; an empty one would end it."""
        if body:
            assert self._transport is not None
            self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))

    def finish(self, exchange: HttpExchange) -> None:
        """Write the end of the body, and turn to the next request."""
        exchange.connection = exchange.stream = self._current = None
        assert self._transport is not None
        self._transport.write(b"0\r\n\r\n")
        self._turn(keep=exchange.keep_alive)

    def cut(self) -> None:
        """Close without the end of the body: what was written still goes out, and the client sees what lacks."""
        current, self._current = self._current, None
        if current is not None:
            current.connection = current.stream = None
        self._close()

    def check_timeouts(self, passed_s: float) -> None:
        """Close it where it is slow or was idle for too long."""
        if self._finished != self._seen:
            self._seen, self._idle_s = self._finished, 0.0
            return
        limits = self._server.limits
        if self._awaits:
            self._awaited_s += passed_s
            if self._awaited_s > limits.slow_s:
                self._refuse(503, HELD)
                self._next()
            return
        closing = self._is_closing
        if self._halted and not self._paused and not closing:
            return  # it is we who do not read
        self._idle_s += passed_s
        if self._paused or closing:
            if self._idle_s > (LINGER_S if closing else limits.slow_s):
                self.abort()
        elif self._state is HEAD or self._state is BODY:
            if self._idle_s > limits.slow_s:
                self._refuse(408, f"the request was not complete within {limits.slow_s:g} s")
                self._next()
        elif self._current is None and self._idle_s > limits.idle_s:
            self._close()

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._forget()
        if self._state is not CLOSED:
            self._enter(CLOSED)
        if self._transport is not None:
            self._transport.abort()

    def _next(self) -> None:
        """Hand requests on until one is not answered at once; at their end say what was wrong, if anything was."""
        if self._dispatching:
            return
        self._dispatching = True
        try:
            while self._current is None and self._pending and not self._is_closing:
                exchange = self._current = self._pending.popleft()
                self._pending_bytes -= len(exchange.body)
                try:
                    self._server.handler(exchange)
                except Exception as error:  # noqa: BLE001 - as in data_received
                    self._server.on_error(exchange, error)
        finally:
            self._dispatching = False
        if self._refusal is not None and self._current is None and not self._is_closing:
            self._finally(*self._refusal)
        elif self._halted and not self._taking:
            self._read_on()

    def _read_on(self) -> None:
        """Parse what was kept, where there is room for it again."""
        if self._rest and not self._is_closing and not self._is_full():
            rest, self._rest = self._rest, b""
            self._take(rest)
        else:
            self._steer()

    def _steer(self) -> None:
        """Have the transport read, or not."""
        halted = bool(self._rest or self._awaits) or self._is_full()
        if self._halted and not halted:
            self._idle_s = 0.0
        self._halted = halted
        reads = not self._paused and (not halted or self._state is DEAF or self._state is LINGERING)
        if reads == self._reading or self._transport is None or self._state is CLOSED:
            return
        self._reading = reads
        if reads:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _refuse(self, status: int, text: str) -> None:
        """Take no more of what comes; say so when the requests before it are answered. The first reason counts."""
        if self._takes():
            self._enter(DEAF)
        self._refusal = self._refusal or (status, text)
        self._drop_body()

    def _cut(self) -> None:
        """The handler will refuse this request whatever its body says: it is answered without, and that closes."""
        exchange = self._server.make(self, self._parser.get_method(), self._target, self._known, b"", False)
        self._enter(DEAF)
        self._append(exchange)
        self._finished += 1

    def _finally(self, status: int, text: str) -> None:
        self._server.refused += 1
        extra = _RETRY if status == 503 else b""
        HttpExchange(self, b"", b"", {}, b"", False).refuse(status, text, extra)

    def _go_on(self) -> None:
        """Send 100 Continue; with answers outstanding the client will send its body without."""
        if self._current is None and not self._pending and self._transport is not None:
            self._transport.write(_CONTINUE)

    def _close(self) -> None:
        """Close; where we have not read all that was sent, only our side, or the client would lose our answer."""
        self._forget()
        self._enter(LINGERING if self._state is DEAF else CLOSED)
        self._idle_s = 0.0
        transport = self._transport
        if transport is None:
            return
        if self._state is CLOSED:
            transport.close()
            return
        self._steer()  # what still comes is read, and dropped
        if transport.can_write_eof():  # with TLS the sweep closes, after LINGER_S
            transport.write_eof()

    def _drop_body(self) -> None:
        self._body, self._rest, self._lease = b"", b"", None
        if self._awaits:
            self._awaits = 0
            self._server.budget.leave(self)

    def _forget(self) -> None:
        self._drop_body()
        current, self._current = self._current, None
        while self._pending:
            self._pending.pop().connection = None
        self._pending_bytes = 0
        if current is not None:
            current.leave()
