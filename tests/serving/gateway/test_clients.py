"""Clients at a gateway with real sockets: who is let in, what limits refuse, and what is counted for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from mark.dispatch.policy import Bounced, DispatchPolicy, Late, Routing
from mark.domain.clients import SERVICE, Client, ClientDirectory, HashedKey, Limits, Priority, hash_of_key
from mark.domain.load.traffic import ClientTraffic
from mark.protocols.frames import FrameParser, Request, encode_request, with_details
from mark.serving.gateway import store_sync
from mark.serving.gateway.clients import Clients, ClientUse
from mark.steady_time import steady_time
from tests.serving.gateway.test_peers import pair
from tests.serving.harness import BODY, INFER, Live, Reply, live, served, until

SLOW = 0.001
"""Requests/s of a client that gets no more than its burst while a test lasts."""
HOUR_S = 3600.0


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Has the gateway's clock be so much later, seconds."""

    def jump(by_s: float) -> None:
        monkeypatch.setattr(store_sync, "steady_time", lambda: steady_time() + by_s)

    return jump


def client(name: str = "shop", *, models: Sequence[str] = (), **limits: float) -> Client:
    """A client whose key is its name."""
    return Client(
        name=name,
        keys=(HashedKey(sha256=hash_of_key(name.encode())),),
        models=tuple(models),
        limits=Limits(**limits),  # type: ignore[arg-type]
    )


def directory(*clients: Client, version: int = 1) -> ClientDirectory:
    return ClientDirectory(version=version, clients=clients)


async def ask(running: Live, name: str | None, **headers: str) -> Reply:
    if name is not None:
        headers["authorization"] = f"Bearer {name}"
    return await running.ask(**headers)


async def known(running: Live, *clients: Client, version: int = 1) -> None:
    """Have the gateway know these clients: it asks strangers for a key then, and knows the first one's."""
    running.store.directory = directory(*clients, version=version)
    probe = clients[0].name

    async def there() -> bool:
        path = f"/v2/models/{running.model.name}"
        reply = await running.ask(path, None, "GET", authorization=f"Bearer {probe}")
        stranger = await running.ask(INFER, None, "GET")  # 405 for who is let in
        return reply.status in (200, 403) and stranger.status == 401

    await until(there)


def counts(running: Live) -> dict[str, ClientTraffic]:
    """Counts of all reports by client."""
    found: dict[str, ClientTraffic] = {}
    for report in running.store.reports.values():
        for one in (one for model in report.models for one in model.clients):
            before = found.get(one.client, ClientTraffic(client=one.client))
            found[one.client] = replace(
                before,
                **{
                    name: getattr(before, name) + getattr(one, name)
                    for name in ("answered", "late", "shed", "failed", "limited", "items")
                },
            )
    return found


async def test_a_service_without_clients_asks_nobody() -> None:
    async with live() as running:
        assert (await ask(running, None)).status == 200
        assert (await ask(running, "any")).status == 200


async def test_strangers_are_refused_once_there_is_a_client() -> None:
    async with live() as running:
        await known(running, client())
        for name in (None, "wrong"):
            reply = await ask(running, name)
            assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
            assert "key is required" in reply.document["error"]
        assert (await ask(running, "shop")).status == 200
        assert (await running.ask("/metrics", None, "GET")).status == 200, "on this machine it has no token"
        assert len(running.agents["i-0"].backend.requests) == 1, "what is refused reaches no agent"


async def test_the_token_counts_beside_keys_and_a_key_opens_no_more_than_its_models() -> None:
    async with live(token="secret") as running:
        running.store.directory = directory(client("shop", models=["echo"]), client("other", models=["net"]))

        async def there() -> bool:
            return (await ask(running, "shop")).status == 200

        await until(there)
        assert (await ask(running, "secret")).status == 200
        assert (await ask(running, None)).status == 401
        reply = await ask(running, "other")
        assert (reply.status, reply.document["error"]) == (
            403,
            "the client other may not use the model echo",
        )
        for path, status in (
            ("/metrics", 403),
            ("/v2/models/stats", 403),
            ("/v2/models/echo", 200),
            ("/v2", 200),
        ):
            assert (await running.ask(path, None, "GET", authorization="Bearer shop")).status == status
        assert (await running.ask("/metrics", None, "GET", authorization="Bearer secret")).status == 200


async def test_a_client_above_its_rate_is_told_when_to_come_again_and_others_are_not() -> None:
    async with live() as running:
        await known(running, client("loud", rate_rps=SLOW, burst=3), client("calm"))
        before = len(running.agents["i-0"].backend.requests)
        replies = [await ask(running, "loud", x_mark_request_id=f"r{n}") for n in range(5)]
        assert [reply.status for reply in replies] == [200, 200, 200, 429, 429]
        assert 900 <= int(replies[3].headers["retry-after"]) <= 1000
        assert "loud" in replies[3].document["error"]
        assert [(await ask(running, "calm")).status for _ in range(5)] == [200] * 5
        assert len(running.agents["i-0"].backend.requests) - before == 8
        assert running.overflow.calls == []

        async def reported() -> bool:
            found = counts(running)
            return "loud" in found and "calm" in found and found["calm"].answered == 5

        await until(reported)
        loud = counts(running)["loud"]
        assert (loud.answered, loud.limited, loud.items) == (3, 2, 3)
        name = 'mark_gateway_client_requests_total{client="loud",model="echo",outcome="limited"}'
        assert await running.metric(name) == 2


async def test_the_same_connection_is_limited_as_well() -> None:
    """Its head is known from the second request on."""

    async with live() as running:
        await known(running, client("loud", rate_rps=SLOW, burst=4))
        connection = await running.client()
        found = [(await connection.ask(authorization="Bearer loud")).status for _ in range(6)]
        assert found == [200, 200, 200, 200, 429, 429]
        await connection.close()


async def test_requests_in_flight_are_limited_until_they_are_answered() -> None:
    async with live() as running:
        await known(running, client("loud", concurrency=2))
        backend = running.agents["i-0"].backend
        backend.free.clear()
        waiting = [asyncio.ensure_future(ask(running, "loud")) for _ in range(2)]
        await running.until_metric('mark_gateway_in_flight{model="echo"}', 2)
        reply = await ask(running, "loud")
        assert (reply.status, reply.headers["retry-after"]) == (429, "1")
        backend.free.set()
        assert [reply.status for reply in await asyncio.gather(*waiting)] == [200, 200]
        assert (await ask(running, "loud")).status == 200


async def test_a_key_is_rotated_and_revoked_on_a_connection_that_stays_open(
    later: Callable[[float], None],
) -> None:
    async with live() as running:
        await known(running, client())
        old, new = await running.client(), await running.client()

        async def statuses() -> tuple[int, int]:
            return (
                (await old.ask(authorization="Bearer shop")).status,
                (await new.ask(authorization="Bearer next")).status,
            )

        async def come(expected: tuple[int, int]) -> None:
            async def there() -> bool:
                return await statuses() == expected

            await until(there)

        assert await statuses() == (200, 401)
        store, now = running.store, steady_time()
        hashed = hash_of_key(b"next")
        store.directory = store.directory.rotated("shop", hashed, at=now, keep_old_s=HOUR_S)
        await come((200, 200))
        later(HOUR_S)
        await come((401, 200))
        store.directory = store.directory.revoked("shop", at=now)
        await come((401, 401))
        await old.close()
        await new.close()


async def test_what_waits_on_a_connection_is_refused_once_its_key_is_revoked() -> None:
    async with live(served(latency_s=30.0)) as running:
        await known(running, client(), client("other"))
        pipelined = await running.client()
        for _ in range(2):  # the head is known from now on
            assert (await pipelined.ask(authorization="Bearer shop")).status == 200
        backend = running.agents["i-0"].backend
        backend.free.clear()
        for _ in range(3):  # one works, the others wait behind it
            pipelined.send(authorization="Bearer shop")
            await until(lambda: len(backend.requests) == 3)
            await running.metric("mark_gateway_connections ")  # what was sent before has come
        running.store.directory = running.store.directory.revoked("shop", at=steady_time())

        async def refused() -> bool:
            return (await running.ask(INFER, None, "GET", authorization="Bearer shop")).status == 401

        await until(refused)
        backend.free.set()
        assert [(await pipelined.read()).status for _ in range(3)] == [200, 401, 401]


async def test_duplicates_are_answered_once_and_leave_nothing_in_flight() -> None:
    async with live() as running:
        await known(running, client("loud", concurrency=1))
        for _ in range(3):
            assert (await ask(running, "loud", x_mark_request_id="same")).status == 200
        assert len(running.agents["i-0"].backend.requests) == 1


async def test_ids_of_two_clients_never_meet() -> None:
    async with live() as running:
        await known(running, client("shop"), client("other"))
        for name in ("shop", "other"):
            assert (await ask(running, name, x_mark_request_id="same")).status == 200
        assert len(running.agents["i-0"].backend.requests) == 2


async def test_a_failed_request_is_in_flight_no_more_and_is_counted() -> None:
    async with live() as running:
        await known(running, client("shop", concurrency=1))
        running.agents["i-0"].backend.broken = True
        assert (await ask(running, "shop")).status == 500
        assert (await ask(running, "shop")).status == 500
        await until(lambda: "shop" in counts(running) and counts(running)["shop"].failed == 2)


async def test_two_gateways_admit_half_of_the_rate_each(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as two:
        running = two.running
        running.store.directory = directory(client("loud", rate_rps=SLOW, burst=6))
        await until(lambda: all(gateway.clients.exist for gateway in two.gateways))
        admitted = [(await ask(running, "loud")).status for _ in range(6)].count(200)
        assert admitted == 3


async def test_an_id_of_another_gateways_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as two:
        running = two.running
        running.store.directory = directory(client("loud", rate_rps=SLOW, burst=4))
        await until(lambda: all(gateway.clients.exist for gateway in two.gateways))
        assert (await ask(running, "loud", x_mark_request_id=two.id_of(1))).status == 200
        assert [gateway.clients.traffic("echo")[0].answered for gateway in two.gateways[1:]] == [1]
        assert two.gateways[0].clients.traffic("echo")[0].answered == 0


def test_the_frame_names_the_client() -> None:
    fields = (7, 0, 1000, b"/p", b"application/json", 0, b"id", b"", BODY, False, b"")
    plain = encode_request(*fields)
    use = ClientUse("shop", Clients().identify({}).limits)  # type: ignore[union-attr]
    for frame in (encode_request(*fields, use.details), with_details(plain, 1, 0.0, b"shop")):
        [found] = FrameParser().feed(frame)
        assert isinstance(found, Request)
        assert (found.details.client, found.details.size, found.body) == (b"shop", 1, BODY)
    [sized] = FrameParser().feed(with_details(plain, 3, 0.5, b"shop"))
    assert isinstance(sized, Request)
    assert (sized.details.client, sized.details.size) == (b"shop", 3)


async def test_a_lower_class_gives_way_where_the_queue_grows() -> None:
    """One agent, whose queue takes longer and longer: low requests are refused before normal ones are."""
    dispatch = DispatchPolicy(late=Late.SHED, routing=Routing.LEAST_FINISH, bounced=Bounced.NOWHERE)
    model = served(dispatch=dispatch, latency_s=1.0, batch_s=(0.2,))

    async with live(model) as running:
        low = replace(client("batch"), priority=Priority.LOW)
        await known(running, low, client("shop"))
        backend = running.agents["i-0"].backend
        assert (await ask(running, "shop")).status == 200
        assert (await ask(running, "batch")).status == 200, "nothing waits"
        backend.free.clear()
        waiting = [asyncio.ensure_future(ask(running, "shop")) for _ in range(4)]
        await running.until_metric('mark_gateway_in_flight{model="echo"}', 4)

        async def gives_way() -> bool:  # once the gateway has seen that both classes are there
            probe = asyncio.ensure_future(ask(running, "batch"))
            done, _ = await asyncio.wait([probe], timeout=0.2)
            waiting.append(probe)
            return bool(done) and probe.result().status == 503

        await until(gives_way)
        backend.free.set()
        await asyncio.gather(*waiting)


def test_a_class_has_half_of_the_queue_while_a_higher_one_is_there() -> None:
    clients = Clients()
    low, high = (
        replace(client(name), priority=priority) for name, priority in (("l", Priority.LOW), ("h", Priority.HIGH))
    )
    clients.follow(directory(low, high), now=0.0, loop_now=0.0)
    uses = {}
    for name in ("l", "h"):
        account = clients.identify({"authorization": b"Bearer " + name.encode()})
        assert account is not None
        uses[name] = account.use_of("echo")

    def shares(now: float) -> tuple[float, float]:
        clients.refresh_shares(["echo"], now)
        return uses["l"].queue_share, uses["h"].queue_share

    uses["l"].limited += 1
    assert shares(1.0) == (1.0, 1.0)
    uses["h"].limited += 1
    assert shares(2.0) == (0.5, 1.0)
    assert shares(11.9) == (0.5, 1.0)
    assert shares(12.0) == (1.0, 1.0)


def test_a_store_that_lost_the_clients_lets_nobody_else_in() -> None:
    clients = Clients()
    two = client("shop")
    two = replace(two, keys=(*two.keys, HashedKey(sha256=hash_of_key(b"old"), expires_at=50.0)))
    assert clients.follow(directory(two), now=0.0, loop_now=0.0)
    assert not clients.follow(directory(two), now=49.0, loop_now=49.0)
    for now in (49.0, 50.0):
        clients.follow(ClientDirectory(), now=now, loop_now=now)
        assert clients.exist
        assert clients.identify({"authorization": b"Bearer shop"}) is not None
        assert (clients.identify({"authorization": b"Bearer old"}) is None) == (now >= 50.0)
        assert clients.identify({}) is None


async def test_after_the_last_client_is_deleted_nobody_is_asked_for_a_key() -> None:
    async with live() as running:
        await known(running, client("shop"), client("other"))
        store = running.store
        store.directory = store.directory.deleted("shop", at=1.0)

        async def deleted() -> bool:
            return (await ask(running, "shop")).status == 401

        await until(deleted)
        assert (await ask(running, "other")).status == 200
        store.directory = store.directory.deleted("other", at=2.0)

        async def open_again() -> bool:
            return (await ask(running, None)).status == 200

        await until(open_again)


def test_a_store_that_lost_a_deletion_opens_nothing_to_the_deleted_key() -> None:
    clients = Clients()
    first = ClientDirectory().created(client("shop"), models=()).created(client("other"), models=())
    key = {"authorization": b"Bearer shop"}
    clients.follow(first, now=0.0, loop_now=0.0)
    assert clients.identify(key) is not None
    clients.follow(first.deleted("shop", at=1.0), now=1.0, loop_now=1.0)
    clients.follow(first, now=2.0, loop_now=2.0)
    assert clients.identify(key) is None
    assert clients.exist


def test_a_store_that_lost_a_change_brings_no_revoked_key_back() -> None:
    clients = Clients()
    shop = {"authorization": b"Bearer shop"}
    known_first = directory(client("shop"), client("other"), version=4)
    clients.follow(known_first, now=0.0, loop_now=0.0)
    clients.follow(known_first.revoked("shop", at=1.0), now=1.0, loop_now=1.0)
    assert clients.identify(shop) is None
    clients.follow(known_first, now=2.0, loop_now=2.0)
    assert clients.identify(shop) is None
    clients.follow(known_first.revoked("other", at=3.0), now=3.0, loop_now=3.0)
    assert clients.identify(shop) is None, "another change under the same version undoes none"
    assert clients.identify({"authorization": b"Bearer other"}) is None


async def test_an_old_key_expires_while_the_store_is_away(later: Callable[[float], None]) -> None:
    async with live() as running:
        old = HashedKey(sha256=hash_of_key(b"old"), expires_at=steady_time() + HOUR_S)
        await known(running, replace(client(), keys=(*client().keys, old)))
        open_ = await running.client()
        assert (await open_.ask(authorization="Bearer old")).status == 200
        running.store.away = True
        later(HOUR_S)

        async def expired() -> bool:
            return (await open_.ask(authorization="Bearer old")).status == 401

        await until(expired)
        assert (await ask(running, "shop")).status == 200
        await open_.close()


def test_what_is_changed_of_a_client_keeps_what_it_has_used() -> None:
    clients = Clients()
    clients.follow(directory(client("loud", rate_rps=SLOW, burst=2)), now=0.0, loop_now=0.0)
    account = clients.identify({"authorization": b"Bearer loud"})
    assert account is not None
    use = account.use_of("echo")
    assert [use.limits.admit(0.0) == 0.0 for _ in range(3)] == [True, True, False]
    clients.follow(directory(client("loud", rate_rps=SLOW, burst=3), version=2), now=1.0, loop_now=1.0)
    assert clients.identify({"authorization": b"bearer  loud"}) is account
    assert [use.limits.admit(1.0) == 0.0 for _ in range(2)] == [True, False]


async def test_the_services_own_requests_are_counted_apart() -> None:
    async with live(token="secret") as running:
        running.store.directory = directory(client())

        async def there() -> bool:
            return (await ask(running, "shop")).status == 200

        await until(there)
        assert (await ask(running, "secret")).status == 200

        async def reported() -> bool:
            found = counts(running)
            return SERVICE in found and found[SERVICE].answered >= 1

        await until(reported)
