"""An unexpected exception costs one request a 500, at once, and nobody else anything."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Callable
from typing import Any

import pytest

from mark.dispatch.instance.measured import MeasuredTimes
from mark.dispatch.policy import DispatchPolicy
from mark.protocols import frames
from mark.protocols.frames import Response
from mark.serving.agent import queue
from mark.serving.agent.gateway_link import GatewayConnection
from mark.serving.agent.http import AgentHttp
from mark.serving.agent.queue import AgentCore
from mark.serving.gateway import model_router
from mark.serving.gateway.agent_pool import AgentConnection
from mark.serving.gateway.idempotency import IdempotencyCache
from mark.serving.gateway.members_view import AgentView
from mark.serving.gateway.model_router import ModelRouter
from mark.serving.gateway.request import InferenceRequest
from mark.serving.gateway.server import Gateway
from mark.serving.http.content_codings import INLINE_BYTES
from mark.serving.http.exchange import HttpExchange
from mark.serving.http.http_server import HttpServer
from mark.serving.routes import Routes
from mark.serving.unexpected_errors import UnexpectedErrors
from tests.serving.harness import BODY, LAMBDA, Client, Live, live, served, until
from tests.serving.test_agent import frames_to, request

DEFECTS = "mark_gateway_internal_errors_total"
FAILED = 'mark_gateway_failed_total{model="echo"}'


class Defect(Exception):
    """What is raised."""


def broken(*_: Any, **__: Any) -> Any:
    raise Defect("who would have thought")


def broken_once(whole: Callable[..., Any]) -> Callable[..., Any]:
    """Raises at the first call only."""
    calls: list[None] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        return broken() if len(calls) == 1 else whole(*args, **kwargs)

    return call


def told(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.exc_info and record.exc_info[0] is Defect]


WAYS = [
    (Routes, "find", 1),
    (IdempotencyCache, "begin", 1),
    (model_router, "least_finish", 2),
    (model_router, "after_bounce", 0),
    (ModelRouter, "_first_to_finish", 0),
    (AgentView, "sent", 1),
    (AgentView, "answered", 1),
    (InferenceRequest, "answer", 1),
    (AgentCore, "take", 1),
    (queue, "batch_size", 1),
    (queue, "valid_reply", 1),
]


@pytest.mark.parametrize(("where", "name", "agents"), WAYS, ids=str)
async def test_wherever_it_raises_the_client_is_told_at_once(
    where: Any, name: str, agents: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with live(agents=agents) as running:
        client, other = await running.client(), await running.client()
        page = await running.ask("/metrics", None, "GET")
        assert f"{DEFECTS} 0" in page.body.decode()
        monkeypatch.setattr(where, name, broken_once(getattr(where, name)))
        refused = await client.ask(x_mark_request_id="mine")

        assert refused.status == 500, refused
        assert refused.headers["x-mark-request-id"] == "mine"
        assert "error" in refused.document
        assert len(told(caplog)) == 1
        for each in (client, other):  # nobody's connection was cut
            assert (await each.ask()).status == (200 if agents else 503)
            await each.close()
        assert await running.metric("mark_gateway_redispatched_total") == 0


async def test_an_id_whose_request_failed_in_the_background_is_executed_when_it_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with live() as running:
        large = gzip.compress(BODY + b" " * INLINE_BYTES)  # so that a thread decodes it
        client = await running.client()
        monkeypatch.setattr(ModelRouter, "offer", broken_once(ModelRouter.offer))
        refused = await client.ask(body=large, content_encoding="gzip", x_mark_request_id="mine")
        assert refused.status == 500
        again = await client.ask(body=large, content_encoding="gzip", x_mark_request_id="mine")
        assert again.status == 200


async def test_an_unexpected_error_is_counted_and_its_log_line_names_the_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with live(agents=0) as running:
        monkeypatch.setattr(model_router, "after_bounce", broken)
        for number in range(3):
            assert (await running.ask(x_mark_request_id=f"r-{number}")).status == 500

        assert await running.metric(DEFECTS) == 3
        assert await running.metric(FAILED) == 3
        lines = [record for record in caplog.records if record.getMessage() == "internal error"]
        assert [vars(line)["request_id"] for line in lines] == ["r-0", "r-1", "r-2"]
        assert len(told(caplog)) == 1  # the same traceback need not be read three times a second


def test_another_place_gives_its_traceback_too(caplog: pytest.LogCaptureFixture) -> None:
    unexpected = UnexpectedErrors(logging.getLogger("mark.gateway"))
    for raising in (broken, told, told):
        try:
            raising(None)
        except (Defect, AttributeError) as error:
            unexpected.note(error)
    unexpected.note(ValueError("never raised"))

    assert unexpected.count == 4
    assert [bool(record.exc_info) for record in caplog.records] == [True, True, False, True]


async def test_answers_behind_an_unexpected_error_in_one_chunk_go_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live() as running:
        clients = [await held_up(running) for _ in range(4)]
        monkeypatch.setattr(InferenceRequest, "answer", broken_once(InferenceRequest.answer))
        running.agents["i-0"].backend.free.set()
        replies = [await client.read() for client in clients]

        assert sorted(reply.status for reply in replies) == [200, 200, 200, 500]
        for client in clients:
            assert (await client.ask()).status == 200
            await client.close()
        assert await running.metric(FAILED) == 1
        assert await running.metric('mark_gateway_responses_total{by="instance",model="echo"}') == 7


async def held_up(running: Live) -> Client:
    """A client whose request an agent holds."""
    agent = running.agents["i-0"]
    agent.backend.free.clear()
    before = await running.metric('mark_gateway_in_flight{model="echo"}')
    client = await running.client()
    client.send()
    await running.until_metric('mark_gateway_in_flight{model="echo"}', before + 1)
    return client


async def test_an_unexpected_error_with_one_lost_request_leaves_the_others_their_way(
    gateways: list[Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with live(served(overflow=LAMBDA)) as running:
        clients = [await held_up(running) for _ in range(3)]
        monkeypatch.setattr(ModelRouter, "offer", broken_once(ModelRouter.offer))
        lose_agent(gateways)
        running.agents["i-0"].backend.free.set()
        replies = [await client.read() for client in clients]

        assert sorted(reply.status for reply in replies) == [200, 200, 500]
        for client in clients:
            await client.close()


async def test_an_unexpected_error_in_the_list_of_agents_leaves_what_was_lost_its_way(
    gateways: list[Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with live(served(overflow=LAMBDA)) as running:
        client = await held_up(running)
        monkeypatch.setattr(ModelRouter, "set_agents", broken_once(ModelRouter.set_agents))
        monkeypatch.setattr(ModelRouter, "offer", lambda router, inference, now: router.bounced(inference, now))
        lose_agent(gateways)

        assert (await client.read()).headers["x-mark-served-by"] == "lambda"
        running.agents["i-0"].backend.free.set()
        await client.close()


@pytest.fixture
def gateways(monkeypatch: pytest.MonkeyPatch) -> list[Gateway]:
    """Those that are made."""
    made: list[Gateway] = []

    class Known(Gateway):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr("mark.serving.gateway.server.Gateway", Known)
    return made


def lose_agent(gateways: list[Gateway]) -> None:
    (connection,) = gateways[0].agents.open.values()
    connection.abort()


async def test_an_unexpected_error_in_giving_up_leaves_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live(served(dispatch=DispatchPolicy(give_up_s=0.2))) as running:
        clients = [await held_up(running) for _ in range(3)]
        monkeypatch.setattr(InferenceRequest, "fail", broken_once(InferenceRequest.fail))
        replies = [await client.read() for client in clients]
        assert sorted(reply.status for reply in replies) == [500, 504, 504]
        again = await held_up(running)  # the sweep goes on
        assert (await again.read()).status == 504
        running.agents["i-0"].backend.free.set()
        for client in (*clients, again):
            await client.close()


async def test_an_unexpected_error_in_one_sweep_is_not_the_last_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live(served(dispatch=DispatchPolicy(give_up_s=0.2))) as running:
        client = await held_up(running)
        monkeypatch.setattr(AgentConnection, "check_timeouts", broken_once(AgentConnection.check_timeouts))

        assert (await client.read()).status == 504
        running.agents["i-0"].backend.free.set()
        await client.close()


async def test_those_who_repeat_a_request_get_its_500_and_the_next_one_is_executed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with live() as running:
        agent = running.agents["i-0"]
        agent.backend.free.clear()
        clients = [await running.client() for _ in range(3)]
        for client in clients:
            client.send(x_mark_request_id="twice")
        await running.until_metric('mark_gateway_deduplicated_total{model="echo"}', 2)
        monkeypatch.setattr(AgentView, "answered", broken_once(AgentView.answered))
        agent.backend.free.set()

        assert [(await client.read()).status for client in clients] == [500, 500, 500]
        assert (await clients[0].ask(x_mark_request_id="twice")).status == 200
        for client in clients:
            await client.close()


async def test_a_repetition_that_cannot_be_answered_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live() as running:
        agent = running.agents["i-0"]
        agent.backend.free.clear()
        clients = [await running.client() for _ in range(3)]
        for client in clients:
            client.send(x_mark_request_id="twice")
        await running.until_metric('mark_gateway_deduplicated_total{model="echo"}', 2)
        whole, calls = InferenceRequest.answer, []

        def second_raises(*args: Any) -> None:
            calls.append(args)
            return broken() if len(calls) == 2 else whole(*args)

        monkeypatch.setattr(InferenceRequest, "answer", second_raises)
        agent.backend.free.set()

        assert sorted([(await client.read()).status for client in clients]) == [200, 200, 500]
        for client in clients:
            await client.close()


async def test_frames_behind_an_unexpected_error_in_an_agent_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live() as running:
        gateway = await frames_to(running)
        monkeypatch.setattr(AgentCore, "take", broken_once(AgentCore.take))
        gateway.send(*(request(number) for number in range(1, 5)))
        statuses = {}
        for _ in range(4):
            response = await gateway.next(Response)
            assert isinstance(response, Response)
            statuses[response.id] = response.status
        await gateway.close()

        assert statuses == {1: 500, 2: 200, 3: 200, 4: 200}


async def test_the_tail_of_a_batch_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live() as running:
        backend = running.agents["i-0"].backend
        clients = [await held_up(running) for _ in range(4)]
        monkeypatch.setattr(GatewayConnection, "answered", broken_once(GatewayConnection.answered))
        backend.free.set()
        assert sorted([(await client.read()).status for client in clients]) == [200, 200, 200, 500]
        for client in clients:
            assert (await client.ask()).status == 200
            await client.close()


@pytest.mark.parametrize(("where", "name"), [(MeasuredTimes, "note"), (GatewayConnection, "publish_if_changed")])
async def test_what_an_agent_does_beside_answering_costs_nobody_an_answer(
    where: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with live() as running:
        client = await running.client()
        monkeypatch.setattr(where, name, broken)
        assert [(await client.ask()).status for _ in range(3)] == [200] * 3
        await client.close()
        page = (await agent_page(running)).splitlines()
        assert any(
            line.startswith("mark_agent_internal_errors_total") and not line.endswith(" 0") for line in page
        )


async def agent_page(running: Live) -> str:
    client = Client(*await asyncio.open_connection("127.0.0.1", running.agents["i-0"].http_port))
    page = await client.ask("/metrics", None, "GET")
    await client.close()
    return page.body.decode()


async def test_a_backend_that_cancels_itself_does_not_end_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live() as running:
        backend = running.agents["i-0"].backend
        whole = backend.infer

        async def cancelled(_: Any) -> Any:
            monkeypatch.setattr(backend, "infer", whole)
            raise asyncio.CancelledError

        monkeypatch.setattr(backend, "infer", cancelled)
        assert (await running.ask()).status == 500
        assert (await running.ask()).status == 200


@pytest.mark.parametrize("name", ["_infer", "_handle_get"])
async def test_an_agents_own_port_answers_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live() as running:
        client = Client(*await asyncio.open_connection("127.0.0.1", running.agents["i-0"].http_port))
        monkeypatch.setattr(AgentHttp, name, broken_once(getattr(AgentHttp, name)))
        for status in (500, 200):
            asked = await (client.ask() if name == "_infer" else client.ask("/ping", None, "GET"))
            assert asked.status == status
        await client.close()


async def test_an_answer_that_an_agents_own_port_cannot_write_is_a_500(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live() as running:
        client = Client(*await asyncio.open_connection("127.0.0.1", running.agents["i-0"].http_port))
        monkeypatch.setattr(HttpExchange, "reply", broken_once(HttpExchange.reply))
        assert [(await client.ask()).status for _ in range(2)] == [500, 200]
        await client.close()


async def test_an_unexpected_error_while_a_request_is_read_is_not_the_clients_fault(
    gateways: list[Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with live() as running:
        client = await running.client()
        monkeypatch.setattr(gateways[0].http, "make", broken)
        reply = await client.ask()
        assert reply.status == 500
        assert await client.is_closed()
        await client.close()
        monkeypatch.undo()
        assert (await running.ask()).status == 200
        assert await running.metric(DEFECTS) == 1


async def test_what_cannot_be_written_is_a_500() -> None:
    def answer(exchange: HttpExchange) -> None:
        exchange.reply(200, b"text/plain", None)  # type: ignore[arg-type]  # a defect

    server = HttpServer(answer)
    listening = await asyncio.get_running_loop().create_server(server.connection, "127.0.0.1", 0)
    client = Client(*await asyncio.open_connection(*listening.sockets[0].getsockname()))
    assert [(await client.ask()).status for _ in range(2)] == [500, 500]
    await client.close()
    listening.close()
    await server.close()
    assert server.unexpected.count == 2


async def test_nonsense_in_the_store_is_overcome(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live() as running:
        monkeypatch.setattr(running.store, "clock", broken)
        monkeypatch.setattr(running.store, "members_version", broken)
        monkeypatch.setattr(running.store, "announce", broken)

        async def seen() -> bool:
            return await running.metric(DEFECTS) >= 2

        await until(seen)
        assert (await running.ask()).status == 200
        monkeypatch.undo()
        await running.add_agent("i-1")
        assert not running.agents["i-0"].task.done()


async def test_a_frame_that_cannot_be_made_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live() as running:
        client = await running.client()
        monkeypatch.setattr("mark.serving.gateway.agent_pool.encode_request", broken_once(frames.encode_request))
        assert [(await client.ask()).status for _ in range(2)] == [500, 200]
        assert await running.metric('mark_gateway_in_flight{model="echo"}') == 0
        await client.close()
