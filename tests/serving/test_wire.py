"""The wire between gateway and agent: who is let in, what that may cost, and that it can be encrypted."""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import replace

import pytest

from mark.dispatch.policy import DispatchPolicy
from mark.domain.fleet.instances import Role
from mark.protocols.frames import Bounced as BouncedFrame
from mark.protocols.frames import Challenge, FrameParser, Hello, Request, Response, Welcome, encode
from mark.protocols.handshake import AgentHandshake, GatewayHandshake, new_nonce
from mark.serving.agent.access import AgentAccess
from mark.serving.agent.gateway_link import FramePort, GatewayConnection
from mark.serving.agent.tenant import AgentConfig, Tenant
from mark.serving.certificate import make_certificate
from mark.serving.frame_link import HANDSHAKE_S, WHOLE_FRAME_S
from tests.serving.fakes import EchoBackend
from tests.serving.harness import Client, Live, live, offering, served, until
from tests.serving.test_agent import Frames, frames_to, request, waits
from tests.serving.test_frame_link import Wire

TOKEN = {"authorization": "Bearer a-token-of-clients"}


async def stranger_to(running: Live) -> tuple[Frames, Client]:
    """A connection of somebody who knows the agent's address alone."""
    member = running.store.listed["i-0"]
    streams = await asyncio.open_connection(member.host, member.port)
    return Frames(*streams), Client(*streams)


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record for record in caplog.records if record.getMessage() == "gateway refused"]
    return [str(record.__dict__["reason"]) for record in found]


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (request(1, forced=True, body=b""), "a Request came before a Hello"),
        (Hello(2), "the gateway uses frame version 2, this agent 5"),
    ],
    ids=["a request", "another version"],
)
async def test_what_comes_from_strangers_is_not_run(
    frame: Request | Hello, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with live() as running:
        frames, client = await stranger_to(running)
        await frames.next(Challenge)
        frames.send(frame)
        assert await client.is_closed()
        await client.close()

        assert running.agents["i-0"].backend.batches == []
        assert (await running.ask()).status == 200
    assert refusals(caplog) == [reason]


async def test_a_wrong_key_and_a_recorded_hello_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with live() as running:
        frames, client = await stranger_to(running)
        handshake = GatewayHandshake(running.store.listed["i-0"].wire_key, new_nonce(), None)
        recorded = handshake.hello(await frames.next(Challenge))
        frames.send(recorded)
        handshake.check(await frames.next(Welcome))
        await client.close()

        for hello in (lambda _: recorded, GatewayHandshake("a guess", new_nonce(), None).hello):
            frames, client = await stranger_to(running)
            frames.send(hello(await frames.next(Challenge)), request(1, forced=True))
            assert await client.is_closed()
            await client.close()
        assert running.agents["i-0"].backend.batches == []
    assert refusals(caplog) == ["the gateway does not know this agent's key"] * 2


async def test_of_strangers_no_long_frame_is_held() -> None:
    async with live() as running:
        frames, client = await stranger_to(running)
        await frames.next(Challenge)
        client.writer.write(encode(request(1, body=bytes(1_000_000)))[:300])
        assert await client.is_closed()
        await client.close()


async def test_a_gateway_does_not_send_to_an_agent_that_does_not_know_its_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Somebody else listens at the address that stands in the store."""

    came: list[bytes] = []

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handshake, parser = AgentHandshake(new_nonce()), FrameParser()
        writer.write(encode(handshake.challenge()))
        while data := await reader.read(65536):
            for frame in parser.feed(data):
                came.append(type(frame).__name__.encode())
                writer.write(encode(Welcome(bytes(32))))
        writer.close()

    server = await asyncio.start_server(impostor, "127.0.0.1", 0)
    async with live() as running:
        real = running.store.listed["i-0"]
        port = server.sockets[0].getsockname()[1]
        await running.store.announce(replace(real, instance="i-9", port=port))
        await until(lambda: len(came) >= 2)
        assert [(await running.ask()).status for _ in range(20)] == [200] * 20
        assert set(came) == {b"Hello"}
        running.store.forget("i-9")
    server.close()
    reasons = {str(record.__dict__["reason"]) for record in caplog.records if record.msg == "%s refused"}
    assert reasons == {"the agent does not know the key that stands in the store"}


async def test_between_hosts_frames_are_encrypted() -> None:
    async with live(encrypted=True) as running:
        member = running.store.listed["i-0"]
        assert len(member.certificate) == 64
        assert (await running.ask()).status == 200
        large = await running.ask(body=b'{"inputs":[' + b" " * 3_000_000 + b"]}")
        assert large.status == 400

        frames, client = await stranger_to(running)
        frames.send(request(1))
        assert await client.is_closed()
        await client.close()
        assert running.agents["i-0"].backend.batches[:1] == [1]


async def test_a_certificate_that_is_not_the_announced_one_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with live(agents=0, encrypted=True) as running:
        announce = running.store.announce

        async def announced(member: object) -> bool:
            return await announce(replace(member, certificate="0" * 64))  # type: ignore[type-var]

        running.store.announce = announced  # type: ignore[method-assign, assignment]
        await running.add_agent("i-0", wait=False)
        await until(lambda: any(record.msg == "%s refused" for record in caplog.records))

        assert (await running.ask()).status == 503


async def test_what_a_gateway_that_left_had_queued_is_not_run() -> None:
    async with live() as running:
        backend = running.agents["i-0"].backend
        backend.free.clear()
        gone, stays = await frames_to(running), await frames_to(running)
        gone.send(request(1))
        await until(lambda: backend.batches == [1])
        gone.send(*(request(number) for number in range(2, 8)))
        stays.send(request(1))
        await until(lambda: waits(running, 7))
        await gone.close()
        await until(lambda: waits(running, 1))
        backend.free.set()
        response = await stays.next(Response)
        await stays.close()

        assert isinstance(response, Response)
        assert response.status == 200
        assert len(backend.requests) == 2


async def test_of_2000_forced_requests_those_are_queued_that_can_be_answered_before_gateways_give_up() -> None:
    slow = served(dispatch=DispatchPolicy(give_up_s=30.0), latency_s=5.0, batch_s=(0.5, 0.6, 0.7, 0.8))
    async with live(slow) as running:
        backend = running.agents["i-0"].backend
        backend.free.clear()
        gateway = await frames_to(running)
        gateway.send(*(request(number, forced=True) for number in range(1, 2001)))
        most = 30.0 / 0.8 * 4 + 4
        bounced = [await gateway.next(BouncedFrame) for _ in range(2000 - int(most))]
        await gateway.close()
        backend.free.set()

        assert len({frame.id for frame in bounced if isinstance(frame, BouncedFrame)}) == len(bounced)
        assert len(backend.requests) <= most


def connection() -> tuple[GatewayConnection, Wire, str]:
    config = AgentConfig(instance="i-0", role=Role.SERVING, host="127.0.0.1")
    tenant = Tenant(config, served=served(), offering=offering(batch_s=(0.01,)), backend=EchoBackend())
    made, wire = GatewayConnection(FramePort(standby=False, tenants={tenant.wire_key: tenant})), Wire()
    made.connection_made(wire)
    return made, wire, tenant.wire_key


def greet(made: GatewayConnection, wire: Wire, key: str) -> None:
    made.flush()
    (challenge,) = FrameParser().feed(wire.written[0])
    made.data_received(encode(GatewayHandshake(key, new_nonce(), None).hello(challenge)))


async def test_a_frame_has_to_come_whole_in_time() -> None:
    made, wire, key = connection()
    greet(made, wire, key)
    data = encode(request(1, body=bytes(5000)))
    made.data_received(data[:100])
    made.check_progress(0.0)
    for at in range(100, 120):
        made.data_received(data[at : at + 1])
        made.check_progress(WHOLE_FRAME_S / 20)
    assert not wire.ended
    made.data_received(data[120:121])
    made.check_progress(WHOLE_FRAME_S / 20)
    assert wire.ended


async def test_frames_one_after_another_never_are_too_slow() -> None:
    """Though at each look one of them is on its way."""

    made, wire, key = connection()
    greet(made, wire, key)
    data = encode(request(1, body=bytes(50)))
    made.data_received(data[:60])
    for _ in range(50):
        made.check_progress(WHOLE_FRAME_S / 4)
        made.data_received(data[60:] + data[:60])
    assert not wire.ended
    made.data_received(data[60:])
    for _ in range(50):
        made.check_progress(WHOLE_FRAME_S)
    assert not wire.ended


async def test_who_says_nothing_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    made, wire, _ = connection()
    made.check_progress(HANDSHAKE_S)
    assert not wire.ended
    made.check_progress(0.1)
    assert wire.ended
    assert [record.getMessage() for record in caplog.records] == ["gateway too slow; closing its connection"]


async def test_its_own_http_port_asks_for_the_token_of_the_service() -> None:
    async with live(token="a-token-of-clients") as running:
        port = running.agents["i-0"].http_port
        client = Client(*await asyncio.open_connection("127.0.0.1", port))

        async def infers() -> bool:
            return (await client.ask(**TOKEN)).status == 200

        await until(infers)
        backend = running.agents["i-0"].backend
        ran = len(backend.requests)
        assert (await client.ask()).status == 401
        assert (await client.ask(authorization="Bearer another")).status == 401
        assert (await client.ask("/metrics", None, "GET")).status == 401
        assert (await client.ask("/v2/health/live", None, "GET")).status == 200
        assert (await client.ask("/ping", None, "GET")).status == 200
        assert (await client.ask("/metrics", None, "GET", **TOKEN)).status == 200
        await client.close()

        assert len(backend.requests) == ran


async def test_before_a_gateway_has_said_which_token_counts_none_does() -> None:
    async with live(agents=0) as running:
        announce, running.store.announce = running.store.announce, _unheard  # type: ignore[method-assign]
        agent = await running.add_agent("i-0", wait=False)
        client = Client(*await asyncio.open_connection("127.0.0.1", agent.http_port))
        reply = await client.ask()
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert (await client.ask("/v2/health/live", None, "GET")).status == 200
        running.store.announce = announce  # type: ignore[method-assign]
        await running.until_agents(1)
        assert (await client.ask()).status == 200
        await client.close()


async def _unheard(_: object) -> bool:
    return False


def test_an_agent_without_gateways_lets_everybody_in() -> None:
    assert AgentAccess("key", b"").allows({})
    assert not AgentAccess("key").allows({})


def test_the_context_takes_no_older_tls() -> None:
    first, second = make_certificate(), make_certificate()

    assert first.context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert first.fingerprint != second.fingerprint
