"""A small HTTP/1.1 client for one server: pooled keep-alive connections, one request at a time on each.

Model servers sit beside their agent, so there is no TLS, no proxy, no redirect and no cookie here. Each call has a
deadline. A server that is gone, or closes in mid-answer, is RetryLater; a connection that the server had closed
while it was idle is replaced once, unseen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import httptools

from mark.domain.errors import Misconfigured, RetryLater

MAX_CONNECTIONS = 32
MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""An answer beyond it is refused before it fills the instance's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """Status, headers (names in lower case) and body of an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient:
    """Calls one server. Made and used in one event loop."""

    def __init__(self, url: str, *, connections: int = MAX_CONNECTIONS) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise Misconfigured(f"backend target {url!r} must read http://host:port")
        self.url = f"http://{parts.netloc}"
        self._host, self._port = parts.hostname, parts.port or 80
        self._netloc = parts.netloc
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._places = asyncio.Semaphore(connections)

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
        lines = [f"{method} {path} HTTP/1.1", f"host: {self._netloc}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        message = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
        try:
            async with asyncio.timeout(timeout_s), self._places:
                return await self._exchange(message)
        except TimeoutError as error:
            raise RetryLater(f"{self.url}{path} did not answer within {timeout_s:g} s") from error
        except OSError as error:
            raise RetryLater(f"{self.url} cannot be reached: {error}") from error

    async def close(self) -> None:
        """Close all connections; calls in flight get RetryLater."""
        for connection in tuple(self._open):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # transports close in the loop's next turn

    async def _exchange(self, message: bytes) -> HttpAnswer:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                try:
                    return await self._ask(connection, message)
                except _ClosedBeforeAnswerError:
                    continue
        connection = await self._connect()
        try:
            return await self._ask(connection, message)
        except _ClosedBeforeAnswerError as error:
            raise RetryLater(f"{self.url} closed the connection without an answer") from error

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: _Connection(self.url), self._host, self._port)
        self._open.add(connection)
        return connection

    async def _ask(self, connection: _Connection, message: bytes) -> HttpAnswer:
        try:
            answer = await connection.ask(message)
        except BaseException:
            connection.abort()
            self._open.discard(connection)
            raise
        if connection.is_open:
            self._idle.append(connection)
        else:
            self._open.discard(connection)
        return answer


class _ClosedBeforeAnswerError(Exception):
    """The server closed before the first byte of an answer: another connection may do."""


@dataclass(slots=True)
class _Arriving:
    """An answer of which not all has come."""

    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    begun: bool = False
    headers_done: bool = False


class _Connection(asyncio.Protocol):
    """One connection: sends a request, collects its answer."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[HttpAnswer] | None = None
        self._arriving = _Arriving()
        self._parser = httptools.HttpResponseParser(self)
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it
        self._transport = transport
        self.is_open = True

    async def ask(self, message: bytes) -> HttpAnswer:
        """Send, and wait for the answer."""
        assert self._transport is not None
        assert self._waiting is None, "one request at a time"
        self._arriving = _Arriving()
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        try:
            return await self._waiting
        finally:
            self._waiting = None

    def abort(self) -> None:
        """Close without waiting for anything."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:  # nobody asked: the server speaks out of turn
            self.abort()
            return
        self._arriving.begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(RetryLater(f"{self._url} sent malformed HTTP: {error}"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        arriving = self._arriving
        framed = {"content-length", "transfer-encoding"} & arriving.headers.keys()
        if arriving.headers_done and not framed and exc is None:
            self._complete()  # HTTP/1.0: the end of the connection is the end of the answer
        elif arriving.begun:
            self._fail(RetryLater(f"{self._url} closed the connection in mid-answer"))
        else:
            self._fail(_ClosedBeforeAnswerError())

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        self._arriving.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._arriving.headers_done = True

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self._arriving.body += body
        if len(self._arriving.body) > MAX_ANSWER_BYTES:
            self._fail(RetryLater(f"{self._url} sent more than {MAX_ANSWER_BYTES >> 20} MiB"))
            self.abort()

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if self._parser.get_status_code() < 200:  # 100 Continue and its like: the answer is still to come
            self._arriving = _Arriving(begun=True)
            return
        if not self._parser.should_keep_alive():
            self.is_open = False
            if self._transport is not None:
                self._transport.close()
        self._complete()

    def _complete(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            status = self._parser.get_status_code()
            arriving = self._arriving
            self._waiting.set_result(
                HttpAnswer(status=status, headers=arriving.headers, body=bytes(arriving.body))
            )

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
