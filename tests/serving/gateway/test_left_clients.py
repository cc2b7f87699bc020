"""Requests whose clients have gone: what has not begun is not run, and who waits gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mark.serving.http import connection
from tests.serving.fakes import EchoBackend
from tests.serving.harness import Client, Live, Reply, live, served, until

LEFT = 'mark_gateway_left_total{model="echo"}'


@asynccontextmanager
async def busy() -> AsyncIterator[tuple[Live, EchoBackend, asyncio.Task[Reply]]]:
    """A gateway with one instance, which works on a request until its backend is let free."""
    async with live(served(latency_s=60.0, batch_s=(0.002,))) as running:
        backend = running.agents["i-0"].backend
        backend.free.clear()
        first = asyncio.ensure_future(running.ask())
        await until(lambda: backend.batches == [1])
        yield running, backend, first


async def waiting(running: Live, count: int) -> None:
    """So many requests are in the instance's queue."""

    async def there() -> bool:
        agent = await running.client(running.agents["i-0"].http_port)
        page = (await agent.ask("/metrics", None, "GET")).body.decode()
        await agent.close()
        return any(
            line.startswith("mark_agent_waiting{") and float(line.split()[-1]) == count
            for line in page.splitlines()
        )

    await until(there)


async def sent(running: Live, port: int, **headers: str) -> Client:
    client = await running.client(port)
    client.send(**headers)
    return client


@pytest.mark.parametrize("way", ["gateway", "agent"])
async def test_what_clients_that_have_gone_had_queued_is_not_run(way: str) -> None:
    async with busy() as (running, backend, first):
        port = running.port if way == "gateway" else running.agents["i-0"].http_port
        clients = [await sent(running, port) for _ in range(5)]
        await waiting(running, 5)
        for client in clients:
            await client.close()
        await waiting(running, 0)
        if way == "gateway":
            await running.until_metric(LEFT, 5)
        backend.free.set()
        assert ((await first).status, (await running.ask()).status) == (200, 200)
        assert len(backend.requests) == 2


async def test_a_client_that_has_gone_while_its_request_runs_harms_nobody() -> None:
    async with live(served(latency_s=60.0)) as running:
        backend = running.agents["i-0"].backend
        backend.free.clear()
        client = await sent(running, running.port)
        await until(lambda: backend.batches == [1])
        await client.close()
        await running.until_metric(LEFT, 1)
        backend.free.set()
        assert (await running.ask()).status == 200


async def test_a_request_with_an_id_is_run_for_the_retry_of_a_client_that_has_gone() -> None:
    async with busy() as (running, backend, first):
        client = await sent(running, running.port, x_mark_request_id="one")
        await waiting(running, 1)
        await client.close()
        retry = asyncio.ensure_future(running.ask(x_mark_request_id="one"))
        await running.until_metric('mark_gateway_deduplicated_total{model="echo"}', 1)
        backend.free.set()
        assert ((await first).status, (await retry).status) == (200, 200)
        assert len(backend.requests) == 2


async def test_a_client_that_sends_no_more_and_waits_gets_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PROBE_S", 0.001)

    async with busy() as (running, backend, first):
        client = await sent(running, running.port)
        client.writer.write_eof()
        assert [(await client.read()).status for _ in range(3)] == [100, 100, 100]
        backend.free.set()
        assert (await first).status == 200
        while (status := (await client.read()).status) == 100:
            pass
        assert status == 200
