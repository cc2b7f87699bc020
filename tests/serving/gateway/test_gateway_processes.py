"""Gateways as processes of their own, on one port: what they take of memory, and that an id runs once."""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mark.domain.fleet.instances import Role
from mark.domain.fleet.member import Member, MemberState
from mark.protocols.frames import FrameParser, Hello, Request, State, encode, encode_response
from mark.protocols.handshake import AgentHandshake, new_nonce
from mark.store.connect import connect_async
from mark.store.data_plane import AgentStore
from mark.store.embedded import EmbeddedRedis
from tests.serving.harness import BODY, INFER, Client, Reply, run, until

MIB = 2**20
KEY = "the agent's"
ANSWER = b'{"ok": true}'
PEERS = {f'mark_gateway_peers{{gateway="{name}"}}': 1.0 for name in ("g-1", "g-2")}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "store") as server:
        yield server


@contextmanager
def gateway(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The process and its port."""
    command = [sys.executable, "-m", "tests.serving.gateway.one_gateway", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


class CountingAgent(asyncio.Protocol):
    """Answers each request at once, whatever it says, and remembers their ids."""

    seen: list[bytes]
    transports: set[Any]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._parser = FrameParser()
        self.transports.add(transport)
        self._saying: asyncio.TimerHandle | None = None
        self._handshake = AgentHandshake(new_nonce())
        self._transport.write(encode(self._handshake.challenge()))

    def connection_lost(self, _: Exception | None) -> None:
        if self._saying is not None:
            self._saying.cancel()
        self.transports.discard(self._transport)

    def _say(self) -> None:
        self._transport.write(encode(State(0, True, False, 0, 0, 0.0, math.inf, 1e6, (1e-6,) * 4)))
        self._saying = asyncio.get_running_loop().call_later(0.25, self._say)

    def data_received(self, data: bytes) -> None:
        for frame in self._parser.feed(data):
            if isinstance(frame, Request):
                self.seen.append(frame.request_id)
                self._transport.write(encode_response(frame.id, 200, b"application/json", 0, ANSWER))
            elif isinstance(frame, Hello):
                self._transport.write(encode(self._handshake.welcome(frame, [KEY])[1]))
                self._say()


@asynccontextmanager
async def agent(url: str) -> AsyncIterator[list[bytes]]:
    """An agent that gateways find in the store; the ids of the requests that it ran."""
    seen: list[bytes] = []
    transports: set[Any] = set()
    kind = type("Agent", (CountingAgent,), {"seen": seen, "transports": transports})
    server = await asyncio.get_running_loop().create_server(kind, "127.0.0.1", 0)
    member = Member(
        instance="i-0", model="echo", offering="c5.large:on-demand", role=Role.SERVING, host="127.0.0.1",
        port=server.sockets[0].getsockname()[1], state=MemberState.READY, max_batch=4, batch_s=(0.001,) * 4,
        capacity_rps=1e4, wire_key=KEY,
    )  # fmt: skip
    link = connect_async(url)
    store = AgentStore(link, "test", member_ttl_s=600)
    await store.announce(member)

    async def announcing() -> None:
        while True:
            await asyncio.sleep(0.5)
            await store.announce(member)

    task = asyncio.ensure_future(announcing())
    try:
        yield seen
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        server.close()
        for transport in tuple(transports):
            transport.abort()
        await link.aclose()


async def ask(port: int, body: bytes = BODY, **headers: str) -> Reply:
    """One request on a connection of its own."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    try:
        return await client.ask(body=body, **headers)
    finally:
        await client.close()


async def ready(port: int, **headers: str) -> None:
    async def answered() -> bool:
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        try:
            return (await client.ask("/v2/health/ready", None, "GET", **headers)).status == 200
        finally:
            await client.close()

    await until(answered, within_s=30)


async def metrics(port: int) -> dict[str, float]:
    """Value by series."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    try:
        page = (await client.ask("/metrics", None, "GET")).body.decode()
    finally:
        await client.close()
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    assert len({line.rpartition(" ")[0] for line in lines}) == len(lines)  # Prometheus takes no series twice
    return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}


def test_gateways_that_share_a_port_tell_the_same_metrics_and_run_an_id_once(redis: EmbeddedRedis) -> None:
    async def test(stack: ExitStack) -> None:
        async with agent(redis.url) as seen:
            _, port = stack.enter_context(gateway("0", "g-1", redis.url))
            second, _ = stack.enter_context(gateway(str(port), "g-2", redis.url))
            await ready(port)

            async def shared() -> bool:
                return all([PEERS.items() <= (await metrics(port)).items() for _ in range(20)])

            async def serve() -> bool:
                return all([(await ask(port)).status == 200 for _ in range(20)])

            await until(shared, within_s=30)
            await until(serve, within_s=30)  # a gateway may know the others before it knows the agents
            for _ in range(3):
                await ask(port)
                pages = [responses(await metrics(port)) for _ in range(20)]
                assert pages == [pages[0]] * 20
            by_gateway = pages[0]
            assert {re.findall('gateway="(.*?)"', series)[0] for series in by_gateway} == {"g-1", "g-2"}
            assert sum(by_gateway.values()) >= 23

            seen.clear()
            for number in range(10):
                replies = [await ask(port, x_mark_request_id=f"id-{number}") for _ in range(6)]
                assert [reply.status for reply in replies] == [200] * 6
                statuses = [(await ask(port, b"{}", x_mark_request_id=f"id-{number}")).status for _ in range(4)]
                assert statuses == [409] * 4
            assert sorted(seen) == sorted(b"id-%d" % number for number in range(10))

            by_gateway = responses(await metrics(port))
            second.kill()
            second.wait()

            async def alone() -> bool:
                page = await metrics(port)
                return page.get('mark_gateway_peers{gateway="g-1"}') == 0

            await until(alone, within_s=30)
            left = responses(await metrics(port))
            assert left == {series: by_gateway[series] for series in left}  # a series may end, and never goes back
            for number in range(10, 20):
                replies = [await ask(port, x_mark_request_id=f"id-{number}") for _ in range(3)]
                assert [reply.status for reply in replies] == [200] * 3
            assert sorted(seen) == sorted(b"id-%d" % number for number in range(20))

    with ExitStack() as stack:
        run(test(stack), within_s=120)


def responses(page: dict[str, float]) -> dict[str, float]:
    return {series: value for series, value in page.items() if series.startswith("mark_gateway_responses_total")}


def memory(pid: int, field: str) -> int:
    """Bytes of a process: VmRSS that it has now, VmHWM that it had at most."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(field)


async def pour(writer: asyncio.StreamWriter, size: int) -> None:
    piece = b" " * 65_536
    with suppress(ConnectionError):
        for _ in range(size // len(piece)):
            writer.write(piece)
            await writer.drain()


def test_bodies_of_clients_without_a_token_are_not_held(redis: EmbeddedRedis) -> None:
    async def test(stack: ExitStack) -> None:
        process, port = stack.enter_context(gateway("0", "g-1", redis.url, "secret"))
        before = memory(process.pid, "VmRSS")
        writers = []
        for path in (INFER, "/v2/health/live") * 4:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: 33000000\r\n\r\n" % path.encode())
            writers.append(writer)
            assert (await reader.readline()).split()[1] in (b"401", b"405")  # at once, without a body
        await asyncio.gather(*(pour(writer, 31_000_000) for writer in writers))
        for writer in writers:
            writer.transport.abort()

        assert memory(process.pid, "VmHWM") - before < 64 * MIB

    with ExitStack() as stack:
        run(test(stack), within_s=120)


def test_large_bodies_one_after_another_take_the_memory_of_a_few(redis: EmbeddedRedis) -> None:
    count, size = 10, 30_000_000

    async def test(stack: ExitStack) -> None:
        async with agent(redis.url) as seen:
            process, port = stack.enter_context(gateway("0", "g-1", redis.url))
            await ready(port)
            before = memory(process.pid, "VmRSS")
            client = Client(*await asyncio.open_connection("127.0.0.1", port))

            async def send() -> None:
                for _ in range(count):
                    head = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (INFER.encode(), size)
                    client.writer.write(head + b" " * (size % 65_536))
                    await pour(client.writer, size)

            sending = asyncio.ensure_future(send())
            for _ in range(count):
                assert (await client.read(within_s=60)).status == 200
            await sending
            await client.close()

            assert len(seen) == count
            assert memory(process.pid, "VmHWM") - before < 256 * MIB

    with ExitStack() as stack:
        run(test(stack), within_s=120)
