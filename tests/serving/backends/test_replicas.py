"""Replicas: a batch divided among processes, of which one that ends or hangs is replaced and harms no other."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.models.profile import Parallelism, usual_parallelisms
from mark.service_spec import BackendSpec
from mark.serving.agent.queue import AgentCore, Job
from mark.serving.backends.factory import make_backend, python_backend
from mark.serving.backends.python import PythonBackend
from mark.serving.backends.replicas import ReplicatedBackend, divided
from mark.serving.backends.threads import processors
from tests.serving.backends.asks import INPUTS, OUTPUTS, ask, error, outputs
from tests.serving.harness import served
from tests.serving.test_hung import Asker
from tests.waiting import PATIENCE_S

TWO = Parallelism(2, 1)
THREADS_TOLD = os.environ.get("OMP_NUM_THREADS", "0")
"""When this module was loaded, as libraries are."""


class Process:
    """Answers with its process's number; ends at 13, and hangs at 14.

    At 11 with the first of the processors that it may run on, at 12 with the threads that libraries were told.
    """

    inputs, outputs = INPUTS, OUTPUTS

    def predict(self, inputs):
        x = inputs["x"]
        if (x == 13).any():
            os._exit(3)
        if (x == 14).any():
            signal.pause()
        said = {11: min(os.sched_getaffinity(0)), 12: float(THREADS_TOLD)}.get(int(x[0, 0]), os.getpid())
        return {"y": x[:, :1] * 0 + said}


def run(test: Callable[[ReplicatedBackend], Awaitable[None]], parallelism: Parallelism = TWO) -> None:
    async def scenario() -> None:
        backend = ReplicatedBackend(Process, parallelism, name="m")
        try:
            await backend.start()
            await test(backend)
        finally:
            await backend.close()

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))


def processes(replies) -> list[float]:
    return [outputs(reply)[0][0] for reply in replies]


@given(st.lists(st.integers(), min_size=1), st.integers(1, 20))
def test_every_request_is_in_one_part_and_parts_are_as_even_as_can_be(items, parts):
    found = divided(items, parts)

    assert [item for part in found for item in part] == items
    assert len(found) == min(parts, len(items))
    lengths = list(map(len, found))
    assert max(lengths) - min(lengths) <= 1


@given(st.integers(1, 200))
def test_no_usual_choice_needs_more_processors_than_there_are(processors):
    usual = usual_parallelisms(processors)

    assert {Parallelism(1, 1), Parallelism(1, processors), Parallelism(processors, 1)} <= set(usual)
    assert all(one.processors <= processors and one.within(processors) == one for one in usual)
    assert len(usual) == (1 if processors == 1 else 3 if processors < 4 else 4)


@given(st.integers(1, 64), st.one_of(st.none(), st.integers(1, 64)), st.integers(1, 64))
def test_a_smaller_machine_runs_no_more_than_it_has(replicas, threads, processors):
    wanted = Parallelism(1 if threads is None else replicas, threads)
    found = wanted.within(processors)

    assert found.processors <= processors
    assert found.replicas <= wanted.replicas
    assert found.threads is None if threads is None else found.threads <= threads


def test_a_batch_is_divided_among_processes_and_answered_in_its_order():
    async def test(backend: ReplicatedBackend) -> None:
        bad = ask([0, 0])._replace(body=b"{")
        replies = await backend.infer([ask([1, 1]), ask([2, 2]), bad, ask([3, 3])])

        assert [reply.status for reply in replies] == [200, 200, 400, 200]
        first, second, fourth = processes([replies[0], replies[1], replies[3]])
        assert first == second != fourth
        assert os.getpid() not in (first, fourth)
        assert (backend.inputs, backend.outputs) == (INPUTS, OUTPUTS)
        assert processes(await backend.infer([ask([1, 1])])) == [first]
        if processors() > 1:
            pinned = processes(await backend.infer([ask([11, 1]), ask([11, 1])]))
            assert pinned == sorted(os.sched_getaffinity(0))[:2]

    run(test)


def test_libraries_are_told_their_threads_before_they_load():
    async def test(backend: ReplicatedBackend) -> None:
        assert processes(await backend.infer([ask([12, 1])])) == [3]

    run(test, Parallelism(1, 3))


def test_a_replica_that_ends_fails_its_part_alone_and_is_replaced():
    async def test(backend: ReplicatedBackend) -> None:
        kept, lost = processes(await backend.infer([ask([1, 1]), ask([1, 1])]))
        replies = await backend.infer([ask([1, 1]), ask([13, 0])])

        assert [reply.status for reply in replies] == [200, 500]
        assert error(replies[1]) == "the model failed"
        assert processes(replies[:1]) == [kept]
        while len(found := set(processes(await backend.infer([ask([1, 1]), ask([1, 1])])))) == 1:
            await asyncio.sleep(0.01)
        assert kept in found
        assert lost not in found

    run(test)


def test_a_batch_that_ends_every_process_fails_as_a_whole_and_the_next_waits_for_another():
    async def test(backend: ReplicatedBackend) -> None:
        with pytest.raises(RuntimeError, match="ended while they answered"):
            await backend.infer([ask([13, 0]), ask([13, 0])])
        (reply,) = await backend.infer([ask([1, 1])])
        assert reply.status == 200

    run(test)


def test_a_replica_that_hangs_is_replaced_and_its_agent_goes_on():
    async def test(backend: ReplicatedBackend) -> None:
        core, asker = AgentCore(backend, profile_s=(0.01, 0.01), admission_factor=None, hung_after_s=1.0), Asker()
        core.accepting = True

        async def send(*numbers: int) -> None:
            for number in numbers:
                now = time.monotonic()
                core.take(Job(asker, number, now, now + 60, ask([number, 0])), now)
            core.start()

        async def answered(count: int) -> None:
            while len(asker.replies) < count:
                await asyncio.sleep(0.01)

        await send(1, 14)
        await asyncio.sleep(0.01)
        core.check_timeouts(5.9)
        assert asker.replies == []
        while sum(replica.is_busy for replica in backend._replicas) != 1:  # the other part is answered
            await asyncio.sleep(0.01)
        core.check_timeouts(0.2)
        await answered(2)
        assert asker.replies == [200, 504]
        await send(1)
        await answered(3)
        assert asker.replies[2] == 200
        assert not core.broken.is_set()
        await core.close()

    run(test)


def test_what_hangs_again_before_anything_was_answered_ends_the_agent():
    async def test(backend: ReplicatedBackend) -> None:
        for helps in (True, False):
            hanging = asyncio.ensure_future(backend.infer([ask([14, 0])]))
            while not any(replica.is_busy for replica in backend._replicas):
                await asyncio.sleep(0.01)
            assert backend.replace_hung() is helps
            if helps:
                (reply,) = await hanging
                assert reply.status == 504
            else:
                hanging.cancel()

    run(test, Parallelism(1, 1))


def test_one_replica_stays_in_the_process_and_a_small_machine_runs_fewer(monkeypatch):
    monkeypatch.setattr("mark.serving.backends.factory.processors", lambda: 1)

    assert type(python_backend(Process, Parallelism(16, 1), name="m")) is PythonBackend
    monkeypatch.setattr("mark.serving.backends.factory.processors", lambda: 2)
    assert isinstance(python_backend(Process, Parallelism(16, 1), name="m"), ReplicatedBackend)
    assert type(python_backend(Process, Parallelism(), name="m")) is PythonBackend


def loaded(_target: str, _folder: Path | None) -> Process:
    return Process()


def test_the_agent_s_backend_runs_the_replicas_of_its_offering_s_profile(monkeypatch):
    monkeypatch.setattr("mark.serving.backends.factory.processors", lambda: 3)
    offering = served().offerings[0]
    profile = replace(offering.profile, parallelism=Parallelism(3, 1))
    backend = make_backend(
        BackendSpec(kind="python", target="m:Process"),
        served(),
        replace(offering, profile=profile),
        make_model=loaded,
        now=time.monotonic,
        rng=np.random.default_rng(0),
    )
    assert isinstance(backend, ReplicatedBackend)
    assert len(backend._replicas) == 3
