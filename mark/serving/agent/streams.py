"""Queue, slots and admission of an instance whose answers stream.

A stream keeps one of the instance's slots from its start to its end (`dispatch/instance/slots.py`); the backend
batches by itself what runs at the same time. Each has a window (`protocols/stream_window.py`): while it is used up
nothing more is asked of the backend for this stream, and the others go on. Until the first part has come a request
that fails is answered as any other, so that its status says so; later the stream ends with an error. One that is
withdrawn, or whose gateway has gone, is cancelled at the backend. One that brings nothing for too long hangs, and
ends alone; FAILURES_IN_A_ROW of these, or of unexpected exceptions, set `broken`, and so does one that cannot be
ended.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import Protocol, cast

from mark.dispatch.bouncer import late_finish_at
from mark.dispatch.instance.hung import FIRST_FACTOR
from mark.dispatch.instance.slots import silent_after_s, stream_finish_at
from mark.domain.errors import RetryLater
from mark.domain.load.traffic import CLIENT_ERROR
from mark.ports import InferReply, StreamedReply, StreamingBackend
from mark.protocols.exchange import WITHOUT_BODY, is_content_type, valid_reply
from mark.protocols.frames import State
from mark.protocols.oip.bodies import error_reply
from mark.protocols.stream_window import SendWindow
from mark.serving.agent.batch_trace import AgentTracing, BatchTrace
from mark.serving.agent.queue import FAILURES_IN_A_ROW, AgentCore, Client, Job
from mark.serving.backends.answering import ModelFailed

log = logging.getLogger("mark.agent")
MODEL_FAILED = "the model failed"
HUNG = "hung"
OK = 200
MEASURE_EACH_S = 0.1
"""Ten streams a second are measured: with a thousand slots one takes a millisecond."""
MAX_REFUSAL_BYTES = 64 * 1024
"""A backend's error is passed on up to that length."""


class StreamClient(Client, Protocol):
    """Sender of a request whose answer streams. `answered` stands for all three where there is no stream."""

    def began(self, job: Job, status: int, content_type: str) -> None:
        """The first part is there."""
        ...

    def part(self, job: Job, body: bytes) -> None:
        """The next bytes; the client gives credit for them in time."""
        ...

    def ended(self, job: Job, error: str = "") -> None:
        """The stream is over. error: why it is not whole."""
        ...


class _Running:
    """One stream. `level`: streams that ran when it began, itself counted. `silent_s`: since the last part.

    `is_told`: its client has heard how it ends.
    """

    __slots__ = (
        "began_at", "client", "ends_at", "has_begun", "is_held", "is_told", "job", "level", "opened", "silent_s",
        "task", "trace", "was_held", "why", "window",
    )  # fmt: skip

    def __init__(self, job: Job, now: float, level: int, takes_s: float) -> None:
        self.job, self.client = job, cast("StreamClient", job.client)
        self.began_at, self.ends_at, self.level = now, now + takes_s, level
        self.window, self.opened = SendWindow(), asyncio.Event()
        self.has_begun = self.is_held = self.was_held = self.is_told = False
        self.silent_s = 0.0
        #: why it was cancelled here
        self.why = ""
        self.task: asyncio.Task[None] | None = None
        #: its spans; None where it is not traced
        self.trace: BatchTrace | None = None


class StreamCore(AgentCore):
    """AgentCore of a model whose answers stream; its arguments mean the same. `max_batch` are its slots."""

    def __init__(
        self,
        backend: StreamingBackend,
        *,
        profile_s: Sequence[float],
        admission_factor: float | None,
        admission_sigmas: float = 0.0,
        give_up_s: float = math.inf,
        cv: float = 0.0,
        hung_after_s: float = math.inf,
        tracing: AgentTracing | None = None,
    ) -> None:
        super().__init__(
            backend,
            profile_s=profile_s,
            admission_factor=admission_factor,
            admission_sigmas=admission_sigmas,
            give_up_s=give_up_s,
            cv=cv,
            hung_after_s=hung_after_s,
            tracing=tracing,
        )
        self._streaming = backend
        self._streams: dict[tuple[Client, int], _Running] = {}
        self._measure_at = 0.0
        self.largest = 1

    def state(self, seen: int, now: float, *, standby: bool) -> State:
        """State to publish: of the times only those of a stream alone and of one in a full instance."""
        measured = self.measured
        times = (measured.single_s, measured.full_batch_s)
        return super().state(seen, now, standby=standby)._replace(batch_s=times, slots=self.max_batch)

    def take(self, job: Job, now: float) -> float | None:
        """Queue the job; returns its predicted end where the Bouncer does not admit it."""
        measured, running = self.measured, len(self._streams)
        alone_s, stream_s = measured.items_s(min(running + 1, self.max_batch)), measured.full_batch_s
        free = self.max_batch - running
        ends_at = () if self.places < free else [one.ends_at for one in self._streams.values()]
        finish_at = stream_finish_at(now, free, ends_at, self.places, alone_s, stream_s)
        ahead = running if running >= self.max_batch else 0
        late_at = late_finish_at(
            now, finish_at, ahead, self.places, self.max_batch, stream_s, measured.cv, self._sigmas
        )
        if not self._admits(job, finish_at, late_at, now):
            return finish_at
        self.waiting.append(job)
        self.places += 1
        return None

    def credit(self, client: Client, id_: int, size: int) -> None:
        """Let a stream send so many bytes more. Errors: FrameError. One that has ended needs none."""
        running = self._streams.get((client, id_))
        if running is not None:
            running.window.add(size)
            running.opened.set()

    def withdraw(self, client: Client, id_: int) -> None:
        """Cancel a stream, or remove its request from the queue."""
        running = self._streams.get((client, id_))
        if running is None:
            super().withdraw(client, id_)
        else:
            self._cancel(running, "withdrawn")

    def drop(self, client: Client) -> None:
        """Cancel all streams of a client that has gone, and remove its requests from the queue."""
        super().drop(client)
        for running in tuple(self._streams.values()):
            if running.client is client:
                self._cancel(running, "its gateway has gone")

    def start(self) -> None:
        """Begin what waits, while slots are free."""
        while self.waiting and len(self._streams) < self.max_batch:
            job = self.waiting.popleft()
            self.places -= 1
            now, level = time.monotonic(), len(self._streams) + 1
            running = _Running(job, now, level, self.measured.items_s(level))
            self._streams[job.client, job.id] = running
            if self._tracing is not None:
                running.trace = self._tracing.begin([job.request], now, "stream")
            self._count(now)
            running.task = asyncio.get_running_loop().create_task(self._run(running))
            running.task.add_done_callback(functools.partial(self._over, running))

    def check_timeouts(self, passed_s: float) -> None:
        """End the streams that hang. Those that wait for their client do not.

        One that does not end though it was cancelled keeps its slot: `broken`, as for a batch that hangs.
        """
        for running in tuple(self._streams.values()):
            waits = running.is_held and not running.why
            running.silent_s = 0.0 if waits else running.silent_s + passed_s
            floor_s = self._hung_after_s * (1.0 if self.measured.knows(running.level) else FIRST_FACTOR)
            if running.silent_s <= silent_after_s(self.measured.full_batch_s, floor_s):
                continue
            fields = {"streams": len(self._streams)}
            if running.why and not self.broken.is_set():
                text = "cancelled stream has not ended for %.1f s; the agent exits to be restarted"
                log.error(text, running.silent_s, extra=fields)
                self.accepting = False
                self.broken.set()
            elif not running.why:
                log.error("stream hung for %.1f s", running.silent_s, extra=fields)
                self._note_failure()
                self._fail(running, 504, f"the model sent nothing for {running.silent_s:.0f} s")
                self._cancel(running, HUNG)

    async def close(self) -> None:
        """Cancel all streams; their requests are not answered."""
        self._closing = True
        tasks = [running.task for running in self._streams.values() if running.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _count(self, now: float) -> None:
        """Bring `in_service` and `free_at`, when the next slot is free, up to date."""
        self.in_service = len(self._streams)
        is_full = self.in_service >= self.max_batch
        self.free_at = min(one.ends_at for one in self._streams.values()) if is_full else now

    def _cancel(self, running: _Running, why: str) -> None:
        if not running.why and running.task is not None:
            running.why, running.silent_s = why, 0.0
            running.task.cancel()

    async def _run(self, running: _Running) -> None:
        reply = await self._streaming.stream(running.job.request)
        if reply.status >= CLIENT_ERROR:
            refusal = await _refusal(reply)
            running.is_told = True
            running.client.answered(running.job, valid_reply(refusal))
            return
        async with aclosing(reply.parts) as parts:
            if reply.status < OK or reply.status in WITHOUT_BODY:
                raise ModelFailed(f"the model streams with status {reply.status}, which has no body", status=502)
            if not is_content_type(reply.content_type):
                raise ModelFailed("the model answered with an invalid content type", status=502)
            async for part in parts:
                running.silent_s = 0.0
                self._begin_answer(running, reply)
                await self._send(running, part)
        self._begin_answer(running, reply)

    def _begin_answer(self, running: _Running, reply: StreamedReply) -> None:
        if not running.has_begun:
            running.has_begun = True
            running.client.began(running.job, reply.status, reply.content_type)

    async def _send(self, running: _Running, part: bytes) -> None:
        """Send a part as the window allows."""
        at, size = 0, len(part)
        while at < size:
            taken = running.window.take(size - at)
            if taken:
                running.client.part(running.job, part if taken == size else part[at : at + taken])
                at += taken
                continue
            running.is_held = running.was_held = True
            running.opened.clear()
            await running.opened.wait()
            running.is_held = False

    def _over(self, running: _Running, task: asyncio.Task[None]) -> None:
        """Free the slot of a stream that is over, however it ended."""
        now = time.monotonic()
        del self._streams[running.client, running.job.id]
        self._count(now)
        self.batches += 1
        self.answered += 1
        self.busy_s += (now - running.began_at) / self.max_batch
        if running.trace is not None:
            failed = running.why == HUNG or (not task.cancelled() and task.exception() is not None)
            running.trace.ended(items=1, variant=None, failed=failed)
        if self._closing:
            return
        try:
            self._finish(running, task, now)
        except Exception as error:  # noqa: BLE001 - the driver of one stream: those that wait go on
            self.unexpected.note(error)
        self.start()
        self.publish_if_changed()

    def _finish(self, running: _Running, task: asyncio.Task[None], now: float) -> None:
        if running.is_told:
            return
        if task.cancelled() or running.why:
            running.client.ended(running.job, running.why or "cancelled by the backend")
            return
        error = task.exception()
        if error is None:
            self._failures = 0
            running.client.ended(running.job)
            self._measure_stream(running, now)
            return
        if isinstance(
            error, ModelFailed | RetryLater
        ):  # as a batch's, it is the request's affair, or the server's
            self._failures = 0
            self._fail(running, error.status if isinstance(error, ModelFailed) else 503, str(error))
        else:
            log.error("backend failed in a stream", exc_info=error)
            self._note_failure()
            self._fail(running, 500, MODEL_FAILED)

    def _measure_stream(self, running: _Running, now: float) -> None:
        """Measure a stream that is whole; of one that was held back, part was its client's time."""
        if not running.was_held and now >= self._measure_at:
            self._measure_at = now + MEASURE_EACH_S
            self.measured.note(running.level, now - running.began_at)

    def _note_failure(self) -> None:
        """Count one that says something of this backend."""
        self._failures += 1
        if self._failures >= FAILURES_IN_A_ROW:
            self.broken.set()

    def _fail(self, running: _Running, status: int, text: str) -> None:
        """Answer with an error where nothing was sent; else end the stream with it."""
        self.failed += 1
        running.is_told = True
        if running.has_begun:
            running.client.ended(running.job, text)
        else:
            running.client.answered(running.job, error_reply(status, text))


async def _refusal(reply: StreamedReply) -> InferReply:
    body = b""
    async with aclosing(reply.parts) as parts:
        async for part in parts:
            body += part
            if len(body) >= MAX_REFUSAL_BYTES:
                break
    return InferReply(reply.status, reply.content_type, body[:MAX_REFUSAL_BYTES])
