"""Admission control, queue and batches of one instance.

The Bouncer (`dispatch/bouncer.py`) admits a request that is predicted to finish in time, from the service times
measured here; gateways see its refusals as backpressure. None is admitted that would finish after the instance
terminates. One batch runs at a time; the requests that have come meanwhile are the next one, as far as their items
fit; or the batch that a gateway has formed. A health check of the backend runs beside it: a batch that hangs, or
FAILURES_IN_A_ROW failed ones, set `broken`. Where the model has variants, `agent/variants.py` says how many of
those that wait take part in a batch and who answers it; `measured` are the times of the fastest variant then,
which admission and gateways count on.
Where several models share the instance, `agent/device.py` says whose batch is next, and admission asks it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from mark.dispatch.batcher import batch_size, fits, places_after, places_ahead, places_left
from mark.dispatch.bouncer import late_finish_at, predicted_finish_at, stays
from mark.dispatch.instance.hung import hung_after_s, overdue_after_s
from mark.dispatch.instance.measured import MeasuredTimes
from mark.dispatch.variants.serving import Waiting
from mark.domain.errors import Misconfigured
from mark.domain.load.traffic import CLIENT_ERROR
from mark.ports import (
    Backend,
    BackendGone,
    InferReply,
    InferRequest,
    MortalBackend,
    ReplacingBackend,
    Trace,
    VariantBackend,
)
from mark.protocols.exchange import valid_reply
from mark.protocols.frames import State
from mark.protocols.oip.bodies import error_reply
from mark.serving.agent.batch_trace import AgentTracing, BatchTrace
from mark.serving.agent.device import Device
from mark.serving.agent.variants import AgentVariants
from mark.serving.passed_on_trace import passed_on
from mark.serving.unexpected_errors import INTERNAL_ERROR, UnexpectedErrors

log = logging.getLogger("mark.agent")

FAILURES_IN_A_ROW = 5
"""Consecutive failed batches after which the agent exits, to be restarted (a liveness threshold)."""


class Client(Protocol):
    """Sender of a request: a gateway's connection, or the agent's own HTTP port."""

    def answered(self, job: Job, reply: InferReply) -> None:
        """The model has answered."""
        ...

    def bounced(self, job: Job) -> None:
        """The job was not run here; another server may take it."""
        ...

    def publish_if_changed(self) -> None:
        """The queue has changed: publish the state if the client's estimate is off."""
        ...


class Job(NamedTuple):
    """One request in the queue; instants are the loop's clock.

    `forced`: late anyhow, admitted all the same while it is answered before its gateway gives up.
    """

    client: Client
    id: int
    arrived_at: float
    deadline_at: float
    request: InferRequest
    forced: bool = False
    #: number of the least variant that may answer
    floor: int = 0
    #: no other one may
    is_pinned: bool = False
    #: batch that its gateway formed; 0 for one that waits for a place in a batch of the agent's
    batch_id: int = 0


class AgentCore:
    """Queue, batches and admission of one instance.

    `in_service` counts items and `places` what waits (`dispatch/batcher.py`): requests, where each is one item.
    admission_factor: None admits everything. admission_sigmas: deviations beyond the expected finish that must be
    in time (`dispatch/policy.py`). give_up_s: the gateways' time-out, within which even a forced request must be
    answered, so that nothing is queued for nobody. cv: coefficient of variation of a batch's time, until it was
    measured. hung_after_s: no batch counts as hung before. beyond_s: seconds of requests larger than a batch
    (`dispatch/instance/measured.py`). variants: the model's, in place of `profile_s`; the backend is a
    VariantBackend then. tracing: records spans of sampled requests; None for none. device: shared with other
    queues; None for one of its own. sheds_late: nobody is made late for a request that is late itself. `largest`:
    items of the largest request.
    """

    def __init__(  # noqa: PLR0913 it is given every figure of its queue
        self,
        backend: Backend,
        *,
        profile_s: Sequence[float],
        admission_factor: float | None,
        admission_sigmas: float = 0.0,
        give_up_s: float = math.inf,
        cv: float = 0.0,
        hung_after_s: float = math.inf,
        beyond_s: Sequence[float] = (),
        variants: AgentVariants | None = None,
        tracing: AgentTracing | None = None,
        device: Device | None = None,
        sheds_late: bool = False,
    ) -> None:
        self.variants = variants
        self._device, self._sheds_late = device, sheds_late
        if variants is None:
            self.measured = MeasuredTimes(profile_s, cv, beyond_s)
            self.max_batch, self.largest = len(profile_s), self.measured.largest
        else:
            self.measured = variants.fastest_times
            self.max_batch, self.largest = variants.max_batch, 1
        self._running = self.measured
        self._variant = 0
        self.waiting: deque[Job] = deque()
        self.places = self.in_service = 0
        self.is_overdue = False
        self.free_at = 0.0
        self.terminates_at = math.inf
        self.accepting = False
        self.clients: set[Client] = set()
        self.answered = self.bounced = self.batches = self.failed = 0
        self.variant_batches: Counter[str] = Counter()
        self.busy_s = 0.0
        self.broken = asyncio.Event()
        self.unexpected = UnexpectedErrors(log)
        self._backend = backend
        self._factor = math.inf if admission_factor is None else admission_factor
        self._sigmas = admission_sigmas
        self._give_up_s = give_up_s
        self._failures = 0
        self._closing = self._abandoned = False
        self._hung_after_s = hung_after_s
        self._batch: list[Job] = []
        self._age_s = 0.0
        self._task: asyncio.Task[Sequence[InferReply]] | None = None
        self._tracing = tracing
        self._trace: BatchTrace | None = None

    @property
    def is_abandoned(self) -> bool:
        """True once its model hangs: nothing more of it runs."""
        return self._abandoned

    @property
    def is_empty(self) -> bool:
        """True where every admitted request is answered."""
        return not self.waiting and not self.in_service

    def state(self, seen: int, now: float, *, standby: bool) -> State:
        """State to publish after `seen` requests of a gateway."""
        measured, is_busy = self.measured, self.in_service > 0
        return State(
            seen,
            self.accepting,
            standby,
            self.places,
            self.in_service,
            max(0.0, self.free_at - now) if is_busy else 0.0,
            self.terminates_at - now,
            self.max_batch / measured.full_batch_s,
            measured.batch_s,
        )

    def floor_number(self, accuracy: float) -> int:
        """The least variant for a request with this accuracy floor. Errors: Misconfigured where none keeps it."""
        if self.variants is None:
            raise Misconfigured("the model has no variants: send no accuracy floor")
        return self.variants.serving.request_floor(accuracy)

    def pinned_number(self, name: str) -> int:
        """The variant that a request names. Errors: Misconfigured where it may not answer."""
        if self.variants is None:
            raise Misconfigured("the model has no variants: name none")
        return self.variants.serving.pinned(name)

    def take(self, job: Job, now: float) -> float | None:
        """Queue the job; returns its predicted finish where the Bouncer does not admit it.

        A queued job runs after `start` has been called.
        """
        measured, in_service, waiting, size = self.measured, self.in_service, self.places, job.request.size
        full_s, alone_s = measured.full_batch_s, measured.single_s
        if size != 1:
            waiting, alone_s = places_ahead(in_service, waiting, size, self.max_batch), measured.items_s(size)
        elif self.variants is not None:
            alone_s, full_s = self.variants.predicted_s(job.floor)
        finish_at = predicted_finish_at(now, self.free_at, in_service, waiting, self.max_batch, alone_s, full_s)
        late_at = late_finish_at(
            now, finish_at, in_service, waiting, self.max_batch, full_s, measured.cv, self._sigmas
        )
        if self._device is not None:
            finish_at, late_at = self._device.finish_at(self, now, job.deadline_at, self._sigmas)
        if not self._admits(job, finish_at, late_at, now):
            return finish_at
        self.waiting.append(job)
        if self.variants is not None:
            self.variants.lift(job.floor)
        self.places = self.places + 1 if size == 1 else places_after(self.places, size, self.max_batch)
        return None

    def _admits(self, job: Job, finish_at: float, late_at: float, now: float) -> bool:
        """True where the Bouncer admits a job with this expected finish and the late one."""
        deadline_at, factor = job.deadline_at, self._factor
        if job.forced:
            late_at, deadline_at, factor = finish_at, job.arrived_at + self._give_up_s, 1.0
        admitted = (
            self.accepting
            and (job.forced or not self.is_overdue)
            and stays(finish_at, late_at, self.terminates_at, job.arrived_at, deadline_at, factor)
        )
        if admitted and self._device is not None and (self._sheds_late if job.forced else factor < math.inf):
            admitted = self._device.harms_nobody(self, now, job.deadline_at, self._sigmas)
        self.bounced += not admitted
        return admitted

    def withdraw(self, client: Client, id_: int) -> None:
        """Remove a cancelled request from the queue."""
        kept = [job for job in self.waiting if job.client is not client or job.id != id_]
        if len(kept) != len(self.waiting):
            self._keep(kept)

    def drop(self, client: Client) -> None:
        """Remove all requests of a client that has gone from the queue."""
        kept = [job for job in self.waiting if job.client is not client]
        if len(kept) != len(self.waiting):
            log.info("requests of a gateway that left dropped", extra={"requests": len(self.waiting) - len(kept)})
            self._keep(kept)
            self.publish_if_changed()

    def _keep(self, jobs: list[Job]) -> None:
        """Let these be the queue."""
        self.waiting, self.places = deque(jobs), 0
        if self.variants is not None:
            self.variants.lift_for([job.floor for job in jobs])
        for job in jobs:
            self.places = places_after(self.places, job.request.size, self.max_batch)

    def start(self) -> None:
        """Begin a batch if none runs on the device and a queue is not empty."""
        if self._device is not None:
            self._device.start()
            return
        while self.waiting and not self.in_service and not self._abandoned:
            self.begin_batch()

    def begin_batch(self) -> None:
        """Begin a batch of what waits; where that raises, the first of it is answered with 500 instead."""
        try:
            self._begin()
        except Exception as error:  # noqa: BLE001 - the driver of batches: what waits behind is tried too
            job = self.waiting.popleft()
            self._keep(list(self.waiting))
            self.fail_unexpected(job, error)

    def _begin(self) -> None:
        now = time.monotonic()
        variants = self.variants
        if variants is None:
            items, count = self._next_batch()
        else:
            count, self._variant = self._formed_batch() or self._choose(variants, now)
            items, self._running = count, variants.times.of(self._variant)
        free_at = now + self._running.items_s(items)
        batch = list(itertools.islice(self.waiting, count))
        assert batch, "an idle server takes at least one of those that wait"
        if self._tracing is not None:
            self._trace = self._tracing.begin([job.request for job in batch], now)
        name = None if variants is None else variants.names[self._variant]
        task = asyncio.get_running_loop().create_task(_infer(self._backend, batch, name))
        task.add_done_callback(lambda done: self._ended(done, batch, now))
        for _ in batch:
            self.waiting.popleft()
        if variants is None:
            self.places = places_left(self.places, items, self.max_batch)
        else:
            self.places -= count  # a batch may leave some behind that would have fitted
            variants.lift_for([job.floor for job in self.waiting])
        self._task, self.in_service, self.free_at = task, items, free_at
        self._batch, self._age_s = batch, 0.0

    def _formed_batch(self) -> tuple[int, int] | None:
        """Size and variant of the batch that its gateway formed, where one is next."""
        head = self.waiting[0]
        if not head.batch_id:
            return None
        formed = itertools.takewhile(
            lambda job: job.batch_id == head.batch_id and job.client is head.client, self.waiting
        )
        return sum(1 for _ in formed), head.floor

    def _choose(self, variants: AgentVariants, now: float) -> tuple[int, int]:
        """Size and variant of a batch of those that wait before one that a gateway formed."""
        alone = itertools.takewhile(lambda job: not job.batch_id, self.waiting)
        return variants.choose([Waiting(job.deadline_at, job.floor, job.is_pinned) for job in alone], now)

    def _next_batch(self) -> tuple[int, int]:
        """Items and requests of the batch that an idle server takes now."""
        if self.places == len(self.waiting):  # a request has a place at least: each is one item
            count = batch_size(self.places, self.max_batch)
            return count, count
        items = count = 0
        for job in self.waiting:
            if not fits(items, job.request.size, self.max_batch):
                break
            items += job.request.size
            count += 1
        return items, count

    def publish_if_changed(self) -> None:
        """Have every client publish the state if its estimate is off."""
        for client in tuple(self.clients):
            try:
                client.publish_if_changed()
            except Exception as error:  # noqa: BLE001 - the others are told all the same
                self.unexpected.note(error)

    def fail_unexpected(self, job: Job, error: Exception, request_id: str = "") -> None:
        """Log an unexpected exception and answer its request with 500."""
        self.unexpected.note(error, request_id=request_id)
        self._refuse(job)

    def _refuse(self, job: Job) -> None:
        self.failed += 1
        self._give(job, error_reply(500, INTERNAL_ERROR))

    def _give(self, job: Job, reply: InferReply) -> bool:
        try:
            job.client.answered(job, valid_reply(reply))
        except Exception as error:  # noqa: BLE001 - the driver of one answer: the batch's others go out
            self.unexpected.note(error)
            return False
        return True

    def check_timeouts(self, passed_s: float) -> None:
        """Age the batch that runs; where it hangs, have the backend replace what hangs of it, or abandon it.

        Periods are counted, not the clock: a process that was stopped for a while has not waited meanwhile.
        """
        if isinstance(self._backend, MortalBackend) and self._backend.is_gone and not self._abandoned:
            self._abandon(error_reply(500, "the model failed"))
            return
        if not self.in_service:
            return
        self._age_s += passed_s
        items = self.in_service
        expected_s = self._running.items_s(items)
        hung_s = hung_after_s(expected_s, self._hung_after_s, is_first=not self._running.knows(items))
        if self._age_s > hung_s:
            if isinstance(self._backend, ReplacingBackend) and self._backend.replace_hung():
                log.error("batch hung for %.1f s; the replicas that have it are replaced", self._age_s)
                self._age_s = 0.0
            else:
                fields = {"requests": len(self._batch), "waiting": len(self.waiting), "expected_s": expected_s}
                log.error("batch hung for %.1f s; its model is started again", self._age_s, extra=fields)
                self._abandon(error_reply(504, f"the model did not answer within {self._age_s:.0f} s"))
        elif self._device is not None and not self.is_overdue and self._age_s > overdue_after_s(expected_s):
            log.warning("batch runs for %.1f s; the instance's other models no longer wait for it", self._age_s)
            # When it ends is not known: gateways count on the worst, and send what they can elsewhere.
            self.is_overdue, self.free_at = True, time.monotonic() + hung_s - self._age_s
            self.publish_if_changed()
            self.start()

    def _abandon(self, reply: InferReply) -> None:
        """Answer what runs, bounce what waits and set `broken`: nothing interrupts a model that hangs."""
        running = self._batch if self.in_service else []
        if running:
            self.busy_s += self._age_s
        self._abandoned, self.accepting, self.in_service = True, False, 0
        self.failed += len(running)
        for job in running:
            self._give(job, reply)
        self._end_trace(len(running), failed=True)
        while self.waiting:
            job = self.waiting.popleft()
            job.client.bounced(job)
        self.places = 0
        self.publish_if_changed()
        self.broken.set()
        self.start()  # the device's other queues

    def trace_of(self, field: bytes, now: float) -> Trace | None:
        """The trace of a request that came with this in its frame; recorded here where spans are."""
        return passed_on(field) if self._tracing is None else self._tracing.trace_of(field, now)

    def _end_trace(self, items: int, *, failed: bool) -> None:
        if self._trace is not None:
            variant = None if self.variants is None else self.variants.names[self._variant]
            trace, self._trace = self._trace, None
            trace.ended(items=items, variant=variant, failed=failed)

    async def close(self) -> None:
        """Cancel the batch that runs; its requests are not answered."""
        self._closing = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Sequence[InferReply]], batch: list[Job], began_at: float) -> None:
        if self._abandoned or (task.cancelled() and self._closing):
            return
        now, items = time.monotonic(), self.in_service
        self.in_service, self.is_overdue = 0, False
        self.free_at = now
        self.batches += 1
        if self.variants is not None:
            self.variant_batches[self.variants.names[self._variant]] += 1
        self.busy_s += now - began_at
        error = asyncio.CancelledError("by the backend") if task.cancelled() else task.exception()
        if isinstance(error, BackendGone):
            self.waiting.extendleft(reversed(batch))
            self._end_trace(items, failed=True)
            self._abandon(error_reply(500, "the model failed"))
            return
        if error is None:
            self._failures = 0
            replies = task.result()
            self._measure(replies, items, now - began_at)
        else:
            replies = self._failed(error, len(batch))
        for job, reply in zip(batch, replies, strict=True):
            if not self._give(job, reply):
                self._refuse(job)
        self._end_trace(items, failed=error is not None)
        self.answered += len(batch)
        self.start()
        self.publish_if_changed()

    def _measure(self, replies: Sequence[InferReply], items: int, took_s: float) -> None:
        """Measure a batch that the model answered; the time to read an invalid request is not the model's."""
        try:
            if all(reply.status < CLIENT_ERROR for reply in replies):
                if self.variants is None:
                    self.measured.note(items, took_s)
                else:
                    self.variants.note(self._variant, items, took_s)
        except Exception as error:  # noqa: BLE001 - the batch has its answers all the same
            self.unexpected.note(error)

    def _failed(self, error: BaseException, size: int) -> list[InferReply]:
        """The replies of a batch whose backend raised: 500 for each request."""
        self.failed += size
        self._failures += 1
        log.error("backend failed", exc_info=error, extra={"requests": size})
        if self._failures >= FAILURES_IN_A_ROW:
            self.broken.set()
        return [error_reply(500, "the model failed")] * size


async def _infer(backend: Backend, batch: list[Job], variant: str | None) -> Sequence[InferReply]:
    requests = [job.request for job in batch]
    if variant is None:
        replies = await backend.infer(requests)
    else:
        assert isinstance(backend, VariantBackend), "checked when the agent began"
        found = await backend.infer_variant(requests, variant)
        replies = [reply._replace(variant=variant) if reply.status < CLIENT_ERROR else reply for reply in found]
    if len(replies) != len(batch):
        raise RuntimeError(f"the backend returned {len(replies)} responses for {len(batch)} requests")
    return replies
