"""One HTTP request and the way to answer it, as handlers see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mark.protocols.oip import JSON_TYPE, error_body

if TYPE_CHECKING:
    from mark.serving.http.body_budget import BodyLease
    from mark.serving.http.head_cache import Head


class Answering(Protocol):
    """The connection that a request came by."""

    def send(self, exchange: HttpExchange, status: int, content_type: bytes, body: bytes, extra: bytes) -> None:
        """Write the answer of the exchange that is being handled, and take its `connection` from it."""
        ...


class HttpExchange:
    """One request, and the way to answer it. headers: those of KNOWN_HEADERS, by name.

    `head` is set where the connection has seen the very head before, or expects to see it again. `lease`, set for
    bodies that count, keeps the body's share of the server's memory for as long as the exchange is referred to.
    """

    __slots__ = ("body", "connection", "head", "headers", "keep_alive", "lease", "method", "target")

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

    def reply(self, status: int, content_type: bytes, body: bytes, extra: bytes = b"") -> None:
        """Answer, once; nothing happens where the client has gone. extra: header lines with their line ends."""
        connection = self.connection
        if connection is not None:
            connection.send(self, status, content_type, body, extra)

    def refuse(self, status: int, text: str, extra: bytes = b"") -> None:
        """Answer with OIP's error document."""
        self.reply(status, JSON_TYPE.encode(), error_body(text), extra)
