"""One HTTP request and the way to answer it, as handlers see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mark.protocols.oip.bodies import JSON_TYPE, error_body

if TYPE_CHECKING:
    from mark.serving.http.body_budget import BodyLease
    from mark.serving.http.head_cache import Head


class Answering(Protocol):
    """The connection that a request came by."""

    def send(self, exchange: HttpExchange, status: int, content_type: bytes, body: bytes, extra: bytes) -> None:
        """Write the answer of the exchange that is being handled, and take its `connection` from it."""
        ...

    @property
    def is_writable(self) -> bool:
        """False while the client does not read what was written."""
        ...

    @property
    def can_stream(self) -> bool:
        """True where the client can take an answer whose body comes in parts."""
        ...

    def begin(self, exchange: HttpExchange, status: int, content_type: bytes, extra: bytes) -> None:
        """Write the head of such an answer."""
        ...

    def write_part(self, body: bytes) -> None:
        """Write a part of that body."""
        ...

    def finish(self, exchange: HttpExchange) -> None:
        """Write its end, and take the exchange's `connection` from it."""
        ...

    def cut(self) -> None:
        """Close without its end, which tells the client that it is not whole."""
        ...


class AnswerStream(Protocol):
    """Source of an answer in parts, as its connection sees it."""

    def on_writable(self) -> None:
        """The client reads again."""
        ...

    def on_left(self) -> None:
        """The client has gone before the end; the exchange has no connection any more."""
        ...


class HttpExchange:
    """One request, and the way to answer it. headers: those of KNOWN_HEADERS, by name.

    `head` is set where the connection has seen the very head before, or expects to see it again. `lease`, set for
    bodies that count, keeps the body's share of the server's memory for as long as the exchange is referred to.
    `stream`, set by a handler that answers in parts, hears of its client.
    """

    __slots__ = ("body", "connection", "head", "headers", "keep_alive", "lease", "method", "stream", "target")

    lease: BodyLease

    def __init__(
        self,
        connection: Answering | None,
        method: bytes,
        target: bytes,
        headers: dict[str, bytes],
        body: bytes,
        keep_alive: bool,
        head: Head[Any] | None = None,
    ) -> None:
        self.connection = connection
        self.head = head
        self.method, self.target, self.headers, self.body = method, target, headers, body
        self.keep_alive = keep_alive
        self.stream: AnswerStream | None = None

    def reply(self, status: int, content_type: bytes, body: bytes, extra: bytes = b"") -> None:
        """Answer, once; nothing happens where the client has gone. extra: header lines with their line ends."""
        connection = self.connection
        if connection is not None:
            connection.send(self, status, content_type, body, extra)

    def leave(self) -> None:
        """Note that the client has gone: nobody reads an answer."""
        self.connection = None
        if self.stream is not None:
            self.stream.on_left()

    def refuse(self, status: int, text: str, extra: bytes = b"") -> None:
        """Answer with OIP's error document."""
        self.reply(status, JSON_TYPE.encode(), error_body(text), extra)
