"""Clients of the async class at a real gateway: idle capacity first, load when the deadline asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mark.domain.clients import Client, ClientDirectory, HashedKey, Priority, hash_of_key
from mark.serving.gateway import held_requests
from mark.serving.http.limits import HttpLimits
from tests.serving.fakes import EchoBackend
from tests.serving.gateway.test_clients import client, counts, known
from tests.serving.gateway.test_peers import Pair, pair
from tests.serving.harness import BODY, Live, Reply, live, run, served, until

OBJECTIVE_S = 60.0


def patient(name: str = "nightly", deadline_s: float = 3600.0) -> Client:
    """A client of the async class whose key is its name."""
    key = HashedKey(sha256=hash_of_key(name.encode()))
    return Client(name=name, keys=(key,), priority=Priority.ASYNC, deadline_s=deadline_s)


def asked(running: Live, name: str, **headers: str) -> asyncio.Task[Reply]:
    return asyncio.ensure_future(running.ask(authorization=f"Bearer {name}", **headers))


async def waiting(running: Live, count: int) -> None:
    await running.until_metric(f'mark_gateway_async_waiting{{model="{running.model.name}"}}', count)


async def answered(running: Live, name: str, count: int) -> None:
    async def there() -> bool:
        found = counts(running).get(name)
        return found is not None and found.answered == count

    await until(there)


async def ended(running: Live) -> None:
    """The gateway has seen what was sent before: it reads connections in the order of what comes."""
    for _ in range(3):
        await running.metric("mark_gateway_connections ")


@asynccontextmanager
async def busy() -> AsyncIterator[tuple[Live, EchoBackend, asyncio.Task[Reply]]]:
    """A gateway with one instance that works on a client's request until its backend is let free."""
    async with live(served(latency_s=OBJECTIVE_S, batch_s=(0.002,))) as running:
        backend = running.agents["i-0"].backend
        await known(running, client("shop"), patient(), patient("soon", 1.5 * OBJECTIVE_S))
        backend.free.clear()
        ordinary = asked(running, "shop")
        while not backend.batches:
            await asyncio.sleep(0.005)
        yield running, backend, ordinary


async def test_an_idle_instance_answers_and_nothing_is_rented_for_it() -> None:
    async with live() as running:
        await known(running, patient())
        replies = await asyncio.gather(*(asked(running, "nightly") for _ in range(20)))
        assert [reply.status for reply in replies] == [200] * 20
        await answered(running, "nightly", 20)
        assert running.store.arrivals() == 0, "it is no load"
        assert running.store.total("answered") == 0, "no objective of the model counts it"
        assert counts(running)["nightly"].late == 0


async def test_it_waits_while_instances_have_other_work() -> None:
    async with busy() as (running, backend, ordinary):
        held = asked(running, "nightly")
        await waiting(running, 1)
        assert len(backend.requests) == 1
        backend.free.set()
        assert [(await one).status for one in (ordinary, held)] == [200, 200]
        await answered(running, "nightly", 1)
        assert running.store.arrivals() == 1, "the ordinary one alone"


async def test_one_whose_deadline_is_near_is_load_at_once() -> None:
    async with busy() as (running, backend, ordinary):
        held, urgent = asked(running, "nightly"), asked(running, "soon")
        await until(lambda: running.store.arrivals() == 2)
        await waiting(running, 1)
        backend.free.set()
        assert [(await one).status for one in (ordinary, urgent, held)] == [200] * 3
        await answered(running, "soon", 1)
        assert running.store.arrivals() == 2


async def test_one_of_a_lost_instance_waits_for_another() -> None:
    async with live() as running:
        await known(running, patient())
        backend = running.agents["i-0"].backend
        backend.free.clear()
        held = asked(running, "nightly")
        while not backend.batches:
            await asyncio.sleep(0.005)
        running.agents["i-0"].task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running.agents.pop("i-0").task
        await waiting(running, 1)
        await running.add_agent("i-1")
        assert (await held).status == 200


async def test_no_objective_counts_one_that_is_no_load_and_fails() -> None:
    async with live(served(redispatch=False)) as running:
        await known(running, patient())
        backend = running.agents["i-0"].backend
        backend.free.clear()
        idle = asked(running, "nightly")
        while not backend.batches:
            await asyncio.sleep(0.005)
        running.agents["i-0"].task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running.agents.pop("i-0").task
        assert (await idle).status == 502
        assert await running.metric(f'mark_gateway_failed_total{{model="{running.model.name}"}}') == 0

        async def counted() -> bool:
            found = counts(running).get("nightly")
            return found is not None and found.failed == 1

        await until(counted)


async def test_nobody_works_for_a_client_that_has_gone() -> None:
    async with busy() as (running, backend, ordinary):
        gone = await running.client()
        gone.send(authorization="Bearer nightly")
        await waiting(running, 1)
        await gone.close()
        await waiting(running, 0)  # its place is free though nothing is idle
        await running.until_metric(f'mark_gateway_left_total{{model="{running.model.name}"}}', 1)
        backend.free.set()
        assert (await ordinary).status == 200
        assert (await asked(running, "nightly")).status == 200
        assert len(backend.requests) == 2
        await answered(running, "nightly", 1)
        assert counts(running)["nightly"].failed == 0


async def test_a_retry_takes_the_place_of_a_client_that_has_gone() -> None:
    async with busy() as (running, backend, ordinary):
        gone = await running.client()
        gone.send(authorization="Bearer nightly", x_mark_request_id="one")
        await waiting(running, 1)
        again = asked(running, "nightly", x_mark_request_id="one")
        await running.until_metric(f'mark_gateway_deduplicated_total{{model="{running.model.name}"}}', 1)
        await gone.close()
        await ended(running)
        backend.free.set()
        assert [(await one).status for one in (ordinary, again)] == [200, 200]


async def test_retries_of_one_that_waits_take_no_memory_for_hours() -> None:
    body, limits = BODY + b" " * 200_000, HttpLimits(bodies_bytes=1_000_000)
    async with live(served(latency_s=OBJECTIVE_S), agents=0, limits=limits) as running:
        await known(running, patient())
        for number in range(20):  # a client that gives up and asks again
            retry = await running.client()
            retry.send(body=body, authorization="Bearer nightly", x_mark_request_id="one")
            await waiting(running, 1)
            await running.until_metric(f'mark_gateway_deduplicated_total{{model="{running.model.name}"}}', number)
            if number:  # the first waits on
                await retry.close()
        await ended(running)
        other = await running.client()
        other.send(body=body, authorization="Bearer nightly")
        await waiting(running, 2)
        assert await running.metric("mark_gateway_body_bytes") < 3 * len(body)


def test_no_client_keeps_out_the_others() -> None:
    room = held_requests.HeldRoom()
    taken = 0
    while room.take("greedy", 1024):
        taken += 1
    assert taken == held_requests.MOST_HELD // 2
    assert room.take("other", 1024)
    room.free("greedy", 1024)
    room.free("greedy", 1024)
    assert room.take("greedy", 1024)
    assert not room.take("large", held_requests.MOST_HELD_BYTES)


async def test_a_gateway_holds_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_requests, "MOST_HELD", 1)

    async with busy() as (running, backend, ordinary):
        held = asked(running, "nightly")
        await waiting(running, 1)
        refused = await asked(running, "nightly")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        backend.free.set()
        assert [(await one).status for one in (ordinary, held)] == [200, 200]
        assert (await asked(running, "nightly")).status == 200, "its place is free again"
        await answered(running, "nightly", 2)
        assert counts(running)["nightly"].shed == 1
        assert running.store.total("shed") == 0


async def test_a_gateway_that_ends_lets_them_ask_another() -> None:
    async with busy() as (running, backend, ordinary):
        held = asked(running, "nightly")
        await waiting(running, 1)
        late = await running.client()
        assert (await late.ask("/v2/health/live", None, "GET")).status == 200  # it is connected
        running.gateway_stop.set()
        assert (await held).status == 503
        assert (await late.ask(authorization="Bearer nightly")).status == 503
        backend.free.set()
        assert (await ordinary).status == 200


Held = Callable[[int], Coroutine[Any, Any, None]]


def at_its_owner(
    monkeypatch: pytest.MonkeyPatch,
    talk: Callable[[Pair, EchoBackend, dict[str, str], Held], Coroutine[Any, Any, None]],
) -> None:
    """Two gateways whose only instance is busy, and headers of a request that waits at the second one."""
    model = served(latency_s=60.0, batch_s=(0.002,))
    monkeypatch.setattr("mark.serving.gateway.server.OWNER_GRACE_S", 0.01 - model.dispatch.give_up_s)

    async def test() -> None:
        async with pair(monkeypatch, model) as two:
            two.running.store.directory = ClientDirectory(version=1, clients=(patient(),))

            async def known() -> bool:
                return all(gateway.clients.exist for gateway in two.gateways)

            async def held(count: int) -> None:
                async def there() -> bool:
                    found = two.gateways[1].routers["echo"].held
                    return found is not None and len(found) == count

                await until(there)

            await until(known)
            backend = two.running.agents["i-0"].backend
            backend.free.clear()
            first = asyncio.ensure_future(two.ask(1, authorization="Bearer nightly"))
            while not backend.batches:
                await asyncio.sleep(0.001)
            headers = {"authorization": "Bearer nightly", "x_mark_request_id": two.id_of(1)}
            await talk(two, backend, headers, held)
            backend.free.set()
            assert (await first).status == 200

    run(test())


def test_one_with_an_id_waits_at_the_owner_of_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as its deadline lets it, not as an ordinary request; that its client leaves is seen there."""

    async def talk(two: Pair, backend: EchoBackend, headers: dict[str, str], held: Held) -> None:
        gone = await two.running.client(two.ports[0])
        gone.send(**headers)
        await held(1)
        await gone.close()
        await held(0)
        waits = asyncio.ensure_future(two.ask(0, **headers))
        await held(1)
        backend.free.set()
        assert (await waits).status == 200

    at_its_owner(monkeypatch, talk)


def test_a_gateway_that_ends_lets_those_ask_again_that_wait_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(two: Pair, _backend: EchoBackend, headers: dict[str, str], held: Held) -> None:
        waits = asyncio.ensure_future(two.ask(0, **headers))
        await held(1)
        two.running.gateway_stop.set()
        assert (await waits).status == 503
        await held(0)

    at_its_owner(monkeypatch, talk)
