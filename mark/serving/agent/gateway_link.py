"""An agent's end of gateways' connections: requests in, responses out, and the agent's state where it is news."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from dataclasses import dataclass, field

from mark.domain.errors import Misconfigured
from mark.ports import InferReply, InferRequest
from mark.protocols.frames import (
    MAX_FRAME_BYTES,
    Begin,
    Bounced,
    Cancel,
    Credit,
    Frame,
    FrameError,
    Goodbye,
    Request,
    Response,
    ResponseDetails,
    StreamEnd,
    StreamHead,
    StreamPart,
    encode,
    encode_response,
)
from mark.protocols.handshake import AgentHandshake, new_nonce
from mark.protocols.oip.bodies import error_reply
from mark.serving.agent.queue import Job
from mark.serving.agent.streams import StreamCore
from mark.serving.agent.tenant import Tenant
from mark.serving.frame_link import FrameLink
from mark.serving.queue_estimate import QueueEstimate
from mark.serving.unexpected_errors import UnexpectedErrors

log = logging.getLogger("mark.agent")

NEWS_SHARE = 0.1
"""Share of a full batch by which the estimated end of a batch may be off before a state is published."""
MAX_BODY_BYTES = MAX_FRAME_BYTES - 4096
MAX_REASON_BYTES = 1000
"""Of the text that says why a stream is not whole."""


@functools.lru_cache(maxsize=256)
def _text(value: bytes) -> str:
    return value.decode("latin-1")


@dataclass(slots=True, kw_only=True)
class FramePort:
    """State that the connections of an agent's port for frames share.

    `tenants`: by the key that a gateway has to know which talks to one. `open`: connections, known or not.
    """

    standby: bool
    tenants: dict[str, Tenant] = field(default_factory=dict, repr=False)
    open: set[GatewayConnection] = field(default_factory=set)
    unexpected: UnexpectedErrors = field(default_factory=lambda: UnexpectedErrors(log))
    #: Requests came since this was last taken back.
    is_used: bool = False


class GatewayConnection(FrameLink):
    """One gateway's connection to one tenant, which is known once the gateway is.

    `_mirror` is the gateway's estimate; the state is published where it is off.
    """

    tenant: Tenant | None = None

    def __init__(self, port: FramePort) -> None:
        super().__init__(log, port.unexpected, "gateway")
        self._port = port
        self._handshake = AgentHandshake(new_nonce())
        self._mirror = QueueEstimate()
        self._published: tuple[object, ...] = ()
        self._seen = 0
        #: requests of a batch that has not come whole
        self._coming: list[Job] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        super().connection_made(transport)
        self._port.open.add(self)
        self.write(encode(self._handshake.challenge()))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop: nobody gets this gateway's responses, so its requests that wait do not run."""
        super().connection_lost(exc)
        self._port.open.discard(self)
        if self.tenant is not None:
            self._core.clients.discard(self)
            self._core.drop(self)

    def data_received(self, data: bytes) -> None:
        """Called by the loop. Requests that came together may share a batch: it begins after the last of them."""
        FrameLink.data_received(self, data)
        if self.is_known:
            self._core.start()
            self._core.publish_if_changed()

    def answered(self, job: Job, reply: InferReply) -> None:
        """Send the model's response."""
        if len(reply.body) > MAX_BODY_BYTES:
            reply = error_reply(500, f"the response has {len(reply.body)} bytes, more than {MAX_BODY_BYTES}")
        kind = reply.content_type.encode("latin-1")
        if reply.variant:
            details = ResponseDetails(variant=reply.variant.encode())
            frame = encode(Response(job.id, reply.status, kind, reply.header_length, reply.body, details))
        else:
            frame = encode_response(job.id, reply.status, kind, reply.header_length, reply.body)
        self._mirror.answered(time.monotonic(), self._core.measured.full_batch_s, job.request.size)
        self.write(frame)

    def began(self, job: Job, status: int, content_type: str) -> None:
        """Send the head of an answer that streams; its first part goes in the same write."""
        self.write(encode(StreamHead(job.id, status, content_type.encode("latin-1"))))

    def part(self, job: Job, body: bytes) -> None:
        """Send the next bytes of a stream."""
        self.write(encode(StreamPart(job.id, body)))

    def ended(self, job: Job, error: str = "") -> None:
        """Send the end of a stream."""
        self._mirror.answered(time.monotonic(), self._core.measured.full_batch_s)
        self.write(encode(StreamEnd(job.id, error.encode()[:MAX_REASON_BYTES])))

    def bounced(self, job: Job) -> None:
        """Tell the gateway that the job was not run here: it dispatches it again."""
        self.publish()
        self.write(encode(Bounced(job.id, 0)))

    def publish_if_changed(self) -> None:
        """Publish the state if the gateway's estimate is off."""
        core, mirror = self._core, self._mirror
        off_s = abs(mirror.free_at - core.free_at) if core.in_service else 0.0
        counts_agree = mirror.waiting == core.places and mirror.in_service == core.in_service
        known = counts_agree and off_s <= NEWS_SHARE * core.measured.full_batch_s
        if not known or self._published != (core.accepting, core.terminates_at):
            self.publish()

    def publish(self) -> None:
        """Publish the agent's state."""
        if not self.is_known:
            return
        core, mirror, now = self._core, self._mirror, time.monotonic()
        state = core.state(self._seen - len(self._coming), now, standby=self._port.standby)
        self.write(encode(state))
        mirror.waiting, mirror.in_service, mirror.free_at = core.places, core.in_service, core.free_at
        mirror.slots = state.slots
        self._published = (core.accepting, core.terminates_at)

    def leave(self) -> None:
        """Send Goodbye and close, once everything is written."""
        if self.is_known:
            self.write(encode(Goodbye()))
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def on_greeting(self, frame: Frame) -> bool:
        """Take the gateway's Hello; the state follows with what answers it."""
        hello, welcome, key = self._handshake.welcome(frame, self._port.tenants)
        self.tenant = self._port.tenants[key]
        self._core, self._unexpected = self.tenant.core, self.tenant.core.unexpected
        self._mirror.max_batch = self._core.max_batch
        self.tenant.access.set_digest(hello.token_digest)
        self.write(encode(welcome))
        self._core.clients.add(self)
        return True

    def on_frame(self, frame: Frame, now: float) -> None:
        """Take a request, or what the gateway says of itself and of its requests."""
        if type(frame) is not Request:
            self._on_control_frame(frame, now)
            return
        core, size = self._core, frame.details.size
        self._seen += 1
        self._port.is_used = True
        request = InferRequest(
            path=_text(frame.path),
            content_type=_text(frame.content_type),
            body=frame.body,
            header_length=frame.header_length,
            accept=_text(frame.accept),
            size=size,
            trace=core.trace_of(frame.traceparent, now) if frame.traceparent else None,
        )
        arrived_at, deadline_at = now - frame.elapsed_us * 1e-6, now + frame.left_us * 1e-6
        job = Job(self, frame.id, arrived_at, deadline_at, request, frame.forced)
        if size > core.largest:
            self._refuse(job, f"a request has at most {core.largest} items here")
            return
        if frame.details.accuracy_floor:
            try:
                job = job._replace(floor=core.floor_number(frame.details.accuracy_floor))
            except Misconfigured as error:
                self._refuse(job, str(error))
                return
        if frame.details.variant:
            try:
                job = job._replace(floor=core.pinned_number(_text(frame.details.variant)), is_pinned=True)
            except Misconfigured as error:
                self._refuse(job, str(error))
                return
        if frame.details.batch_id:
            self._coming.append(job)
        else:
            self._take(job, now)

    def _take(self, job: Job, now: float) -> None:
        core, size = self._core, job.request.size
        self._mirror.sent(now, core.measured.items_s(size), size)
        finish_at = core.take(job, now)
        if finish_at is not None:
            self.publish()  # first: where the request goes now is decided with it
            self.write(encode(Bounced(job.id, int((finish_at - now) * 1e6))))

    def _begin(self, frame: Begin, now: float) -> None:
        """Queue a batch that has come whole."""
        batch, self._coming = self._coming, []
        try:
            number = self._core.pinned_number(_text(frame.variant))
        except Misconfigured as error:
            for job in batch:
                self._refuse(job, str(error))
            return
        for job in batch:
            self._take(job._replace(floor=number, is_pinned=True, batch_id=frame.id), now)

    def _refuse(self, job: Job, text: str) -> None:
        self.answered(job, error_reply(400, text))
        self.publish()  # the gateway counted it in

    def on_frame_error(self, frame: Frame, error: Exception, now: float) -> None:
        """Answer the frame's request with 500."""
        if isinstance(frame, Request):
            request = InferRequest(path="", content_type="", body=b"")
            self._core.fail_unexpected(Job(self, frame.id, now, now, request), error, _text(frame.request_id))
        else:
            super().on_frame_error(frame, error, now)

    def _on_control_frame(self, frame: Frame, now: float) -> None:
        match frame:
            case Begin():
                self._begin(frame, now)
            case Cancel(id=id_):
                self._core.withdraw(self, id_)
            case Credit(id_, size) if isinstance(self._core, StreamCore):
                self._core.credit(self, id_, size)
            case _:
                raise FrameError(f"unexpected frame from gateway: {type(frame).__name__}")
