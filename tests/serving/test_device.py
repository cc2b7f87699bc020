"""Queues that take turns on one device: who is next, and who may still join."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from mark.ports import InferReply, InferRequest
from mark.serving.agent.device import Device
from mark.serving.agent.queue import AgentCore, Job
from tests.serving.harness import until

TAKES_S = 10.0
"""By the profile; a test's clock goes no further than a moment."""


class Held:
    """A backend that notes whose batch it got and holds it until it is let go."""

    def __init__(self, name: str, order: list[str]) -> None:
        self._name, self._order = name, order
        self.free = asyncio.Event()

    async def start(self) -> None: ...

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        self._order.append(self._name)
        await self.free.wait()
        return [InferReply(status=200, content_type="", body=b"") for _ in batch]

    async def close(self) -> None: ...


class Asker:
    """A client that takes whatever it gets."""

    def answered(self, job: Job, reply: InferReply) -> None: ...
    def bounced(self, job: Job) -> None: ...
    def publish_if_changed(self) -> None: ...


def core(device: Device, backend: Held) -> AgentCore:
    made = AgentCore(backend, profile_s=(TAKES_S,), admission_factor=1.0, device=device, sheds_late=True)
    device.join(made)
    made.accepting = True
    return made


def job(due_s: float, *, forced: bool = False) -> Job:
    """A request that is due so many seconds from now."""
    now = time.monotonic()
    return Job(Asker(), 1, now, now + due_s, InferRequest(path="", content_type="", body=b""), forced)


async def test_the_queue_whose_oldest_request_is_due_first_is_next() -> None:
    order: list[str] = []
    device, backends = Device(), [Held(name, order) for name in "abc"]
    cores = [core(device, backend) for backend in backends]
    for place, due_s in ((0, 1e3), (1, 3e3), (2, 2e3)):
        assert cores[place].take(job(due_s), time.monotonic()) is None
        cores[place].start()
    assert sum(one.in_service for one in cores) == 1
    for backend in backends:
        backend.free.set()
    await until(lambda: order == ["a", "c", "b"])
    await until(lambda: not device.is_busy)


async def test_a_request_joins_if_it_is_in_time_and_makes_no_neighbour_late() -> None:
    order: list[str] = []
    device = Device()
    busy, other = core(device, Held("busy", order)), core(device, Held("other", order))
    assert busy.take(job(1e3), time.monotonic()) is None
    busy.start()
    assert other.take(job(2.5 * TAKES_S), time.monotonic()) is None, "behind the batch that runs"
    for due_s, is_admitted in ((1.5, False), (2.2, False), (2.9, False), (3.1, True)):
        finish_at = busy.take(job(due_s * TAKES_S), time.monotonic())
        assert (finish_at is None) == is_admitted, due_s
    assert busy.take(job(-1.0, forced=True), time.monotonic()) is not None, (
        "it is late, and would make others late"
    )
    await asyncio.sleep(0)
    assert order == ["busy"]
    await busy.close()


async def test_a_queue_that_leaves_frees_the_device_for_the_next() -> None:
    order: list[str] = []
    device = Device()
    first, second = core(device, Held("first", order)), core(device, Held("second", order))
    for one in (first, second):
        assert one.take(job(1e3), time.monotonic()) is None
        one.start()
    await until(lambda: order == ["first"])
    await first.close()
    device.leave(first)
    await until(lambda: order == ["first", "second"])
    await second.close()
