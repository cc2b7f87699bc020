"""HTTP/1.1 clients for one server: kept-alive connections, one request at a time on each.

A `ClientConnection` hands its answer to a callback, without a task or future of its own: the load generator drives
thousands of them. `HttpClient` pools them for whoever awaits the answer: model servers beside their agent, and
peers of a gateway, so there is no proxy, no redirect and no cookie here. Each of its calls has a deadline. An
answer that is read in parts (`HttpClient.stream`) has one until its head is there; while its parts are not taken
the connection is not read. A server that is gone, or closes in mid-answer, is RetryLater; a connection that the
server had closed while it was idle is replaced once, unseen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, cast
from urllib.parse import urlsplit

import httptools

from mark.domain.errors import Misconfigured, RetryLater
from mark.serving.certificate import any_certificate, is_shown

MAX_CONNECTIONS = 32
MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""An answer beyond it is refused before it fills the instance's memory."""


HELD_BYTES = 64 * 1024
"""Bytes of an answer in parts that are held before the connection is read no further."""


class HttpAnswer(NamedTuple):
    """A whole answer. fields: its header lines as they came."""

    status: int
    fields: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """Values by name, in lower case; of a header that comes twice, the last."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.fields}

    def header(self, name: bytes) -> str:
        """The value of one header, by its name in lower case; empty where there is none."""
        return next((value.decode("latin-1") for known, value in self.fields if known.lower() == name), "")


class Lost(NamedTuple):
    """No whole answer came. why: reset, malformed, timeout or closed (by us); begun: a part of it came."""

    why: str
    text: str
    begun: bool


Done = Callable[[HttpAnswer | Lost], None]


class Parts(Protocol):
    """Receiver of an answer in parts, as they come."""

    def head(self, status: int, fields: list[tuple[bytes, bytes]]) -> None:
        """The head has come."""
        ...

    def body(self, body: bytes) -> None:
        """The next bytes have come."""
        ...


class ClientConnection(asyncio.Protocol):
    """One connection; a pool owns it. The callback of `ask` is called once, at the answer or its loss."""

    def __init__(self) -> None:
        self.is_open = False
        self._transport: asyncio.Transport | None = None
        self._done: Done | None = None
        self._parts: Parts | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._begun = self._headers_done = False
        self._fields: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._body_bytes = 0

    def ask(self, message: bytes, done: Done, parts: Parts | None = None) -> None:
        """Send a request; `done` gets its answer. parts: takes head and body before, and `done` no body."""
        assert self._transport is not None, "asked before it was connected"
        assert self._done is None, "one request at a time"
        self._done, self._parts, self._begun = done, parts, False
        self._reset()
        self._transport.write(message)

    def lose(self, why: str, text: str = "") -> None:
        """Close at once; a request under way is lost."""
        self.is_open = False
        self._finish(Lost(why, text, self._begun))
        if self._transport is not None:
            self._transport.abort()

    def read_on(self, reads: bool) -> None:
        """Read what the server sends, or leave it there."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            if reads:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        framed = any(name.lower() in {b"content-length", b"transfer-encoding"} for name, _ in self._fields)
        if self._headers_done and not framed and exc is None:
            self.is_open = False
            self._complete()  # HTTP/1.0: the end of the connection is the end of the answer
        else:
            self.lose(
                "reset",
                "closed the connection in mid-answer"
                if self._begun
                else "closed the connection without an answer",
            )

    def data_received(self, data: bytes) -> None:
        """Called by the loop. A server that speaks out of turn is not listened to."""
        if self._done is None:
            self.lose("malformed")
            return
        self._begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.lose("malformed", f"sent malformed HTTP: {error}")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._headers_done = True
        if self._parts is not None and self._parser.get_status_code() >= 200:
            self._parts.head(self._parser.get_status_code(), self._fields)

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        if self._parts is not None:
            self._parts.body(body)
            return
        self._body.append(body)
        self._body_bytes += len(body)
        if self._body_bytes > MAX_ANSWER_BYTES:
            self.lose("malformed", f"sent more than {MAX_ANSWER_BYTES >> 20} MiB")

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if self._parser.get_status_code() < 200:  # 100 Continue and its like: the answer is still to come
            self._reset()
            return
        if not self._parser.should_keep_alive():
            self.is_open = False
            if self._transport is not None:
                self._transport.close()
        self._complete()

    def _reset(self) -> None:
        self._headers_done = False
        self._fields, self._body, self._body_bytes = [], [], 0

    def _complete(self) -> None:
        self._finish(HttpAnswer(self._parser.get_status_code(), self._fields, b"".join(self._body)))

    def _finish(self, outcome: HttpAnswer | Lost) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(outcome)


class HttpStream:
    """One answer in parts, to be iterated and closed. `status` and `fields` are known once it has begun."""

    def __init__(self, url: str, connection: ClientConnection, done: Callable[[ClientConnection], None]) -> None:
        self.connection = connection
        self.status = 0
        self.fields: list[tuple[bytes, bytes]] = []
        self._url, self._done = url, done
        self._begun: asyncio.Future[Lost | None] = asyncio.get_running_loop().create_future()
        self._came = asyncio.Event()
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._ended: HttpAnswer | Lost | None = None
        self._is_left = False

    def header(self, name: bytes) -> str:
        """The value of one header, by its name in lower case; empty where there is none."""
        return HttpAnswer(self.status, self.fields, b"").header(name)

    async def begin(self, message: bytes) -> Lost | None:
        """Ask, and wait for the head; how the connection was lost where none came."""
        try:
            self.connection.ask(message, self._on_end, self)
            return await self._begun
        except BaseException:
            self.connection.lose("timeout")
            raise

    def head(self, status: int, fields: list[tuple[bytes, bytes]]) -> None:
        """Called by the connection."""
        self.status, self.fields = status, fields
        if not self._begun.done():
            self._begun.set_result(None)

    def body(self, body: bytes) -> None:
        """Called by the connection: what is not taken yet is held, and beyond HELD_BYTES no more is read."""
        self._held.append(body)
        self._held_bytes += len(body)
        if self._held_bytes > HELD_BYTES:
            self.connection.read_on(False)
        self._came.set()

    def __aiter__(self) -> HttpStream:
        """The body, part by part as it came."""
        return self

    async def __anext__(self) -> bytes:
        """Bytes that have come since. Errors: RetryLater where the server is lost before the answer's end."""
        while not self._held:
            if isinstance(self._ended, Lost):
                raise RetryLater(f"{self._url} {self._ended.text}")
            if self._ended is not None:
                raise StopAsyncIteration
            self._came.clear()
            await self._came.wait()
        part = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held.clear()
        if self._held_bytes > HELD_BYTES:
            self.connection.read_on(True)
        self._held_bytes = 0
        return part

    async def aclose(self) -> None:
        """Give the connection back; close it where the answer is not over. To be called once."""
        if self._ended is None:
            self.connection.lose("closed", "was left before it answered")
        elif self._held_bytes > HELD_BYTES:
            self.connection.read_on(True)
        self._done(self.connection)

    def _on_end(self, outcome: HttpAnswer | Lost) -> None:
        self._ended = outcome
        if not self._begun.done():
            self._begun.set_result(outcome if isinstance(outcome, Lost) else None)
        self._came.set()


class HttpClient:
    """Calls one server. Made and used in one event loop.

    certificate: SHA-256 of the one that the server must show, in hex; empty: the connection has no TLS.
    """

    def __init__(self, url: str, *, connections: int = MAX_CONNECTIONS, certificate: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise Misconfigured(f"backend target {url!r} must read http://host:port")
        self.url = f"http://{parts.netloc}"
        self._host, self._port = parts.hostname, parts.port or 80
        self._netloc = parts.netloc
        self._idle: list[ClientConnection] = []
        self._open: set[ClientConnection] = set()
        self._places = asyncio.Semaphore(connections)
        self._certificate = certificate
        self._tls = any_certificate() if certificate else None

    async def request(
        self,
        method: str,
        path: str,
        *,
        timeout_s: float,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """Ask and wait for the whole answer, `timeout_s` at most. Errors: RetryLater."""
        message = self._message(method, path, body, headers)
        try:
            async with asyncio.timeout(timeout_s), self._places:
                return await self._exchange(message)
        except TimeoutError as error:
            raise RetryLater(f"{self.url}{path} did not answer within {timeout_s:g} s") from error
        except OSError as error:
            raise RetryLater(f"{self.url} cannot be reached: {error}") from error

    async def stream(
        self, path: str, *, head_within_s: float, body: bytes, headers: Mapping[str, str]
    ) -> HttpStream:
        """Post, and wait for the head of the answer. Errors: RetryLater. Whoever calls it closes the stream."""
        message = self._message("POST", path, body, headers)
        try:
            async with asyncio.timeout(head_within_s):
                await self._places.acquire()
                try:
                    return await self._begin(message)
                except BaseException:
                    self._places.release()
                    raise
        except TimeoutError as error:
            raise RetryLater(f"{self.url}{path} did not answer within {head_within_s:g} s") from error
        except OSError as error:
            raise RetryLater(f"{self.url} cannot be reached: {error}") from error

    async def _begin(self, message: bytes) -> HttpStream:
        while True:
            idle = next((one for one in iter(self._pop_idle, None) if one.is_open), None)
            stream = HttpStream(self.url, idle or await self._connect(), self._done_with)
            try:
                lost = await stream.begin(message)
            except BaseException:
                self._open.discard(stream.connection)
                raise
            if lost is None:
                return stream
            self._open.discard(stream.connection)
            if idle is None or lost.begun or lost.why != "reset":
                raise RetryLater(f"{self.url} {lost.text}")

    def _pop_idle(self) -> ClientConnection | None:
        return self._idle.pop() if self._idle else None

    def _done_with(self, connection: ClientConnection) -> None:
        """A stream has ended, or was left: another call may have its place."""
        self._places.release()
        if connection.is_open:
            self._idle.append(connection)
        else:
            self._open.discard(connection)

    def _message(self, method: str, path: str, body: bytes, headers: Mapping[str, str] | None) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"host: {self._netloc}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    async def close(self) -> None:
        """Close all connections; calls in flight get RetryLater."""
        for connection in tuple(self._open):
            connection.lose("closed", "was left before it answered")
        self._idle.clear()
        await asyncio.sleep(0)  # transports close in the loop's next turn

    async def _exchange(self, message: bytes) -> HttpAnswer:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                outcome = await self._ask(connection, message)
                if isinstance(outcome, HttpAnswer):
                    return outcome
                if outcome.begun or outcome.why != "reset":
                    raise RetryLater(f"{self.url} {outcome.text}")
        outcome = await self._ask(await self._connect(), message)
        if isinstance(outcome, Lost):
            raise RetryLater(f"{self.url} {outcome.text}")
        return outcome

    async def _connect(self) -> ClientConnection:
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(
            ClientConnection, self._host, self._port, ssl=self._tls
        )
        if self._certificate and not is_shown(transport, self._certificate):
            connection.lose("closed")
            raise RetryLater(f"{self.url} shows another certificate than the one that was announced")
        self._open.add(connection)
        return connection

    async def _ask(self, connection: ClientConnection, message: bytes) -> HttpAnswer | Lost:
        waiting: asyncio.Future[HttpAnswer | Lost] = asyncio.get_running_loop().create_future()
        try:
            connection.ask(message, lambda outcome: None if waiting.done() else waiting.set_result(outcome))
            return await waiting
        except BaseException:
            connection.lose("timeout")
            raise
        finally:
            if connection.is_open:
                self._idle.append(connection)
            else:
                self._open.discard(connection)
