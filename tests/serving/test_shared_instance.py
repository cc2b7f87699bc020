"""An instance that several models share: one batch at a time, each model a matter of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mark.dispatch.instance import hung as rules
from mark.dispatch.instance.device_share import part_of_share
from mark.domain.errors import Misconfigured
from mark.domain.fleet.host_spec import SHARED, HostSpec, TenantSpec
from mark.domain.fleet.instances import Role
from mark.domain.fleet.member import MemberState, Peer
from mark.ports import BackendGone, InferReply, InferRequest
from mark.service_spec import ServiceSpec
from mark.serving.agent.device import Device
from mark.serving.agent.process import EXIT_DRAINED, serve_host
from mark.serving.agent.tenant import AgentConfig, Tenant
from mark.serving.gateway.agent_pool import AgentConnection, AgentConnections
from mark.serving.gateway.config import GatewayConfig
from mark.serving.gateway.members_view import AgentView
from mark.serving.gateway.model_router import ModelRouter
from mark.serving.gateway.request import InferenceRequest
from mark.serving.gateway.server import serve_gateway
from mark.serving.gateway.store_sync import StoreSync
from mark.serving.gateway.telemetry.traffic_tally import Tally
from mark.serving.unexpected_errors import UnexpectedErrors
from tests.serving.fakes import EchoBackend, FakeLambda, FakeStore
from tests.serving.harness import BODY, Client, offering, served, until

MODELS = ("one", "two")


class Watched(EchoBackend):
    """A backend that notes how many batches run at the same time on the instance."""

    running = most = 0

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        Watched.running += 1
        Watched.most = max(Watched.most, Watched.running)
        try:
            return await super().infer(batch)
        finally:
            Watched.running -= 1


class NotThere(EchoBackend):
    """A model that cannot be loaded."""

    async def start(self) -> None:
        raise Misconfigured("no such file")


class Endless(EchoBackend):
    """A model that loads for ever."""

    async def start(self) -> None:
        await asyncio.Event().wait()


class Gated(EchoBackend):
    """A model whose second instance loads once it is let."""

    free: asyncio.Event
    starts = 0

    async def start(self) -> None:
        Gated.starts += 1
        if Gated.starts > 1:
            await Gated.free.wait()


class Counted(EchoBackend):
    """A model that notes how many of its kind are loaded at the same time, and loads once it is let."""

    free: asyncio.Event
    there = most = 0

    async def start(self) -> None:
        Counted.there += 1
        Counted.most = max(Counted.most, Counted.there)
        await Counted.free.wait()

    async def close(self) -> None:
        Counted.there -= 1


class Failing(EchoBackend):
    """A model that fails on every batch."""

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        raise RuntimeError(f"cannot answer {len(batch)} requests")


class Mortal(EchoBackend):
    """A model whose process may end."""

    is_gone = False

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        if self.is_gone:
            raise BackendGone(f"no process for {len(batch)} requests")
        return await super().infer(batch)


@dataclass
class Service:
    store: FakeStore
    port: int
    task: asyncio.Task[int]
    backends: dict[str, list[EchoBackend]] = field(default_factory=dict)

    def place(self, *models: str, share_rps: float = 5.0, max_batch: int = 2, fits_beside: bool = True) -> None:
        self.store.hosts["i-0"] = HostSpec(
            tenants=tuple(
                TenantSpec(
                    model=name,
                    offering=offering().name,
                    max_batch=max_batch,
                    share_rps=share_rps,
                    fits_beside=fits_beside,
                )
                for name in models
            )
        )

    def state(self, model: str) -> MemberState | None:
        member = self.store.listed.get(f"i-0/{model}")
        return None if member is None else member.state

    async def until_serving(self, *models: str) -> None:
        async def serve() -> bool:
            return all([(await self.ask(model)) == 200 for model in models])

        await until(serve)

    async def ask(self, model: str) -> int:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        reply = await client.ask(f"/v2/models/{model}/infer", BODY)
        await client.close()
        return reply.status


@asynccontextmanager
async def shared(
    kinds: dict[str, type[EchoBackend]] | None = None, *, takes_s: float = 0.0
) -> AsyncIterator[Service]:
    """A gateway and an instance that holds what is placed there."""
    models = {name: served(name=name) for name in MODELS}
    config = AgentConfig(instance="i-0", role=Role.SERVING, host="127.0.0.1", frame_port=0, http_port=0)
    store, stop, gateway_stop = FakeStore(), asyncio.Event(), asyncio.Event()
    bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def make(placed: TenantSpec, device: Device) -> Tenant:
        backend = (kinds or {}).get(placed.model, Watched)(takes_s)
        service.backends.setdefault(placed.model, []).append(backend)
        model = models[placed.model]
        return Tenant(
            config,
            served=model,
            offering=offering(batch_s=(0.002, 0.003)),
            backend=backend,
            share_rps=0.0,
            device=device,
        )

    async def no_notice() -> float | None:
        return None

    async def booted() -> None:
        return None

    host = asyncio.ensure_future(
        serve_host(
            config,
            offering="c5.large",
            make_tenant=make,
            booted=booted,
            link=store,
            interruption=no_notice,
            stop=stop,
        )
    )
    gateway = asyncio.ensure_future(
        serve_gateway(
            GatewayConfig(name="g1"),
            spec=ServiceSpec(name="test", models=tuple(models.values())),
            link=store,
            overflow=FakeLambda(),
            stop=gateway_stop,
            on_bound=bound.set_result,
        )
    )
    service = Service(store, await bound, host)
    try:
        yield service
    finally:
        stop.set()
        gateway_stop.set()
        await asyncio.gather(host, gateway)


async def test_models_are_placed_served_and_evicted() -> None:
    async with shared() as service:
        await until(lambda: service.store.listed.get("i-0") is not None)
        assert await service.ask("one") == 503
        service.place("one")
        await service.until_serving("one")
        service.place("one", "two")
        await service.until_serving("one", "two")
        assert {name: member.model for name, member in service.store.listed.items()} == {
            "i-0": SHARED,
            "i-0/one": "one",
            "i-0/two": "two",
        }
        assert service.store.listed["i-0/two"].max_batch == 2
        service.place("two", share_rps=0.0)
        await until(lambda: service.state("one") is None)
        assert await service.ask("one") == 503
        await until(lambda: service.store.listed["i-0/two"].share_rps == 0.0)
        assert len(service.backends["two"]) == 1, "a new share loads nothing"
        service.place("one", "two")
        await service.until_serving("one", "two")
        service.store.drained.add("i-0")
        assert await service.task == EXIT_DRAINED
        assert not service.store.listed


async def test_a_model_that_is_not_wanted_any_more_while_it_loads_leaves_nothing_behind() -> None:
    async with shared({"two": Endless}) as service:
        service.place(*MODELS)
        await service.until_serving("one")
        await until(lambda: service.state("two") is MemberState.STARTING)
        service.place("one")
        await until(lambda: service.backends["two"][0].closed)
        await until(lambda: service.state("two") is None)


async def test_a_model_that_broke_is_told_as_that_until_it_is_not_wanted_any_more() -> None:
    async with shared({"two": NotThere}) as service:
        service.place(*MODELS)
        await service.until_serving("one")
        await until(lambda: len(service.backends["two"]) > 1)
        service.store.listed.pop("i-0/two", None)  # as if it had expired
        await until(lambda: service.state("two") is MemberState.BROKEN)
        service.place("one")
        await until(lambda: service.state("two") is None)


async def test_a_model_with_another_longest_batch_is_loaded_beside_the_one_that_serves() -> None:
    Gated.free, Gated.starts = asyncio.Event(), 0
    async with shared({"one": Gated}) as service:
        service.place("one")
        await service.until_serving("one")
        service.place("one", max_batch=1)
        await until(lambda: len(service.backends["one"]) == 2)
        assert await service.ask("one") == 200
        Gated.free.set()
        before, _ = service.backends["one"]
        while not before.closed:
            assert await service.ask("one") == 200
        assert await service.ask("one") == 200
        await until(lambda: set(service.store.listed) == {"i-0", "i-0/one~1"})


async def test_without_memory_for_both_the_one_that_serves_leaves_first() -> None:
    Counted.free, Counted.there, Counted.most = asyncio.Event(), 0, 0
    Counted.free.set()
    async with shared({"one": Counted}) as service:
        service.place("one")
        await service.until_serving("one")
        service.place("one", max_batch=1, fits_beside=False)
        await until(lambda: len(service.backends["one"]) == 2)
        await service.until_serving("one")
        assert Counted.most == 1


async def test_of_models_that_change_together_one_at_a_time_is_there_twice() -> None:
    """And one that changes again before it was loaded is not there three times."""

    Counted.free, Counted.there, Counted.most = asyncio.Event(), 0, 0
    Counted.free.set()
    async with shared({"one": Counted, "two": Counted}) as service:
        service.place("one", "two", max_batch=3)
        await service.until_serving("one", "two")
        Counted.free.clear()
        service.place("one", "two", max_batch=2)
        await until(lambda: Counted.there == 3)
        assert [await service.ask(model) for model in ("one", "two")] == [200, 200]
        service.place("one", "two", max_batch=1)
        await until(lambda: len(service.backends["one"]) + len(service.backends["two"]) == 4)
        assert [await service.ask(model) for model in ("one", "two")] == [200, 200]
        Counted.free.set()
        await until(lambda: [len(found) > 1 for found in service.backends.values()] == [True, True])
        await until(lambda: Counted.there == 2)
        assert Counted.most == 3


async def test_a_store_that_has_lost_what_an_instance_is_to_hold_takes_no_model_away() -> None:
    async with shared() as service:
        service.place(*MODELS)
        await service.until_serving(*MODELS)
        service.store.hosts.clear()
        asked = service.store.asked_host
        await until(lambda: service.store.asked_host > asked + 1)
        service.place("one")
        await until(lambda: service.state("two") is None)
        assert await service.ask("one") == 200
        assert len(service.backends["one"]) == 1, "it was never taken away"


async def test_a_gateways_part_of_a_share_goes_by_the_loads_that_all_announce(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[float] = []
    monkeypatch.setattr(AgentView, "give_share", lambda _view, share_rps, _now: told.append(share_rps))

    async with shared() as service:
        peers = service.store.peers
        service.place("one", share_rps=6.0)
        await until(lambda: told[-1:] == pytest.approx([6.0]))
        other = Peer(name="g2", host="127.0.0.1", port=service.port)
        peers["g2"] = replace(other, loads=(("one", 100.0),))
        await until(lambda: 0.0 < told[-1] < 0.1)
        peers["g2"] = other
        await until(lambda: told[-1] == pytest.approx(3.0))

        async def has_load() -> bool:
            await service.ask("one")
            ((_, load_rps),) = peers["g1"].loads
            return load_rps > 0.0 and told[-1] == part_of_share(6.0, load_rps, load_rps, 2)

        await until(has_load)
        await service.store.leave_gateways("g2")
        await until(lambda: told[-1] == pytest.approx(6.0))


async def test_a_gateway_knows_the_neighbours_of_a_model_while_it_is_connected_to_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[AgentConnections] = []
    begin = AgentConnections.__init__

    def remember(connections: AgentConnections, *args: Any, **given: Any) -> None:
        begin(connections, *args, **given)
        made.append(connections)

    monkeypatch.setattr(AgentConnections, "__init__", remember)

    def connected() -> dict[str, AgentConnection]:
        return {
            one.member.model: one for one in made[0].open.values() if one.member.is_tenant and one.is_accepting
        }

    async with shared() as service:
        service.place(*MODELS)
        await service.until_serving(*MODELS)
        one, two = (connected()[name] for name in MODELS)
        assert one.view.device is two.view.device is not None
        service.place("one")
        await until(lambda: "two" not in connected() and two.view.device is None)
        one.abort()
        await until(lambda: connected().get("one", one) is not one)
        again = connected()["one"]
        assert one.view.device is None
        assert again.view.device is not None
        service.place(*MODELS)
        await service.until_serving(*MODELS)
        assert connected()["two"].view.device is again.view.device


async def test_one_batch_runs_at_a_time_and_nothing_is_lost() -> None:
    Watched.most = 0
    async with shared(takes_s=0.002) as service:
        service.place(*MODELS)
        await service.until_serving(*MODELS)
        asked = [service.ask(MODELS[n % 2]) for n in range(60)]
        assert set(await asyncio.gather(*asked)) == {200}
        assert Watched.most == 1


async def test_a_model_that_loads_for_ever_is_broken_after_a_while_and_harms_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "LOAD_FLOOR_S", 0.1)
    monkeypatch.setattr(rules, "LOAD_S_PER_GIB", 0.0)

    async with shared({"two": Endless}) as service:
        service.place(*MODELS)
        await service.until_serving("one")
        await until(lambda: service.state("two") is MemberState.BROKEN)
        await until(lambda: len(service.backends["two"]) > 1)
        assert service.backends["two"][0].closed, "its process is ended"
        assert await service.ask("one") == 200


async def test_a_model_that_does_not_load_or_breaks_is_its_own_matter() -> None:
    async with shared({"two": NotThere}) as service:
        service.place(*MODELS)
        await service.until_serving("one")
        await until(lambda: service.state("two") is MemberState.BROKEN)
        await until(lambda: len(service.backends["two"]) > 1)
        assert service.backends["two"][0].closed, "it holds neither memory nor a process"
        assert await service.ask("two") == 503
        assert await service.ask("one") == 200
    async with shared({"two": Failing}) as service:
        service.place(*MODELS)
        await service.until_serving("one")
        await until(lambda: service.state("two") is MemberState.READY)

        async def broke() -> bool:
            assert await service.ask("two") in (500, 503)
            return len(service.backends["two"]) > 1

        await until(broke)
        assert await service.ask("one") == 200
        assert len(service.backends["one"]) == 1


async def test_neighbours_do_not_wait_for_a_batch_that_does_not_end() -> None:
    async with shared() as service:
        service.place(*MODELS)
        await service.until_serving(*MODELS)
        (hung,) = service.backends["two"]
        hung.free.clear()
        hanging = asyncio.ensure_future(service.ask("two"))
        await until(lambda: Watched.running == 1)
        assert [await service.ask("one") for _ in range(5)] == [200] * 5
        assert not hanging.done()
        behind = asyncio.ensure_future(service.ask("two"))
        assert await service.ask("one") == 200
        assert not behind.done(), "nobody else has the model: it waits"
        hung.free.set()
        assert (await hanging, await behind) == (200, 200)
        await service.until_serving("two")
        assert service.backends["two"] == [hung], "a batch that was only slow costs no start"


async def test_a_model_whose_process_ends_is_started_anew_also_while_nobody_asks() -> None:
    async with shared({"two": Mortal}) as service:
        service.place(*MODELS)
        await service.until_serving(*MODELS)
        Mortal.is_gone = True
        try:
            assert await service.ask("two") == 503, "no process read it, so it did not fail"
            await until(lambda: len(service.backends["two"]) > 1)
        finally:
            Mortal.is_gone = False
        await service.until_serving(*MODELS)
        assert len(service.backends["one"]) == 1


def test_what_a_shared_instance_gives_back_is_taken_off_the_window_it_came_in() -> None:
    tally = Tally()
    kept, lost = (InferenceRequest(None, b"POST", b"/", {}, b"", keep_alive=True) for _ in range(2))
    tally.open_window(7, 100.0)
    kept.arrived_at = lost.arrived_at = 104.0
    for request in (kept, lost):
        tally.took_shared(request)
    tally.open_window(8, 105.0)
    traffic = tally.traffic("m", in_flight=0, warm=0)
    assert traffic is not None
    assert traffic.shared == ((7, 2),)
    for _ in range(2):  # of what it took, once
        tally.gave_back(lost)
    traffic = tally.traffic("m", in_flight=0, warm=0)
    assert traffic is not None
    assert traffic.shared == ((7, -1),)
    assert kept.is_shared


def test_the_request_that_opens_a_window_counts_for_it() -> None:
    sync, tally = StoreSync("g1", UnexpectedErrors(logging.getLogger("test"))), Tally()
    sync.routers = {"m": cast("ModelRouter", SimpleNamespace(tally=tally))}
    request = InferenceRequest(None, b"POST", b"/", {}, b"", keep_alive=True)
    request.arrived_at = 104.0
    tally.open_window(-1, 100.0)
    sync.roll_window(request.arrived_at)
    tally.took_shared(request)
    assert tally.shared.total() == 1
    assert -1 not in tally.shared
