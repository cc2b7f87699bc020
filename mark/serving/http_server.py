"""HTTP/1.1 in front of gateway and agent: an asyncio protocol around httptools' parser.

No task and no future per request: a connection collects a request, hands it to the handler, and writes the answer
when it comes. Pipelined requests are answered one after the other. The parser refuses whatever could be read in
two ways (Content-Length with Transfer-Encoding, two lengths, bad chunks); limits bound what a client may make us
hold; one sweep over all connections, not a timer each, finds those that are slow. uvloop's transports raise when
they are written to after they closed, so a connection that is closing never writes.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

import httptools

from mark.serving.defects import DEFECT, Defects
from mark.serving.http_exchange import HttpExchange
from mark.serving.http_headers import SPELT
from mark.serving.http_heads import MAX_VALUE_BYTES, VARYING, Head

_STATUS = {status.value: f"{status.value} {status.phrase}".encode() for status in HTTPStatus}
_CLOSE = b"connection: close\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SMALL_BYTES = 64 * 1024
"""Bodies up to it are joined to their head: one buffer to write instead of two."""


@functools.lru_cache(maxsize=256)
def _first_lines(status: int, content_type: bytes) -> bytes:
    said = _STATUS.get(status) or b"%d Unknown" % status
    return b"HTTP/1.1 %b\r\ncontent-type: %b\r\n" % (said, content_type)


LINGER_S = 2.0
"""How long a client that was refused may go on sending before its connection is reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """What a client may ask for. `slow_s`: how long one request may take to come in, or an answer to go out."""

    body_bytes: int = 32 * 1024 * 1024
    head_bytes: int = 32 * 1024
    headers: int = 100
    pipelined: int = 64
    connections: int = 16_384
    slow_s: float = 20.0
    idle_s: float = 75.0
    sweep_s: float = 1.0


Handler = Callable[[Any], None]
OnDefect = Callable[[Any, Exception], None]


class HttpServer:
    """All connections of one listening port. `make` makes an HttpExchange or a subclass of it.

    on_defect: answers a request on which the handler raised, if it has no answer yet.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        make: type[HttpExchange] = HttpExchange,
        limits: HttpLimits | None = None,
        on_defect: OnDefect | None = None,
        defects: Defects | None = None,
    ) -> None:
        self.handler, self.make = handler, make or HttpExchange
        self.defects = defects or Defects(logging.getLogger("mark.http"))
        self.on_defect = on_defect or self._refuse
        self.limits = limits or HttpLimits()
        self.connections: set[HttpConnection] = set()
        self.refused = 0
        self._sweeping: asyncio.TimerHandle | None = None

    def connection(self) -> HttpConnection:
        """For `create_server`."""
        return HttpConnection(self)

    def start(self) -> None:
        """Begin to look for slow connections."""
        self._sweeping = asyncio.get_running_loop().call_later(self.limits.sweep_s, self._sweep)

    async def close(self) -> None:
        """Drop all connections, and wait until the loop has let go of them."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in tuple(self.connections):
            connection.abort()
        while self.connections:
            await asyncio.sleep(0)

    def _sweep(self) -> None:
        self.start()
        for connection in tuple(self.connections):
            try:
                connection.grow_older(self.limits.sweep_s)
            except Exception as error:  # noqa: BLE001 - the others are to be looked at all the same
                self.defects.note(error)
                connection.abort()

    def _refuse(self, exchange: HttpExchange, error: Exception) -> None:
        self.defects.note(error, target=exchange.target[:200].decode("latin-1"))
        exchange.refuse(500, DEFECT)


class HttpConnection(asyncio.Protocol):
    """One client. At most one of its requests is with the handler; those behind it wait in `_pending`."""

    __slots__ = (
        "_body", "_closing", "_current", "_dispatching", "_finished", "_head", "_head_bytes", "_headers",
        "_in_body", "_in_message", "_known", "_parser", "_paused", "_pending", "_quiet_s", "_refusal", "_seen",
        "_server", "_target", "_transport",
    )  # fmt: skip

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpRequestParser(self)
        self._pending: deque[HttpExchange] = deque()
        self._current: HttpExchange | None = None
        self._closing = self._dispatching = self._in_message = self._in_body = self._paused = False
        self._refusal: tuple[int, str] | None = None
        self._head: Head | None = None
        self._target = b""
        self._known: dict[str, bytes] = {}
        self._body: list[bytes] = []
        self._headers = self._head_bytes = 0
        self._finished = self._seen = 0
        self._quiet_s = 0.0

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
        self._quiet_s = 0.0
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Called by the loop."""
        self._paused = False
        if self._transport is not None and not self._closing:
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """Called by the loop: the client sends no more, but may wait for its answers; the last one closes."""
        last = self._pending[-1] if self._pending else self._current
        if last is None or self._closing or self._transport is None or not self._transport.can_write_eof():
            return False  # TLS knows no half-closed connections
        if self._refusal is None:  # else what was wrong behind it is told, and that closes
            last.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        if self._closing or self._refusal is not None:
            return
        head = self._head
        known = None if head is None or self._in_message else head.match(data)
        if head is None or known is None or len(known[1]) > self._server.limits.body_bytes:
            self._parse(data)
            return
        exchange = self._server.make(self, head.method, head.target, *known, True, head)
        self._finished += 1
        if self._current is None and not self._pending:
            self._current = exchange
            try:
                self._server.handler(exchange)
            except Exception as error:  # noqa: BLE001 - the driver of one request: it gets its answer
                self._server.on_defect(exchange, error)
        else:
            self._pending.append(exchange)
            self._bound_pending()

    def _parse(self, data: bytes) -> None:
        begins, finished = not self._in_message, self._finished
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._pending.pop().connection = None  # the parser takes it for complete
            self._refusal = (400, "no other protocol is spoken here")
        except httptools.HttpParserCallbackError as error:  # one of ours raised: it is not the client's fault
            self._server.defects.note(error.__context__ or error)
            self._refusal = (500, DEFECT)
        except httptools.HttpParserError as error:
            self._refusal = self._refusal or (400, f"malformed HTTP: {error}")
        if self._in_message and not self._in_body and self._finished == finished:
            self._head_bytes += len(data)  # else part of it belongs to the request before
            if self._head_bytes > self._server.limits.head_bytes:
                self._refusal = (431, "headers too large")
        if begins and not self._in_message and self._finished == finished + 1 and self._refusal is None:
            self._learn(data, self._pending[-1])
        self._bound_pending()
        self._next()

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

    def _bound_pending(self) -> None:
        if len(self._pending) > self._server.limits.pipelined:
            self._refusal = (400, "too many requests at once on one connection")
            while len(self._pending) > self._server.limits.pipelined:
                self._pending.pop().connection = None

    def on_message_begin(self) -> None:
        """Called by the parser, at the first byte: from now on the request must not be slow."""
        self._in_message = True
        self._quiet_s = 0.0

    def on_url(self, url: bytes) -> None:
        """Called by the parser, with a part of it."""
        self._target = self._target + url if self._target else url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser; also for trailers, which are ignored."""
        if self._in_body:
            return
        self._headers += 1
        self._head_bytes += len(name) + len(value)
        known = SPELT.get(name)
        if known is None:
            known = SPELT.get(name.lower())
            if known is None:
                return
        if known in self._known:
            self._refusal = self._refusal or (400, f"header {known} twice")
        self._known[known] = value.rstrip(b" \t")

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._in_body = True
        limits = self._server.limits
        if self._headers > limits.headers or self._head_bytes + len(self._target) > limits.head_bytes:
            self._refusal = self._refusal or (431, "too many or too large headers")
        if int(self._known.get("content-length", b"0")) > limits.body_bytes:
            self._refusal = self._refusal or (413, f"the body exceeds {limits.body_bytes} bytes")
        if self._known.get("transfer-encoding", b"chunked").lower() != b"chunked":
            self._refusal = self._refusal or (501, "no transfer coding is understood but chunked")
        if self._known.get("expect", b"").lower() == b"100-continue" and self._refusal is None:
            self._go_on()

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        if self._refusal is not None:
            return
        self._body.append(body)
        if len(self._body) > 1 or len(body) > self._server.limits.body_bytes:
            limit = self._server.limits.body_bytes
            self._head_bytes += len(body)  # from the second part on; the first is not forgotten below
            if self._head_bytes + len(self._body[0]) > limit:
                self._refusal = (413, f"the body exceeds {limit} bytes")
                self._body.clear()

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._in_message = self._in_body = False
        if self._refusal is not None:
            return
        parts = self._body
        body = b"" if not parts else parts[0] if len(parts) == 1 else b"".join(parts)
        parser = self._parser
        self._pending.append(
            self._server.make(
                self, parser.get_method(), self._target, self._known, body, parser.should_keep_alive()
            )
        )
        self._finished += 1
        self._target = b""
        self._known = {}
        if parts:
            self._body = []
        self._headers = self._head_bytes = 0

    def send(self, exchange: HttpExchange, status: int, content_type: bytes, body: bytes, extra: bytes) -> None:
        """Write the answer of the exchange that is being handled, and turn to the next."""
        keep = exchange.keep_alive
        head = b"%bcontent-length: %d\r\n%b%b\r\n" % (
            _first_lines(status, content_type), len(body), extra, b"" if keep else _CLOSE
        )  # fmt: skip
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
        if not keep:
            self._close(linger=self._refusal is not None)
        elif not self._dispatching and (self._pending or self._refusal is not None):
            self._next()

    def grow_older(self, passed_s: float) -> None:
        """Close it where it is slow or was idle for too long."""
        if self._finished != self._seen:
            self._seen, self._quiet_s = self._finished, 0.0
            return
        self._quiet_s += passed_s
        limits = self._server.limits
        if self._paused or self._closing:
            if self._quiet_s > (LINGER_S if self._closing else limits.slow_s):
                self.abort()
        elif self._in_message:
            if self._quiet_s > limits.slow_s:
                self._refusal = (408, f"the request did not come within {limits.slow_s:g} s")
                self._next()
        elif self._current is None and self._quiet_s > limits.idle_s:
            self._close()

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._forget()
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def _next(self) -> None:
        """Hand requests on until one is not answered at once; at their end say what was wrong, if anything was."""
        if self._dispatching:
            return
        self._dispatching = True
        try:
            while self._current is None and self._pending and not self._closing:
                exchange = self._current = self._pending.popleft()
                try:
                    self._server.handler(exchange)
                except Exception as error:  # noqa: BLE001 - as in data_received
                    self._server.on_defect(exchange, error)
        finally:
            self._dispatching = False
        if self._refusal is not None and self._current is None and not self._closing:
            self._finally(*self._refusal)

    def _finally(self, status: int, text: str) -> None:
        self._server.refused += 1
        HttpExchange(self, b"", b"", {}, b"", keep_alive=False).refuse(status, text)

    def _go_on(self) -> None:
        """The client waits for leave to send its body; with answers outstanding it will send without."""
        if self._current is None and not self._pending and self._transport is not None:
            self._transport.write(_CONTINUE)

    def _close(self, *, linger: bool = False) -> None:
        """Close; where we have not read all that was sent, only our side, or the client would lose our answer."""
        self._forget()
        self._closing = True
        self._quiet_s = 0.0
        if self._transport is None:
            return
        if linger and self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _forget(self) -> None:
        if self._current is not None:
            self._current.connection = None
            self._current = None
        while self._pending:
            self._pending.pop().connection = None
