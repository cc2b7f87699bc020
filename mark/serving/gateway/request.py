"""One inference request in a gateway, from its arrival to its one answer.

The request owns what is known of it: its client, its trace, its id's record. The modules that route, repeat, hold
or copy it import this one, which imports none of them.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, Protocol

from mark.ports import InferRequest, Trace
from mark.protocols import sagemaker
from mark.protocols.oip.bodies import HEADER_LENGTH, JSON_TYPE, error_body
from mark.protocols.trace_context import parse_context
from mark.serving.gateway.clients import ClientUse
from mark.serving.gateway.held_use import HeldUse
from mark.serving.gateway.telemetry.request_trace import RequestTrace
from mark.serving.http.content_codings import INLINE_BYTES, WORTH_BYTES, coding_for, encode
from mark.serving.http.exchange import Answering, HttpExchange
from mark.serving.http.head_cache import Head
from mark.serving.passed_on_trace import PassedOn

_JSON = JSON_TYPE.encode()
_HEADER_LENGTH = HEADER_LENGTH.encode()
ONLY_VARIANT = b"AllTraffic"
"""SageMaker's name of the only variant of an endpoint."""


class Withdraws(Protocol):
    """A connection to an agent, as a request sees it."""

    def withdraw(self, id_: int, request: InferenceRequest) -> None:
        """Take back a request that nobody waits for, where it is still there."""
        ...


class Share(Protocol):
    """A tenant's share of a shared instance, as a request sees it (`members_view.py`)."""

    share_left: float


class Loss(NamedTuple):
    """A server that was lost while it may have been working on a request.

    `suspects`: how many requests were there with it, itself counted, and at all servers that it lost before.
    """

    server: str
    suspects: int


Key = tuple[str, str, bytes, bytes]
"""Client, model, path and id: ids of two clients never meet, and SageMaker's path is the same for all models."""


class StoredResponse(NamedTuple):
    """A response as `InferenceRequest.answer` takes it."""

    status: int
    content_type: bytes
    header_length: int
    body: bytes
    by: bytes
    variant: bytes = b""
    version: bytes = b""


class IdempotencyRecord:
    """One id: in flight with its duplicates, or completed with its response.

    digest: of what the model was asked, by which a duplicate is told from another request.
    """

    __slots__ = ("digest", "duplicates", "key", "response")

    def __init__(self, key: Key, digest: int) -> None:
        self.key, self.digest = key, digest
        self.duplicates: list[InferenceRequest] | None = None
        self.response: StoredResponse | None = None


class InferenceRequest(HttpExchange):
    """A client's request on its way through the gateway; instants are the event loop's clock."""

    __slots__ = (
        "accept", "accuracy_floor", "arrived_at", "client", "content_type", "deadline_at", "failed_by",
        "header_length", "idempotency", "is_forced", "is_shared", "losses", "path", "request_id",
        "sent_as", "sent_to", "shape", "share", "size", "trace", "traceparent", "variant", "version",
    )  # fmt: skip

    arrived_at: float
    deadline_at: float
    #: path at the model's server
    path: bytes
    content_type: bytes
    accept: bytes
    #: bytes of JSON before binary tensors, 0 without them
    header_length: int
    request_id: bytes
    #: traceparent and tracestate, as frames carry them
    traceparent: bytes
    #: its spans; None where it is not traced, and once it is answered
    trace: RequestTrace | None
    #: protocol of the client's errors: oip or sagemaker
    shape: str
    #: in items
    size: int
    #: least accuracy of the variant that may answer, 0 for any
    accuracy_floor: float
    #: the model's variant that was asked for
    variant: bytes
    #: the model's version that was asked for; empty for the one that a rollout's share chooses
    version: bytes
    #: whose limits it counts towards; None where the service has no clients, and once it is answered
    client: ClientUse | HeldUse | None
    #: record of its id, None where the gateway made the id
    idempotency: IdempotencyRecord | None
    #: the connection to the agent that it was sent to last, and its number there; None before
    sent_to: Withdraws | None
    sent_as: int
    #: it was sent there although it will be late
    is_forced: bool
    is_shared: bool
    #: of a shared instance, of which it has taken one; None for none
    share: Share | None
    #: servers that were lost with it
    losses: tuple[Loss, ...]
    #: version whose answer was an error that its client did not get
    failed_by: bytes

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
        HttpExchange.__init__(self, connection, method, target, headers, body, keep_alive, head)
        self.shape = "oip"
        self.request_id = self.path = self.content_type = self.accept = self.traceparent = self.variant = b""
        self.version = self.failed_by = b""
        self.header_length, self.size = 0, 1
        self.arrived_at = self.deadline_at = self.accuracy_floor = 0.0
        self.idempotency = self.client = self.trace = None
        self.losses = ()
        self.sent_to, self.sent_as = None, 0
        self.is_forced = self.is_shared = False
        self.share = None

    @property
    def is_unasked(self) -> bool:
        """True where nobody waits for the answer, now or by a later request with the same id."""
        return self.connection is None and self.idempotency is None

    def leave(self) -> None:
        """Note that the client has gone, and withdraw the request where nobody else may ask for its answer."""
        HttpExchange.leave(self)
        if self.sent_to is not None and self.stream is None and self.is_unasked:
            self.sent_to.withdraw(self.sent_as, self)

    def infer_request(self) -> InferRequest:
        """The request as Lambda's adapter takes it."""
        return InferRequest(
            path=self.path.decode(),
            content_type=self.content_type.decode("latin-1"),
            body=self.body,
            header_length=self.header_length,
            accept=self.accept.decode("latin-1"),
            size=self.size,
            trace=self._trace_of_call() if self.traceparent or self.trace is not None else None,
        )

    def _trace_of_call(self) -> Trace | None:
        """The trace in which a function is called."""
        if self.trace is not None:
            return PassedOn(self.trace.try_context)
        context = parse_context(self.headers["traceparent"], self.headers.get("tracestate", b""))
        return None if context is None else PassedOn(context)

    def answer(
        self,
        status: int,
        content_type: bytes,
        header_length: int,
        body: bytes,
        by: bytes,
        variant: bytes = b"",
        version: bytes = b"",
    ) -> None:
        """Answer with a model's response. by: instance, standby or lambda. variant, version: which one gave it."""
        extra = b"x-mark-served-by: %b\r\nx-mark-request-id: %b\r\n" % (by, self.request_id)
        if variant:
            extra += b"x-mark-variant: %b\r\n" % variant
        if version:
            extra += b"x-mark-version: %b\r\n" % version
        if header_length:
            extra += b"%b: %d\r\n" % (_HEADER_LENGTH, header_length)
        if self.shape == "sagemaker":
            extra += b"x-amzn-invoked-production-variant: %b\r\n" % (self.variant or ONLY_VARIANT)
            if status >= 400:
                extra += b"x-amzn-errortype: %b\r\n" % sagemaker.error_name(status).encode()
                body = body if header_length else sagemaker.with_message(body)
        if len(body) >= WORTH_BYTES and "accept-encoding" in self.headers:
            self._reply_compressed(status, content_type, body, extra)
        else:
            self.reply(status, content_type, body, extra)
        if self.trace is not None:
            self.trace.answered(status, by, variant, version)

    def begin_answer(self, status: int, content_type: bytes, by: bytes, version: bytes) -> None:
        """Begin an answer that streams. Its parts are not compressed."""
        assert self.connection is not None, "one that has left is its agent's no more"
        extra = b"x-mark-served-by: %b\r\nx-mark-request-id: %b\r\ncache-control: no-cache\r\n" % (
            by,
            self.request_id,
        )
        if version:
            extra += b"x-mark-version: %b\r\n" % version
        if self.shape == "sagemaker":
            extra += b"x-amzn-invoked-production-variant: %b\r\n" % ONLY_VARIANT
        self.connection.begin(self, status, content_type, extra)

    def forget_body(self) -> None:
        """Give its memory back: the request is not sent again."""
        self.body = b""
        if hasattr(self, "lease"):
            del self.lease

    def _reply_compressed(self, status: int, content_type: bytes, body: bytes, extra: bytes) -> None:
        """Answer in the content coding that the client prefers; large bodies are compressed in a thread."""
        coding = coding_for(self.headers["accept-encoding"])

        def reply(compressed: bytes | None) -> None:
            if coding is None or compressed is None:
                self.reply(status, content_type, body, extra)
            else:
                line = b"content-encoding: %b\r\nvary: accept-encoding\r\n" % coding
                self.reply(status, content_type, compressed, extra + line)

        if coding is None or len(body) <= INLINE_BYTES:
            reply(coding and encode(coding, body))
        else:
            loop = asyncio.get_running_loop()
            done = loop.run_in_executor(None, encode, coding, body)
            done.add_done_callback(lambda encoded: reply(encoded.result()))

    def fail(self, status: int, text: str, extra: bytes = b"") -> None:
        """Answer with an error in the client's protocol; 503 carries Retry-After. extra: header lines."""
        extra += b"x-mark-request-id: %b\r\n" % self.request_id
        if status == 503:
            extra += b"retry-after: 1\r\n"
        if self.shape == "sagemaker":
            extra += b"x-amzn-errortype: %b\r\n" % sagemaker.error_name(status).encode()
            self.reply(status, _JSON, sagemaker.error_body(text), extra)
        else:
            self.reply(status, _JSON, error_body(text), extra)
        if self.trace is not None:
            self.trace.failed(status)
