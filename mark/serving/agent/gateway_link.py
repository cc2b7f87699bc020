"""An agent's end of gateways' connections: requests in, responses out, and the agent's state where it is news."""

from __future__ import annotations

import asyncio
import functools
import logging
import time

from mark.ports import InferReply, InferRequest
from mark.protocols.frames import (
    MAX_FRAME_BYTES,
    VERSION,
    Bounced,
    Cancel,
    Frame,
    FrameError,
    Goodbye,
    Hello,
    Request,
    State,
    encode,
    encode_response,
)
from mark.protocols.oip import error_reply
from mark.serving.agent.queue import AgentCore, Job
from mark.serving.frame_link import FrameLink
from mark.serving.queue_estimate import QueueEstimate

log = logging.getLogger("mark.agent")

NEWS_SHARE = 0.1
"""Share of a full batch by which the estimated end of a batch may be off before a state is published."""
MAX_BODY_BYTES = MAX_FRAME_BYTES - 4096


@functools.lru_cache(maxsize=256)
def _text(value: bytes) -> str:
    return value.decode("latin-1")


class GatewayConnection(FrameLink):
    """One gateway's connection. `_mirror` is the gateway's estimate; the state is published where it is off."""

    def __init__(self, core: AgentCore, *, standby: bool, connections: set[GatewayConnection]) -> None:
        super().__init__(log, core.unexpected, "gateway")
        self._core, self._standby = core, standby
        self._connections = connections
        self._mirror = QueueEstimate()
        self._mirror.max_batch = core.max_batch
        self._published: tuple[object, ...] = ()
        self._seen = 0
        self._greeted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        super().connection_made(transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop: requests of this gateway still run, their responses are dropped."""
        super().connection_lost(exc)
        self._core.clients.discard(self)
        self._connections.discard(self)

    def data_received(self, data: bytes) -> None:
        """Called by the loop. Requests that came together may share a batch: it begins after the last of them."""
        FrameLink.data_received(self, data)
        self._core.start()
        self._core.publish_if_changed()

    def answered(self, job: Job, reply: InferReply) -> None:
        """Send the model's response."""
        if len(reply.body) > MAX_BODY_BYTES:
            reply = error_reply(500, f"the response has {len(reply.body)} bytes, more than {MAX_BODY_BYTES}")
        kind = reply.content_type.encode("latin-1")
        frame = encode_response(job.id, reply.status, kind, reply.header_length, reply.body)
        self._mirror.answered(time.monotonic(), self._core.measured.full_batch_s)
        self.write(frame)

    def bounced(self, job: Job) -> None:
        """Tell the gateway that the job was not run here: it dispatches it again."""
        self.publish()
        self.write(encode(Bounced(job.id, 0)))

    def publish_if_changed(self) -> None:
        """Publish the state if the gateway's estimate is off."""
        core, mirror = self._core, self._mirror
        off_s = abs(mirror.free_at - core.free_at) if core.in_service else 0.0
        counts_agree = mirror.waiting == len(core.waiting) and mirror.in_service == core.in_service
        known = counts_agree and off_s <= NEWS_SHARE * core.measured.full_batch_s
        if not known or self._published != (core.accepting, core.terminates_at):
            self.publish()

    def publish(self) -> None:
        """Publish the agent's state."""
        if not self._greeted:
            return
        core, mirror, now = self._core, self._mirror, time.monotonic()
        measured = core.measured
        waiting = len(core.waiting)
        state = State(
            self._seen,
            core.accepting,
            self._standby,
            waiting,
            core.in_service,
            max(0.0, core.free_at - now) if core.in_service else 0.0,
            core.terminates_at - now,
            core.max_batch / measured.full_batch_s,
            measured.batch_s,
        )
        self.write(encode(state))
        mirror.waiting, mirror.in_service, mirror.free_at = waiting, core.in_service, core.free_at
        self._published = (core.accepting, core.terminates_at)

    def leave(self) -> None:
        """Send Goodbye and close, once everything is written."""
        self.write(encode(Goodbye()))
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def on_frame(self, frame: Frame, now: float) -> None:
        """Take a request, or what the gateway says of itself and of its requests."""
        if type(frame) is not Request:
            self._on_control_frame(frame)
            return
        core = self._core
        self._seen += 1
        self._mirror.sent(now, core.measured.single_s)
        request = InferRequest(
            path=_text(frame.path),
            content_type=_text(frame.content_type),
            body=frame.body,
            header_length=frame.header_length,
            accept=_text(frame.accept),
        )
        arrived_at, deadline_at = now - frame.elapsed_us * 1e-6, now + frame.left_us * 1e-6
        finish_at = core.take(Job(self, frame.id, arrived_at, deadline_at, request, frame.forced), now)
        if finish_at is not None:
            self.publish()  # first: where the request goes now is decided with it
            self.write(encode(Bounced(frame.id, int((finish_at - now) * 1e6))))

    def on_frame_error(self, frame: Frame, error: Exception, now: float) -> None:
        """Answer the frame's request with 500."""
        if isinstance(frame, Request):
            request = InferRequest(path="", content_type="", body=b"")
            self._core.fail_unexpected(Job(self, frame.id, now, now, request), error, _text(frame.request_id))
        else:
            super().on_frame_error(frame, error, now)

    def _on_control_frame(self, frame: Frame) -> None:
        match frame:
            case Hello(version=version):
                if version != VERSION:
                    raise FrameError(f"the gateway uses frame version {version}, this agent {VERSION}")
                self._greeted = True
                self._core.clients.add(self)
                self.publish()
            case Cancel(id=id_):
                self._core.withdraw(self, id_)
            case _:
                raise FrameError(f"unexpected frame from gateway: {type(frame).__name__}")
