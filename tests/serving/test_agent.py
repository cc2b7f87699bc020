"""An agent with real sockets: admission, batches, drain, notices, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mark.dispatch.policy import Bounced, DispatchPolicy
from mark.domain.clock import ClockAnchor
from mark.domain.errors import Misconfigured, RetryLater
from mark.domain.fleet.instances import Role
from mark.domain.fleet.member import Member, MemberState
from mark.domain.fleet.orphan import LONGEST_STEP_S, ORPHAN_AFTER_S
from mark.protocols.frames import (
    VERSION,
    Cancel,
    Challenge,
    Frame,
    FrameParser,
    Hello,
    Request,
    Response,
    State,
    Welcome,
    encode,
)
from mark.protocols.frames import (
    Bounced as BouncedFrame,
)
from mark.protocols.handshake import GatewayHandshake, new_nonce
from mark.serving.agent import process
from mark.serving.agent.host import METADATA, Host
from mark.serving.agent.process import EXIT_BROKEN, EXIT_DRAINED, EXIT_STOPPED, serve_agent
from mark.serving.agent.tenant import AgentConfig, Tenant
from mark.steady_time import steady_time
from tests.serving.fakes import EchoBackend, FakeLambda, FakeStore
from tests.serving.harness import BODY, INFER, LAMBDA, Client, Live, live, offering, run, served, until
from tests.waiting import PATIENCE_S


class Frames:
    """A gateway's end of a connection, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._parser = FrameParser()
        self._frames: list[Frame] = []

    def send(self, *frames: Frame) -> None:
        self._writer.write(b"".join(map(encode, frames)))

    async def greet(self, key: str) -> None:
        """Prove to the agent that this is a gateway."""
        handshake = GatewayHandshake(key, new_nonce(), None)
        self.send(handshake.hello(await self.next(Challenge)))
        handshake.check(await self.next(Welcome))

    async def next(self, kind: type[Frame]) -> Frame:
        while True:
            while self._frames:
                if isinstance(frame := self._frames.pop(0), kind):
                    return frame
            data = await asyncio.wait_for(self._reader.read(65536), PATIENCE_S)
            assert data, "closed"
            self._frames += self._parser.feed(data)

    async def is_closed(self) -> bool:
        while data := await asyncio.wait_for(self._reader.read(65536), PATIENCE_S):
            assert data
        return True

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def waits(running: Live, count: int) -> bool:
    """Whether so many requests wait in the agent's queue, as its own metrics say."""
    client = Client(*await asyncio.open_connection("127.0.0.1", running.agents["i-0"].http_port))
    page = (await client.ask("/metrics", None, "GET")).body.decode()
    await client.close()
    samples = (sample for family in text_string_to_metric_families(page) for sample in family.samples)
    return [sample.value for sample in samples if sample.name == "mark_agent_waiting"] == [count]


async def frames_to(running: Live, instance: str = "i-0") -> Frames:
    member = running.store.listed[instance]
    frames = Frames(*await asyncio.open_connection(member.host, member.port))
    await frames.greet(member.wire_key)
    return frames


def request(id_: int, *, left_s: float = 1.0, forced: bool = False, body: bytes = BODY) -> Request:
    return Request(id_, 0, int(left_s * 1e6), INFER.encode(), b"application/json", 0, b"r", b"", body, forced)


async def test_what_comes_while_it_works_shares_the_next_batches() -> None:
    async with live() as running:
        backend = running.agents["i-0"].backend
        backend.free.clear()
        gateway = await frames_to(running)
        gateway.send(request(1))
        await until(lambda: backend.batches == [1])
        gateway.send(*(request(number) for number in range(2, 8)))
        state = await gateway.next(State)
        while not (isinstance(state, State) and state.waiting == 6):
            state = await gateway.next(State)
        backend.free.set()
        ids = set()
        for _ in range(7):
            response = await gateway.next(Response)
            assert isinstance(response, Response)
            assert response.status == 200
            ids.add(response.id)
        await gateway.close()

        assert ids == set(range(1, 8))
        assert backend.batches == [1, 4, 2]


async def test_the_bouncer_admits_what_can_be_in_time_and_what_is_forced() -> None:
    async with live() as running:
        gateway = await frames_to(running)
        gateway.send(request(1, left_s=0.001))
        assert await gateway.next(BouncedFrame) == BouncedFrame(1, pytest.approx(2000, abs=100))
        gateway.send(request(2, left_s=0.001, forced=True))
        response = await gateway.next(Response)
        await gateway.close()

        assert isinstance(response, Response)
        assert response.id == 2


async def test_without_a_bouncer_everything_is_taken() -> None:
    async with live(served(dispatch=DispatchPolicy(admission_factor=None))) as running:
        assert (await running.ask(x_mark_deadline_ms="1")).status == 200
        assert running.agents["i-0"].backend.batches == [1]


async def test_a_cancelled_request_is_not_run() -> None:
    async with live() as running:
        backend = running.agents["i-0"].backend
        backend.free.clear()
        gateway = await frames_to(running)
        gateway.send(request(1))
        await until(lambda: backend.batches == [1])
        gateway.send(request(2), request(3))
        await until(lambda: waits(running, 2))
        gateway.send(Cancel(2))
        await until(lambda: waits(running, 1))
        backend.free.set()
        answered = [await gateway.next(Response), await gateway.next(Response)]
        await gateway.close()

        assert [frame.id for frame in answered if isinstance(frame, Response)] == [1, 3]
        assert len(backend.requests) == 2


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n" * 4, b"\xff" * 40, encode(Hello(99))], ids=["HTTP", "noise", "version 99"]
)
async def test_a_client_with_malformed_frames_is_cut_off_and_harms_nobody(data: bytes) -> None:
    async with live() as running:
        member = running.store.listed["i-0"]
        client = Client(*await asyncio.open_connection(member.host, member.port))
        await client.reader.readexactly(len(encode(Challenge(VERSION))))
        client.writer.write(data)
        assert await client.is_closed()
        await client.close()
        assert (await running.ask()).status == 200


async def test_told_to_drain_it_answers_what_it_has_and_powers_off() -> None:
    async with live(agents=2) as running:
        agent = running.agents["i-0"]
        running.agents["i-1"].backend.free.clear()
        agent.backend.free.clear()
        clients = [await running.client() for _ in range(2)]
        for client in clients:
            client.send()
        await running.until_metric('mark_gateway_in_flight{model="echo"}', 2)
        running.store.drained.add("i-0")
        await running.until_agents(1)
        await until(lambda: running.store.listed["i-0"].state is MemberState.DRAINING)
        running.agents["i-1"].backend.free.set()
        assert (await running.ask()).status == 200
        agent.backend.free.set()
        for client in clients:
            assert (await client.read()).status == 200
            await client.close()

        assert await agent.task == EXIT_DRAINED
        assert "i-0" not in running.store.listed
        assert agent.backend.closed
        assert len(agent.backend.requests) == 1
        assert await running.metric('mark_gateway_redispatched_total{model="echo"}') == 0


async def test_a_stopped_agent_says_so() -> None:
    async with live() as running:
        agent = running.agents["i-0"]
        agent.stop.set()
        assert await agent.task == EXIT_STOPPED


async def test_a_broken_backend_answers_500_and_ends_the_agent() -> None:
    async with live() as running:
        agent = running.agents["i-0"]
        agent.backend.broken = True
        for _ in range(5):
            reply = await running.ask()
            assert reply.status == 500
        assert await agent.task == EXIT_BROKEN
        assert await running.metric('mark_gateway_failed_total{model="echo"}') == 5


async def test_nothing_is_taken_that_would_end_after_a_spot_notice() -> None:
    overflow = FakeLambda()
    policy = DispatchPolicy(bounced=Bounced.LAMBDA)
    async with live(served(overflow=LAMBDA, dispatch=policy), overflow=overflow) as running:
        agent = running.agents["i-0"]
        agent.taken_at.append(time.time() + 60)
        await until(lambda: running.store.listed["i-0"].terminates_at is not None)
        assert (await running.ask()).headers["x-mark-served-by"] == "instance"
        agent.taken_at.append(time.time())

        async def to_lambda() -> bool:
            return (await running.ask()).headers["x-mark-served-by"] == "lambda"

        await until(to_lambda)


async def test_measured_times_are_announced() -> None:
    async with live(takes_s=0.02) as running:
        before = running.store.listed["i-0"].batch_s
        for _ in range(10):
            await running.ask()
        await until(lambda: running.store.listed["i-0"].batch_s[0] > 3 * before[0])
        assert running.store.listed["i-0"].capacity_rps < 4 / before[-1]


async def test_it_serves_on_when_the_store_is_away() -> None:
    async with live() as running:
        running.store.away = True
        await until(lambda: running.store.refused > 0)
        assert (await running.ask()).status == 200
        running.store.away = False


LOOKS_S = 0.005
"""Between two looks of an agent at its service's clock, whose day lasts less than a second here."""


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> ClockAnchor:
    monkeypatch.setattr(process, "CLOCK_S", LOOKS_S)
    return ClockAnchor(wall_at=steady_time(), service_at=1e9, speed=1e6)


@pytest.mark.parametrize("store_is_lost", [True, False])
async def test_left_alone_for_hours_it_powers_off(fast: ClockAnchor, store_is_lost: bool) -> None:
    async with live() as running:
        running.store.anchor = fast
        told = running.store.told_clock
        await until(lambda: running.store.told_clock > told)
        running.store.away = store_is_lost
        assert await running.agents["i-0"].task == EXIT_DRAINED
        running.store.away = False


@pytest.mark.parametrize("is_used", [True, False])
async def test_an_agent_that_is_used_or_whose_controllers_act_stays(fast: ClockAnchor, is_used: bool) -> None:
    async with live() as running:
        gateway = await frames_to(running)
        running.store.anchor = fast
        enough = running.store.told_clock + 2 * ORPHAN_AFTER_S / LONGEST_STEP_S
        while running.store.told_clock < enough:
            if is_used:
                gateway.send(request(1))
                await gateway.next(Response)
            else:
                running.store.acted = fast.service_time(steady_time())
                await asyncio.sleep(0)
        assert not running.agents["i-0"].task.done()
        await gateway.close()


class DeafStore(FakeStore):
    """A store whose client loses the first cancellation, as one that is just connecting may."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    async def announce(self, member: Member) -> bool:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await super().announce(member)
        return False


def test_an_agent_whose_model_does_not_load_ends_though_a_task_misses_its_cancellation() -> None:
    store = DeafStore()

    class Broken(EchoBackend):
        async def start(self) -> None:
            await store.begun.wait()
            raise Misconfigured("no such library")

    async def test() -> None:
        config = AgentConfig(instance="i-0", role=Role.SERVING, host="127.0.0.1", frame_port=0, http_port=0)
        await serve_agent(
            config,
            served=served(),
            offering=offering(),
            link=store,
            backend=Broken(),
            interruption=no_notice,
            stop=asyncio.Event(),
        )

    with pytest.raises(Misconfigured, match="no such library"):
        run(asyncio.wait_for(test(), PATIENCE_S))


async def no_notice() -> float | None:
    return None


async def test_a_metadata_service_that_is_away_is_named_once_while_the_store_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def away() -> float | None:
        raise RetryLater("the metadata service does not answer")

    async def there() -> float | None:
        return None

    caplog.set_level(logging.INFO)
    config = AgentConfig(instance="i-0", role=Role.SERVING, host="127.0.0.1")
    tenant = Tenant(config, served=served(), offering=offering(), backend=EchoBackend())
    host = Host(config, link=FakeStore(), offering="c5.large", tenant=tenant)
    for interruption in (away, away, away, there, there):
        await host.call_dependency(partial(host.watch, interruption), of=METADATA)
        await host.call_dependency(host.announce)
    assert [record.getMessage() for record in caplog.records] == [
        "metadata service unreachable, serving with the last known state",
        "metadata service reachable again",
    ]


async def test_its_own_port_serves_the_model_health_and_metrics() -> None:
    async with live() as running:
        port = running.agents["i-0"].http_port
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        assert (await client.ask("/v2/health/ready", None, "GET")).status == 200
        assert (await client.ask("/ping", None, "GET")).status == 200
        assert (await client.ask("/v2/models/echo", None, "GET")).document["name"] == "echo"
        assert (await client.ask()).document["outputs"][0]["data"] == [0.0, 0.0]
        assert (await client.ask("/other", None, "GET")).status == 404
        page = (await client.ask("/metrics", None, "GET")).body.decode()
        await client.close()

        assert 'mark_agent_responses_total{instance="i-0",model="echo"} 1' in page


async def test_it_is_not_ready_before_its_backend_is() -> None:
    async with live(agents=0) as running:
        agent = await running.add_agent("i-0", wait=False)
        seen = {running.store.listed["i-0"].state} if running.store.listed else {MemberState.STARTING}
        await running.until_agents(1)

        assert seen == {MemberState.STARTING}
        assert agent.backend.started
