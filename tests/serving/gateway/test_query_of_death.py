"""A request that ends every process which works on it ends two of them, and is named."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from mark.dispatch.policy import Bounced, DispatchPolicy, Late
from mark.ports import InferReply, InferRequest, OverflowReply
from mark.protocols.oip import bodies as oip
from tests.serving.fakes import FakeLambda
from tests.serving.harness import (
    BODY,
    INPUTS,
    LAMBDA,
    PATIENT_S,
    SLOW_LAMBDA,
    Client,
    Live,
    RunningAgent,
    live,
    served,
    until,
)

document = oip.example_body(INPUTS)
document["inputs"][0]["data"] = [666.0, 666.0]
DEADLY = json.dumps(document).encode()
OTHERS, CLIENTS = 600, 12


def make_mortal(agent: RunningAgent) -> None:
    """From now on its process ends when it is given the deadly request: nothing of its batch is answered."""
    infer = agent.backend.infer

    async def mortal(batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        if any(request.body == DEADLY for request in batch):
            agent.stop.set()
            await asyncio.Event().wait()
        return await infer(batch)

    agent.backend.infer = mortal  # type: ignore[method-assign]


async def ask_often(running: Live, count: int) -> list[int]:
    client = await running.client()
    found = [(await client.ask()).status for _ in range(count)]
    await client.close()
    return found


async def ended(running: Live) -> int:
    return sum(agent.task.done() for agent in running.agents.values())


def given_up(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if "given up" in record.getMessage()]


async def test_it_ends_two_agents_and_the_others_are_answered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "mark.gateway")
    async with live(served(latency_s=5.0), agents=5, takes_s=0.001) as running:
        for agent in running.agents.values():
            make_mortal(agent)
        asking = [asyncio.ensure_future(ask_often(running, OTHERS // CLIENTS)) for _ in range(CLIENTS)]
        await until(lambda: many_asked(running))
        reply = await running.ask(body=DEADLY, x_mark_request_id="deadly")
        others = [status for found in await asyncio.gather(*asking) for status in found]

        assert reply.status == 502
        assert "2 servers were lost" in reply.document["error"]
        assert await ended(running) == 2
        assert others.count(200) >= 0.99 * len(others)
    (named,) = [fields for fields in given_up(caplog) if fields["request_id"] == "deadly"]
    assert named["model"] == "echo"
    assert len(set(named["lost"])) == 2


async def many_asked(running: Live) -> bool:
    return sum(len(agent.backend.requests) for agent in running.agents.values()) > OTHERS // 10


async def test_the_only_request_that_was_on_all_of_them_is_told_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "mark.gateway")
    async with live(served(latency_s=5.0), agents=3) as running:
        for agent in running.agents.values():
            make_mortal(agent)
        assert (await running.ask(body=DEADLY)).status == 502
        assert await ended(running) == 2
    (named,) = given_up(caplog)
    assert named["others"] == 0
    assert "the only request" in named["message"]


async def test_where_a_model_forbids_it_one_agent_is_lost() -> None:
    async with live(served(redispatch=False), agents=2) as running:
        for agent in running.agents.values():
            make_mortal(agent)

        assert (await running.ask(body=DEADLY)).status == 502
        assert await ended(running) == 1


async def test_what_only_waited_on_lost_agents_is_tried_until_somebody_answers() -> None:
    model = served(latency_s=5.0, batch_s=(0.002,))
    async with live(model, agents=1) as running:
        clients: list[Client] = []
        for number in range(3):
            agent = running.agents[f"i-{number}"]
            agent.backend.free.clear()
            for _ in range(3 if number == 0 else 0):
                client = await running.client()
                client.send(body=BODY)
                clients.append(client)
            await running.until_metric('mark_gateway_in_flight{model="echo"}', 3 if number < 2 else 1)
            await running.add_agent(f"i-{number + 1}", wait=False)
            await running.until_agents(2)
            agent.stop.set()
            await agent.task
            if number < 2:
                running.agents[f"i-{number + 1}"].backend.free.clear()
            await running.until_agents(1)
        statuses = [(await client.read()).status for client in clients]
        for client in clients:
            await client.close()

        assert sorted(statuses) == [200, 502, 502]
        assert await running.metric('mark_gateway_redispatched_total{model="echo"}') >= 1


class MortalLambda(FakeLambda):
    """Its environment ends while it works."""

    async def invoke(self, function: str, request: InferRequest, timeout_s: float) -> OverflowReply:
        self.calls.append((function, request))
        return OverflowReply(reply=oip.error_reply(502, "it ended"), gib_s=0.5, cold=False, lost=True)


@pytest.mark.parametrize(("redispatch", "status"), [(True, 200), (False, 502)])
async def test_what_a_lost_lambda_environment_held_is_tried_once_elsewhere(redispatch: bool, status: int) -> None:
    overflow = MortalLambda()
    model = served(dispatch=DispatchPolicy(bounced=Bounced.LAMBDA), overflow=LAMBDA, redispatch=redispatch)
    async with live(model, overflow=overflow) as running:
        reply = await running.ask(x_mark_deadline_ms="1")

        assert reply.status == status
        assert len(overflow.calls) == 1
        assert await running.metric('mark_gateway_gib_s_total{model="echo"}') == 0.5


class EmptyLambda(FakeLambda):
    """It cannot get the files of the version that it is to answer as."""

    async def invoke(self, function: str, request: InferRequest, timeout_s: float) -> OverflowReply:
        self.calls.append((function, request))
        return OverflowReply(reply=oip.error_reply(502, "no files"), gib_s=0.5, cold=True, not_run=True)

    async def warm(self, function: str, timeout_s: float, version: str = "") -> OverflowReply:
        self.warmed.append(function)
        return OverflowReply(reply=oip.error_reply(502, "no files"), gib_s=0.5, cold=True, not_run=True)


@pytest.mark.parametrize("redispatch", [True, False])
async def test_what_a_lambda_without_the_model_s_files_had_was_not_tried(redispatch: bool) -> None:
    overflow = EmptyLambda()
    model = served(dispatch=DispatchPolicy(bounced=Bounced.LAMBDA), overflow=LAMBDA, redispatch=redispatch)
    async with live(model, overflow=overflow) as running:
        reply = await running.ask(x_mark_deadline_ms="1")

        assert (reply.status, len(overflow.calls)) == (200, 1)
        assert await running.metric('mark_gateway_redispatched_total{model="echo"}') == 0
        assert await running.metric('mark_gateway_gib_s_total{model="echo"}') == 0.5


async def test_an_environment_that_could_not_get_the_model_s_files_is_not_believed_warm() -> None:
    overflow = EmptyLambda()
    dispatch = DispatchPolicy(bounced=Bounced.LAMBDA, late=Late.SHED)
    async with live(
        served(dispatch=dispatch, latency_s=PATIENT_S, overflow=SLOW_LAMBDA), overflow=overflow, agents=0
    ) as running:
        reply = await running.ask()
        assert reply.status == 503  # colder than its deadline
        await until(lambda: any(one.models[0].gib_s for one in running.store.reports.values()))
        assert overflow.warmed == ["mark-echo"]
        assert {one.models[0].lambda_warm for one in running.store.reports.values()} == {0}
