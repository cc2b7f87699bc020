"""A model that hangs: its requests are answered, its agent is replaced, and its process ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

from mark.dispatch.policy import DispatchPolicy
from mark.domain.fleet.member import MemberState
from mark.ports import InferReply
from mark.serving.agent.process import EXIT_BROKEN
from mark.serving.agent.queue import AgentCore, Job
from tests.serving.backends.asks import ask
from tests.serving.fakes import EchoBackend
from tests.serving.harness import Live, live, served, until
from tests.waiting import PATIENCE_S

SOON = DispatchPolicy(hung_after_s=0.5)


async def hang(running: Live, instance: str) -> None:
    """From now on that agent answers nothing; it has answered before."""
    assert (await running.ask()).status == 200
    running.agents[instance].backend.free.clear()


async def test_its_batch_is_answered_504_and_its_agent_says_that_it_is_broken_and_ends() -> None:
    async with live(served(dispatch=SOON)) as running:
        agent = running.agents["i-0"]
        await hang(running, "i-0")
        reply = await running.ask()

        assert reply.status == 504
        assert "did not answer within" in reply.document["error"]
        assert await agent.task == EXIT_BROKEN
        assert running.store.listed["i-0"].state is MemberState.BROKEN
        await running.until_agents(0)
        assert (await running.ask("/v2/models/echo/ready", None, "GET")).status == 503


@pytest.mark.parametrize("redispatch", [True, False])
async def test_what_waits_behind_it_is_answered_by_another(redispatch: bool) -> None:
    patient = DispatchPolicy(hung_after_s=2.0)
    model = served(dispatch=patient, latency_s=5.0, batch_s=(0.002,), redispatch=redispatch)
    async with live(model) as running:
        await hang(running, "i-0")
        clients = [await running.client() for _ in range(4)]
        for client in clients:
            client.send()
        await running.until_metric('mark_gateway_in_flight{model="echo"}', 4)
        await running.add_agent("i-1")
        statuses = sorted([(await client.read()).status for client in clients])
        for client in clients:
            await client.close()

        assert statuses == [200, 200, 200, 504]


class Asker:
    """Who sent a request."""

    def __init__(self) -> None:
        self.replies: list[int] = []

    def answered(self, job: Job, reply: InferReply) -> None:
        self.replies.append(reply.status)

    def bounced(self, job: Job) -> None:
        self.replies.append(0)

    def publish_if_changed(self) -> None:
        pass


async def test_only_time_in_which_the_process_ran_counts() -> None:
    """A machine that stood still for a minute has no hung model."""

    backend, asker = EchoBackend(), Asker()
    core = AgentCore(backend, profile_s=(0.01,), admission_factor=None, hung_after_s=10.0)
    core.accepting = True
    for id_ in range(2):
        backend.free.set() if id_ == 0 else backend.free.clear()
        core.take(Job(asker, id_, time.monotonic(), time.monotonic() + 60, ask([1, 2])), time.monotonic())
        core.start()
        await until(lambda seen=id_: len(backend.batches) == seen + 1 and len(asker.replies) == min(1, seen + 1))
    core.check_timeouts(9.9)
    assert asker.replies == [200]
    core.check_timeouts(0.2)
    assert asker.replies == [200, 504]
    assert core.broken.is_set()
    backend.free.set()
    await asyncio.sleep(0)
    await core.close()
    assert asker.replies == [200, 504]


HANGS = """
import asyncio, sys, threading
from mark.serving.backends import answering, awaited_answering, python
from tests.serving.backends.asks import INPUTS, OUTPUTS, ask
hangs = threading.Event()

def hang(*_):
    hangs.set()
    threading.Event().wait()

class Hangs:
    inputs, outputs = INPUTS, OUTPUTS
    def predict(self, inputs):
        return hang() if inputs["x"].any() else {"y": inputs["x"][:, :1]}

async def python_model():
    backend = python.PythonBackend(Hangs, name="m")
    await backend.start()
    await left(backend.infer([ask([1, 2])]))
    await backend.close()

async def large_body():
    awaited_answering.ASIDE_BYTES, answering.read_exchanges = 0, hang
    await left(awaited_answering.answer_async([ask([1, 2])], "m", INPUTS, None))

async def left(asking):
    task = asyncio.ensure_future(asking)
    await asyncio.to_thread(hangs.wait)
    task.cancel()

python.CLOSE_WITHIN_S = 0.1
asyncio.run(globals()[sys.argv[1]]())
sys.exit(7)
"""


@pytest.mark.parametrize("hanging", ["python_model", "large_body"])
def test_work_that_hangs_keeps_no_process_alive(hanging: str) -> None:
    command = [sys.executable, "-c", HANGS, hanging]
    done = subprocess.run(command, timeout=PATIENCE_S, check=False)  # noqa: S603 - our own text

    assert done.returncode == 7
