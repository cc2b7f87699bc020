"""Overflow of one model to Lambda: calls up to a cap, and the number of environments believed warm.

Only here has a request a task of its own: a call takes milliseconds elsewhere, and the cap bounds their number.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mark.dispatch.overflow import BUCKETS, believed_warm, lambda_finish_at, note_in_flight, warms_one_more
from mark.domain.errors import MarkError, OutcomeUnknown, RetryLater
from mark.domain.offerings.offering import LambdaOffering
from mark.ports import Overflow, OverflowReply
from mark.protocols.exchange import valid_reply
from mark.protocols.frames import Response
from mark.service_spec import ServedModel
from mark.serving.gateway.request import InferenceRequest, Loss
from mark.serving.gateway.telemetry.traffic_tally import Server, Tally, VersionTally
from mark.serving.unexpected_errors import UnexpectedErrors

log = logging.getLogger("mark.gateway")
BASE64 = 4 / 3
PING_WITHIN_S = 60.0
"""Longer than any cold start; nobody waits for it."""
ENVELOPE_BYTES = 4096
"""Room for the payload's own fields."""


class ServiceTime(Protocol):
    """The service's clock, which environments' idle lives and the bill follow."""

    def service_now(self) -> float:
        """Service time now."""
        ...

    def speed(self) -> float:
        """Service seconds per real second."""
        ...


class CallsRoute(Protocol):
    """The router whose request a call answers: it counts the call, and decides where Lambda refuses."""

    name: str
    served: ServedModel
    tally: Tally
    version_tally: VersionTally | None
    unexpected: UnexpectedErrors

    @property
    def give_up_s(self) -> float:
        """Seconds after its arrival at which a request is given up."""
        ...

    def answer(self, request: InferenceRequest, response: Response, by: Server, now: float) -> None:
        """Answer with a model's response."""
        ...

    def bounced(self, request: InferenceRequest, /, now: float, *, lambda_refused: bool = False) -> None:
        """Decide again about a request that found no room."""
        ...

    def lost(self, request: InferenceRequest, /, loss: Loss, *, lambda_refused: bool = False) -> None:
        """Decide again about a request whose server was lost."""
        ...

    def expire(self, request: InferenceRequest) -> None:
        """Answer a request whose time is over."""
        ...

    def forget(self, request: InferenceRequest) -> None:
        """Count a request that nobody waits for."""
        ...

    def fail(self, request: InferenceRequest, status: int, text: str) -> None:
        """Answer with an error of the service."""
        ...

    def fail_unexpected(self, request: InferenceRequest, error: BaseException, status: int, text: str) -> None:
        """Log an unexpected exception and answer its request with an error."""
        ...


class _Room:
    """Calls of a model's function, of all its versions together."""

    def __init__(self) -> None:
        self.beliefs: list[NDArray[np.int64]] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.in_flight = 0
        self.closed = False


class LambdaCalls:
    """Calls of one function, or of one as a version of the model; none while it is `closed`."""

    def __init__(
        self,
        overflow: Overflow,
        offering: LambdaOffering,
        function: str,
        *,
        clock: ServiceTime,
        version: str = "",
        room: _Room | None = None,
    ) -> None:
        self._overflow, self._offering, self._function, self._version = overflow, offering, function, version
        self._clock = clock
        self._room = room or _Room()
        self._own_in_flight = 0
        self._cold_gib_s = offering.memory_gib * offering.cold_start_s
        self._belief = np.zeros((2, BUCKETS), dtype=np.int64)
        self._room.beliefs.append(self._belief)
        self._most_bytes = (offering.payload_mib * 2**20 - ENVELOPE_BYTES) / BASE64

    def of_version(self, version: str, function: str) -> LambdaCalls:
        """Calls of the function that answers as a version: its environments are its own, the limit is shared."""
        return LambdaCalls(
            self._overflow, self._offering, function, clock=self._clock, version=version, room=self._room
        )

    @property
    def in_flight(self) -> int:
        """Calls under way, of all versions."""
        return self._room.in_flight

    @property
    def closed(self) -> bool:
        """True while nothing is called, of no version."""
        return self._room.closed

    @closed.setter
    def closed(self, closed: bool) -> None:
        """Call nothing from now on, of no version, or go on."""
        self._room.closed = closed

    @property
    def warm(self) -> int:
        """Environments believed warm now."""
        return int(believed_warm(self._belief, self._clock.service_now()))

    def note_warmed(self, at: float, share: int) -> None:
        """Count environments that the controller's warm-up left for this gateway; at: service time."""
        note_in_flight(self._belief, at, share)

    def forget_warm(self) -> None:
        """Reset the belief of all versions: the function was made anew and has no environment."""
        for belief in self._room.beliefs:
            belief[:] = 0

    def takes(self, body_bytes: int, beside: int = 0) -> bool:
        """True where one more call is allowed, with a body of that size. beside: others about to be made."""
        room = self.in_flight + beside < self._offering.concurrency and not self.closed
        return room and body_bytes <= self._most_bytes

    def finish_at(self, now: float, beside: int = 0) -> float:
        """The predicted finish of a call made now. beside: others about to be made."""
        return lambda_finish_at(
            now, self._own_in_flight + beside, self.warm, self._offering.latency_s, self._offering.cold_start_s
        )

    def call(self, router: CallsRoute, request: InferenceRequest) -> None:
        """Send the request to Lambda; where it refuses, the router decides again without it."""
        self._begin()
        note_in_flight(self._belief, self._clock.service_now(), self._own_in_flight)
        if request.trace is not None:
            named = {"faas.invoked_name": self._function, "faas.invoked_provider": "aws"}
            request.trace.sent("lambda", time.monotonic(), {**named})
        task = asyncio.get_running_loop().create_task(self._call(router, request))
        self._room.tasks.add(task)
        task.add_done_callback(lambda done: self._done(done, router, request))

    def warm_one_more(self, router: CallsRoute, now: float, deadline_at: float) -> None:
        """Start an environment for a request that is shed because Lambda is cold, where one more is worth it."""
        offering = self._offering
        if self.closed or not warms_one_more(
            now, deadline_at, offering.latency_s, self.in_flight, offering.concurrency
        ):
            return
        self._begin()
        task = asyncio.get_running_loop().create_task(self._ping(router))
        self._room.tasks.add(task)
        task.add_done_callback(lambda done: self._pinged(done, router))

    async def close(self) -> None:
        """Cancel the calls in flight; their clients are gone with the gateway."""
        for task in self._room.tasks:
            task.cancel()
        await asyncio.gather(*self._room.tasks, return_exceptions=True)

    def _begin(self) -> None:
        self._own_in_flight += 1
        self._room.in_flight += 1

    def _end(self) -> None:
        self._own_in_flight -= 1
        self._room.in_flight -= 1

    async def _call(self, router: CallsRoute, request: InferenceRequest) -> None:
        if request.is_unasked:  # its client left in this turn of the loop
            self._end()
            router.forget(request)
            return
        asked = request.infer_request()._replace(version=self._version)
        left_s = max(0.001, request.arrived_at + router.give_up_s - time.monotonic())
        try:
            answered = await self._overflow.invoke(self._function, asked, left_s)
        except MarkError as error:
            self._refused(router, request, error)
            return
        finally:
            self._end()
        router.tally.invocations += 1
        router.tally.cold += answered.cold
        self._bill(router, answered)
        if request.trace is not None:
            request.trace.note(cold=answered.cold, gib_s=answered.gib_s)
        if answered.not_run:
            told = {"function": self._function, "model": router.name, "version": self._version}
            log.warning("Lambda environment without the version's files", extra=told)
            self._refused(router, request, RetryLater("Lambda could not get the version's files"))
            return
        if answered.lost:
            log.warning("Lambda environment lost", extra={"function": self._function, "model": router.name})
            router.lost(request, Loss("lambda", 1), lambda_refused=True)
            return
        reply = valid_reply(answered.reply)
        response = Response(0, reply.status, reply.content_type.encode(), reply.header_length, reply.body)
        router.answer(request, response, "lambda", time.monotonic())

    async def _ping(self, router: CallsRoute) -> None:
        try:
            answered = await self._overflow.warm(self._function, PING_WITHIN_S, self._version)
            if not (answered.lost or answered.not_run):
                note_in_flight(self._belief, self._clock.service_now(), self._own_in_flight)
        except MarkError as error:
            log.info("Lambda environment not warmed", extra={"function": self._function, "reason": str(error)})
        else:
            self._bill(router, answered)
        finally:
            self._end()

    def _bill(self, router: CallsRoute, answered: OverflowReply) -> None:
        """Count what the call is billed; a cold start counts once, however fast the clock goes."""
        stands_for = self._clock.speed()
        cold_gib_s = min(answered.gib_s, self._cold_gib_s) if answered.cold else 0.0
        gib_s = stands_for * (answered.gib_s - cold_gib_s) + cold_gib_s
        router.tally.billed += stands_for
        router.tally.gib_s += gib_s
        if router.version_tally is not None:
            router.version_tally.billed(stands_for, gib_s)

    def _refused(self, router: CallsRoute, request: InferenceRequest, error: MarkError) -> None:
        """Dispatch the request again without Lambda, while there is time.

        A call whose outcome is unknown is executed a second time only where the model allows it.
        """
        if not isinstance(error, RetryLater):
            log.warning(
                "Lambda refused the call; it is not repeated",
                extra={"function": self._function, "reason": str(error)},
            )
        now = time.monotonic()
        if request.trace is not None:
            request.trace.returned("refused", now)
        if now - request.arrived_at >= router.give_up_s:
            router.expire(request)
        elif isinstance(error, OutcomeUnknown) and not router.served.model.redispatch:
            text = "no response from Lambda; the model does not allow an automatic retry"
            router.tally.failed += 1
            router.tally.says_failed(text)
            router.fail(request, 502, text)
        else:
            router.bounced(request, now, lambda_refused=True)

    def _done(self, task: asyncio.Task[None], router: CallsRoute, request: InferenceRequest) -> None:
        """Answer the request also where the call raised an unexpected exception."""
        self._room.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            router.fail_unexpected(request, error, 502, "Lambda could not be called")

    def _pinged(self, task: asyncio.Task[None], router: CallsRoute) -> None:
        self._room.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            router.unexpected.note(error, function=self._function)
