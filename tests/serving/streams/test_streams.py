"""Streams through gateway and agent over real sockets. Nothing here waits for a time or asserts one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from mark.domain.errors import Misconfigured
from mark.domain.fleet.instances import Role
from mark.domain.models.objective import Slo
from mark.ports import InferReply
from mark.protocols.stream_window import WINDOW_BYTES
from mark.serving.agent.process import EXIT_BROKEN
from mark.serving.agent.queue import FAILURES_IN_A_ROW
from mark.serving.agent.tenant import AgentConfig, Tenant
from mark.serving.backends.answering import ModelFailed
from mark.serving.http.limits import HttpLimits
from tests.serving.fakes import EchoBackend
from tests.serving.harness import Client, Live, live, until
from tests.serving.streams.backends import (
    STREAM,
    EndlessBackend,
    Script,
    ScriptedBackend,
    read_body,
    read_chunk,
    read_head,
    streaming,
)

BODY = b'{"text_input": "hello"}'


async def put(running: Live, backend: ScriptedBackend, instance: str = "i-0") -> None:
    """An agent with that backend."""
    await running.add_agent(instance, backend=cast("EchoBackend", backend))


async def asked(running: Live, path: str = STREAM) -> Client:
    client = await running.client()
    client.send(path, BODY)
    return client


async def test_parts_come_as_they_are_made() -> None:
    backend = ScriptedBackend()
    async with live(streaming(), agents=0) as running:
        await put(running, backend)
        client = await asked(running)
        script = await backend.script()
        script.say(b"data: 1\n\n")
        status, headers = await read_head(client)
        assert (status, headers["content-type"], headers["transfer-encoding"]) == (
            200, "text/event-stream", "chunked"
        )  # fmt: skip
        assert headers["x-mark-served-by"] == "instance"
        assert await running.metric('mark_gateway_in_flight{model="echo"}') == 1
        assert await read_chunk(client) == b"data: 1\n\n"
        script.say(b"data: 2\n\n")
        assert await read_chunk(client) == b"data: 2\n\n"
        script.say(None)
        assert await read_chunk(client) is None
        assert script.request.path == STREAM
        client.send(STREAM, BODY)  # the connection is kept
        (await backend.script(1)).say(b"data: 3\n\n", None)
        await read_head(client)
        assert await read_body(client) == (b"data: 3\n\n", True)
        await running.until_metric('mark_gateway_first_byte_seconds_count{model="echo"}', 2)
        assert await running.metric('mark_gateway_responses_total{by="instance"') == 2


async def test_a_refusal_of_the_model_is_an_answer_with_its_status() -> None:
    backend = ScriptedBackend()
    backend.refusal = InferReply(422, "application/json", b'{"error": "too long"}')
    async with live(streaming(), agents=0) as running:
        await put(running, backend)
        reply = await running.ask(STREAM, BODY)
        assert (reply.status, reply.body) == (422, b'{"error": "too long"}')


@pytest.mark.parametrize("status", [100, 204, 304])
async def test_a_status_without_a_body_is_no_stream(status: int) -> None:
    """Chunks behind it would be read as the answer to the connection's next request."""

    backend = ScriptedBackend(b"data: 1\n\n", None)
    backend.status = status
    async with live(streaming(), agents=0) as running:
        await put(running, backend)
        reply = await running.ask(STREAM, BODY)
        assert (reply.status, f"status {status}" in reply.body.decode()) == (502, True)


async def test_a_refusal_that_http_cannot_carry_is_a_bad_gateway() -> None:
    backend = ScriptedBackend()
    backend.refusal = InferReply(999, "x" * 1000, b"")
    async with live(streaming(), agents=0) as running:
        await put(running, backend)
        assert (await running.ask(STREAM, BODY)).status == 502


@pytest.mark.parametrize("content_type", ["text/event-stream", "application/octet-stream"])
async def test_a_model_that_fails_in_mid_stream_is_no_silent_end(content_type: str) -> None:
    backend = ScriptedBackend(b"data: 1\n\n", content_type=content_type)
    async with live(streaming(), agents=0) as running:
        await put(running, backend)
        client = await asked(running)
        await read_head(client)
        (await backend.script()).say(RuntimeError("out of tokens"))
        body, is_whole = await read_body(client)
        assert not is_whole
        event = b'event: error\ndata: {"error": "the model failed"}\n\n'
        assert body == b"data: 1\n\n" + (event if content_type == "text/event-stream" else b"")
        await running.until_metric('mark_gateway_cut_short_total{model="echo"}', 1)


async def test_no_error_event_stands_in_the_middle_of_another() -> None:
    backend = ScriptedBackend(b'data: {"half": ')
    async with live(streaming(), agents=0) as running:
        await put(running, backend)
        client = await asked(running)
        await read_head(client)
        (await backend.script()).say(RuntimeError())
        assert await read_body(client) == (b'data: {"half": ', False)


async def test_an_agent_that_dies_ends_its_streams_visibly_and_once() -> None:
    """What has begun is not run again; what has not is."""

    dying, other = ScriptedBackend(), ScriptedBackend(b"data: other\n\n", None)
    async with live(streaming(), agents=0) as running:
        await put(running, dying, "i-0")
        begun, waiting = await asked(running), await asked(running)
        (await dying.script(0)).say(b"data: 1\n\n")
        await read_head(begun)
        await dying.script(1)
        await put(running, other, "i-1")
        agent = running.agents.pop("i-0")
        agent.stop.set()
        await agent.task
        body, is_whole = await read_body(begun)
        assert not is_whole
        assert body.startswith(b"data: 1\n\nevent: error\ndata: ")
        assert b"lost in the middle" in body
        assert (await read_head(waiting))[0] == 200
        assert await read_body(waiting) == (b"data: other\n\n", True)
        assert len(other.scripts) == 1


@pytest.mark.parametrize("begins", [True, False])
async def test_a_client_that_leaves_cancels_its_model(begins: bool) -> None:
    backend = ScriptedBackend(*((b"data: 1\n\n",) if begins else ()))
    async with live(streaming(slots=1), agents=0) as running:
        await put(running, backend)
        client = await asked(running)
        script = await backend.script()
        if begins:
            await read_head(client)
        await client.close()
        await script.closed.wait()
        await running.until_metric('mark_gateway_left_total{model="echo"}', 1)
        again = await asked(running)  # the only slot is free again
        (await backend.script(1)).say(b"data: 2\n\n", None)
        await read_head(again)
        assert (await read_body(again))[1]


async def test_a_client_that_does_not_read_holds_back_its_own_stream_alone() -> None:
    """An endless stream stops being asked for, others on the same agent and gateway go on, and it is ended."""

    part = b"x" * 8192
    backend = EndlessBackend(part, but="generate_stream")
    async with live(streaming(), agents=0, limits=HttpLimits(slow_s=0.5, sweep_s=0.1)) as running:
        await put(running, backend)
        stuck = await asked(running, "/v2/models/echo/infer")
        script = await backend.script()
        client = await asked(running)
        other = await backend.script(1)
        other.say(b"data: 0\n\n")
        await read_head(client)
        for number in range(1000):
            other.say(b"data: %d\n\n" % number)
            assert await read_chunk(client) is not None
        await script.closed.wait()  # after the time-out of a connection that is not read
        held = script.asked * len(part)
        assert held < WINDOW_BYTES * 4 + SOCKETS_BYTES, "what nobody reads is not made"
        other.say(None)
        assert (await read_body(client))[1]
        stuck.writer.transport.abort()


SOCKETS_BYTES = 24 * 2**20
"""More than the kernel takes on both sides of two loopback connections, and asyncio's reader."""


async def test_a_gateway_that_ends_says_so_in_streams_that_do_not() -> None:
    backend = ScriptedBackend(b"data: 1\n\n")
    async with live(streaming(), agents=0) as running:
        await put(running, backend)
        client = await asked(running)
        await read_head(client)
        running.gateway_stop.set()
        body, is_whole = await read_body(client)
        assert (b"the gateway ended" in body, is_whole) == (True, False)


async def test_a_stream_that_hangs_ends_alone() -> None:
    model = streaming(takes_s=0.01)
    model = replace(model, dispatch=replace(model.dispatch, hung_after_s=0.05))
    backend = ScriptedBackend()
    async with live(model, agents=0) as running:
        await put(running, backend)
        silent, begun = await asked(running), await asked(running)
        (await backend.script(1)).say(b"data: 1\n\n")
        assert (await silent.read()).status == 504
        await read_head(begun)
        body, is_whole = await read_body(begun)
        assert (b"sent nothing" in body, is_whole) == (True, False)
        client = await asked(running)
        (await backend.script(2)).say(b"data: 2\n\n", None)
        await read_head(client)
        assert (await read_body(client))[1]


async def test_a_stream_that_cannot_be_ended_ends_its_agent() -> None:
    """It would keep its slot for good: a step of a generator that hangs, as nothing interrupts a thread."""

    class Stubborn(Script):
        async def aclose(self) -> None:
            await asyncio.Event().wait()

    model = streaming(slots=1, takes_s=0.01)
    model = replace(model, dispatch=replace(model.dispatch, hung_after_s=0.05))
    backend = ScriptedBackend()
    backend.make = Stubborn
    async with live(model, agents=0) as running:
        await put(running, backend)
        assert (await (await asked(running)).read()).status == 504
        assert await running.agents["i-0"].task == EXIT_BROKEN


async def test_a_request_that_always_fails_ends_no_agent() -> None:
    backend = ScriptedBackend()
    async with live(streaming(), agents=0) as running:
        await put(running, backend)
        for number in range(FAILURES_IN_A_ROW + 1):
            client = await asked(running)
            (await backend.script(number)).say(ModelFailed("bad words", status=500))
            assert (await client.read()).status == 500
        assert not running.agents["i-0"].task.done()


async def test_hundreds_of_streams_at_once() -> None:
    backend = ScriptedBackend(b"data: 1\n\n")
    async with live(streaming(slots=300, takes_s=20.0), agents=0) as running:
        await put(running, backend)
        clients = [await asked(running) for _ in range(300)]
        for client in clients:
            assert (await read_head(client))[0] == 200
            assert await read_chunk(client) == b"data: 1\n\n"
        assert len(backend.scripts) == 300
        for script in backend.scripts:
            script.say(b"data: 2\n\n", None)
        for client in clients:
            assert await read_body(client) == (b"data: 2\n\n", True)


async def test_a_stream_keeps_its_slot_until_its_end() -> None:
    backend = ScriptedBackend(b"data: 1\n\n")
    async with live(streaming(slots=2), agents=0) as running:
        await put(running, backend)
        clients = [await asked(running) for _ in range(3)]
        for client in clients[:2]:
            await read_head(client)
        await until(lambda: _waits(running, 1))
        assert len(backend.scripts) == 2
        backend.scripts[0].say(None)
        assert (await read_head(clients[2]))[0] == 200


async def test_more_streams_than_slots_may_come_at_once() -> None:
    backend = ScriptedBackend(b"data: 1\n\n", None)
    async with live(streaming(slots=1), agents=0) as running:
        await put(running, backend)
        clients = [await running.client() for _ in range(6)]
        for client in clients:  # in one turn of the loop: they come to the agent in one read
            client.send(STREAM, BODY)
        assert [(await read_head(client))[0] for client in clients] == [200] * 6


async def _waits(running: Live, count: int) -> bool:
    page = await http_get(running, "/metrics")
    return f'waiting{{instance="i-0",model="echo"}} {count}' in page or f"}} {count}.0" in next(
        (line for line in page.splitlines() if line.startswith("mark_agent_waiting")), ""
    )


async def http_get(running: Live, path: str) -> str:
    client = await running.client(running.agents["i-0"].http_port)
    return (await client.ask(path, None, "GET")).body.decode()


async def test_the_agents_own_port_streams_too() -> None:
    backend = ScriptedBackend(b"data: 1\n\n", None)
    async with live(streaming(), agents=0) as running:
        await put(running, backend)
        client = await running.client(running.agents["i-0"].http_port)
        client.send(STREAM, BODY)
        assert (await read_head(client))[1]["content-type"] == "text/event-stream"
        assert await read_body(client) == (b"data: 1\n\n", True)
        client.send(STREAM, BODY)
        await read_head(client)


async def test_a_first_byte_in_time_keeps_an_objective_of_first_bytes() -> None:
    """The whole answer lasts as long as it lasts: here until its client had its first byte."""

    slo = Slo(latency_s=60.0, target=0.98, first_byte_s=30.0)
    backend = ScriptedBackend(b"data: 1\n\n", None)
    async with live(streaming(slo=slo), agents=0) as running:
        await put(running, backend)
        client = await asked(running)
        await read_head(client)
        assert (await read_body(client))[1]
        await running.until_metric('mark_gateway_first_byte_seconds_count{model="echo"}', 1)
        assert await running.metric('mark_gateway_late_total{model="echo"}') == 0
        assert await running.metric('mark_gateway_objective_seconds{model="echo"}') == 30


async def test_a_client_of_http_1_0_is_told_that_it_cannot_have_a_stream() -> None:
    backend = ScriptedBackend(b"data: 1\n\n")
    async with live(streaming(), agents=0) as running:
        await put(running, backend)
        client = await running.client()
        client.writer.write(
            b"POST %b HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (STREAM.encode(), len(BODY), BODY)
        )
        assert (await client.reader.readline()).startswith(b"HTTP/1.1 505")
        assert not backend.scripts, "no model works for it"


def test_a_backend_that_cannot_stream_is_refused_at_the_start() -> None:
    model = streaming()
    config = AgentConfig(instance="i-0", role=Role.SERVING, host="127.0.0.1")
    with pytest.raises(Misconfigured, match=r"leave backend\.streams out"):
        Tenant(config, served=model, offering=model.offerings[0], backend=EchoBackend())
