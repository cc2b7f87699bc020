"""One streamed answer on its way through the gateway: from an agent's frames to its client's connection.

Until the first part has come the request is like any other: it may bounce, be dispatched again, or get an error
with a status of its own. From then on it stays with its agent, and what goes wrong ends it where its client sees
it: Server-Sent Events get an event `error`, and no stream that is not whole has the end of its body. Parts are
written as they come. While the client does not read, the agent gets no credit, so nothing but this stream waits;
the connection's own time-out ends it. A client that leaves has its request cancelled at the agent.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from mark.domain.load.traffic import CLIENT_GONE
from mark.protocols.frames import StreamHead
from mark.protocols.oip.bodies import error_body
from mark.protocols.stream_window import ReceiveWindow

if TYPE_CHECKING:
    from mark.serving.gateway.model_router import ModelRouter
    from mark.serving.gateway.request import InferenceRequest
    from mark.serving.gateway.telemetry.traffic_tally import Server

SSE_TYPE = b"text/event-stream"
EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
NO_STREAM = "the model streams its answers, which needs HTTP/1.1"


class StreamSource(Protocol):
    """A connection to an agent, as a stream sees it."""

    def credit(self, id_: int, size: int) -> None:
        """Let the agent send so many bytes more."""
        ...

    def cancel(self, id_: int, request: InferenceRequest) -> None:
        """Nobody waits for that request any more."""
        ...


class StreamedAnswer:
    """The answer of one request of a model that streams. `by`, `first_s`: set when its first part has come."""

    __slots__ = (
        "_id", "_is_sse", "_last", "_request", "_router", "_source", "_status", "_window", "by", "first_s",
    )  # fmt: skip

    def __init__(self, request: InferenceRequest, router: ModelRouter) -> None:
        self._request, self._router = request, router
        self._source: StreamSource | None = None
        self.by: Server = "instance"
        self.first_s: float | None = None
        self._id = self._status = 0
        self._window = ReceiveWindow()
        self._is_sse = False
        self._last = b""

    def sent_to(self, source: StreamSource, id_: int) -> None:
        """The request was sent to that agent."""
        self._source, self._id = source, id_

    def begin(self, head: StreamHead, by: Server, router: ModelRouter, now: float) -> None:
        """Begin to answer. router: the version's that answers."""
        request, self._router, self.by, self._status = self._request, router, by, head.status
        self.first_s = now - request.arrived_at
        request.begin_answer(head.status, head.content_type, by.encode(), router.version)
        request.forget_body()
        if request.trace is not None:
            request.trace.began(now)
        self._is_sse = head.content_type.partition(b";")[0].strip().lower() == SSE_TYPE

    def part(self, body: bytes) -> None:
        """Write a part. Errors: FrameError where the agent exceeds the stream's window."""
        self._window.received(len(body))
        connection = self._request.connection
        if connection is None:
            return
        if self._is_sse:
            self._last = (self._last + body)[-4:]
        connection.write_part(body)
        self.on_writable()

    def on_writable(self) -> None:
        """Give credit for what was written, unless the client does not read."""
        connection = self._request.connection
        if connection is None or not connection.is_writable:
            return
        credit = self._window.credit()
        if credit and self._source is not None:
            self._source.credit(self._id, credit)

    def end(self, error: str, now: float) -> None:
        """The stream is over. error: why it is not whole, empty where it is."""
        request = self._request
        connection = request.connection
        assert connection is not None, "one that has left is its agent's no more"
        assert self.first_s is not None, "`begin` comes first"
        if not error:
            connection.finish(request)
            self._router.streamed(request, self.by, self.first_s, now - request.arrived_at)
            if request.trace is not None:
                request.trace.answered(self._status, self.by.encode(), b"", self._router.version)
            return
        if self._is_sse and (not self._last or self._last.endswith(EVENT_ENDS)):
            connection.write_part(b"event: error\ndata: " + error_body(error) + b"\n\n")
        connection.cut()
        self._router.cut_short(request, error)
        if request.trace is not None:
            request.trace.cut_short(self._status, self.by.encode(), self._router.version)

    def on_left(self) -> None:
        """The client has gone: cancel the request at its agent, and count it."""
        if self._source is not None:
            self._source.cancel(self._id, self._request)
        self._router.left(self._request, self.first_s, time.monotonic())
        if self._request.trace is not None:
            self._request.trace.failed(CLIENT_GONE)
