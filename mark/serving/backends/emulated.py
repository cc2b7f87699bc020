"""An emulated backend: takes the time that the offering's profile states, with its noise, and answers zeros.

Dozens of instances then fit on two cores, and a live run can be compared with a replay. A burstable type pays with
CPU credits and slows to its baseline when they end. Credits follow service time, as billing does; the time of a
batch is real.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

import numpy as np

from mark.cloudmodel.noise import noise_factor
from mark.dispatch.variants.serving import VariantServing
from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import Offering
from mark.domain.tensor import TensorSpec
from mark.ports import InferReply, InferRequest, StreamedReply
from mark.protocols.exchange import row_count, zeros
from mark.protocols.oip.bodies import Tensors
from mark.protocols.oip.generate import SSE_TYPE, write_event
from mark.protocols.oip.replies import MODEL_VERSION
from mark.serving.backends.answering import ModelFailed
from mark.serving.backends.awaited_answering import answer_async
from mark.serving.backends.cpu_credits import SECONDS_PER_CREDIT, CpuCredits
from mark.serving.passed_on_trace import model_call, trace_of

MOST_ANSWER_BYTES = 2**28
"""Zeros of a larger answer are not made: no frame takes it."""
PARTS = 8
"""Events of an emulated stream."""
SAME_TURN_S = 0.002
"""A batch that begins so soon after the last one ended follows it without a gap: timers are a millisecond off."""


class EmulatedBackend:
    """A stand-in for a model. `now`: service time, which moves `speed()` times as fast as real time.

    rng: draws how much longer or shorter a batch takes than its profile says, where the offering's times vary.
    credits_left: CPU credits at the start; what a launch of the type brings when it is left out. variants: the
    model's, each of which takes its own time.
    """

    platform = "emulated"

    def __init__(  # noqa: PLR0913 it is given all that it stands in for
        self,
        offering: Offering,
        *,
        name: str,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        now: Callable[[], float],
        speed: Callable[[], float],
        rng: np.random.Generator,
        credits_left: float | None = None,
        variants: VariantServing | None = None,
        version: str = MODEL_VERSION,
    ) -> None:
        self._variants, self._version = variants, version
        self._type = offering.instance_type.name
        self._profile, self._full_s = offering.profile, offering.latency_s
        self._cv, self._rng = offering.cv, rng
        self._name = name
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._now, self._speed = now, speed
        self._credits_left = credits_left
        self._burst = offering.instance_type.credits
        self._account: CpuCredits | None = None
        self._free_at = 0.0
        self._streams = 0

    @property
    def credits(self) -> float | None:
        """CPU credits (vCPU minutes) left now; None for a type without them."""
        return None if self._account is None else self._account.balance(self._now())

    @property
    def surplus_vcpu_s(self) -> float:
        """VCPU seconds used beyond the credits, which an unlimited type is billed for."""
        return 0.0 if self._account is None else self._account.surplus * SECONDS_PER_CREDIT

    async def start(self) -> None:
        """Give a burstable type its credits; there is no model to load."""
        if self._burst is not None:
            balance = self._burst.launch_credits if self._credits_left is None else self._credits_left
            self._account = CpuCredits(self._burst, balance=balance, now=self._now())

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        """Zeros, after the time that so many items take."""
        return await self._infer(batch, self._profile.latency_s, self._version)

    async def infer_variant(self, batch: Sequence[InferRequest], variant: str) -> Sequence[InferReply]:
        """The same after the time that the variant takes. Errors: Misconfigured where there is none."""
        if self._variants is None:
            raise Misconfigured(f"{self._name} has no variants")
        table = self._variants.table
        row = table.rows(self._type)[table.number(variant)]
        return await self._infer(batch, lambda items: row[items - 1], variant)

    async def _infer(
        self, batch: Sequence[InferRequest], latency_s: Callable[[int], float], version: str
    ) -> Sequence[InferReply]:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        if abs(began_at - self._free_at) < SAME_TURN_S:
            began_at = self._free_at
        replies = await answer_async(batch, self._name, self.inputs, self._zeros, version)
        items = sum(request.size for request, reply in zip(batch, replies, strict=True) if reply.status == 200)
        if items:
            self._free_at = began_at + self._work(latency_s(items))
            with model_call(trace_of(batch)):
                await asyncio.sleep(self._free_at - loop.time())
        return replies

    async def stream(self, request: InferRequest) -> StreamedReply:  # noqa: ARG002 - it is not read
        """PARTS events of zeros, evenly over the time of a stream among those that run: emulated, named so."""
        self._streams += 1
        level = min(self._streams, self._profile.max_batch)
        return StreamedReply(200, SSE_TYPE, _EmulatedParts(self, self._work(self._profile.latency_s(level))))

    def event(self) -> bytes:
        """One part of an emulated stream."""
        return write_event(self._name, self._version, zeros(self.outputs, 1))

    def stream_over(self) -> None:
        """One stream less runs."""
        self._streams -= 1

    async def close(self) -> None:
        """No resource to release."""

    async def _zeros(self, tensors: Tensors) -> Tensors:
        rows = row_count(tensors)
        answer_bytes = rows * sum(8 * math.prod(abs(size) for size in spec.shape[1:]) for spec in self.outputs)
        if answer_bytes > MOST_ANSWER_BYTES:
            raise ModelFailed(
                f"the response to {rows} rows would take {answer_bytes} bytes; send fewer rows", status=413
            )
        return zeros(self.outputs, rows)

    def _work(self, latency_s: float) -> float:
        work_s = latency_s * noise_factor(self._cv, float(self._rng.standard_normal()))
        if self._account is None:
            return work_s
        return self._account.spend(self._now(), work_s, self._speed())


class _EmulatedParts:
    """The events of one emulated stream, which takes `work_s`."""

    def __init__(self, backend: EmulatedBackend, work_s: float) -> None:
        self._backend, self._pause_s, self._left = backend, work_s / PARTS, PARTS

    def __aiter__(self) -> _EmulatedParts:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        await asyncio.sleep(self._pause_s)
        self._left -= 1
        return self._backend.event()

    async def aclose(self) -> None:
        """Its slot is free."""
        self._backend.stream_over()
