"""Redis is killed and comes back: what was written is there, everybody recovers, nobody is taken for dead."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mark.domain.errors import RetryLater
from mark.domain.fleet.lease import Lease
from mark.store.connect import connect, connect_async
from mark.store.data_plane import AgentStore, GatewayStore
from mark.store.embedded import EmbeddedRedis
from mark.store.journal import StoreJournal
from mark.store.service import ServiceStore
from tests.store.builders import a_member, a_report, a_transition
from tests.store.worlds import goes_by
from tests.waiting import PATIENCE_S

TTL_S = 1.0
"""Several calls take less, on a busy machine too."""


class Servers:
    """A server that is killed and started again on one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = EmbeddedRedis(folder)
        self.url = self.now.url

    def kill(self) -> None:
        os.kill(self.now.pid, signal.SIGKILL)
        self.now.stop()

    def start(self) -> None:
        self.now = EmbeddedRedis(self.folder)


@pytest.fixture
def servers(folder: Path) -> Iterator[Servers]:
    servers = Servers(folder)
    yield servers
    servers.now.stop()


def opened(store: ServiceStore) -> tuple[Lease, StoreJournal]:
    lease = store.leases.acquire("left", 60.0)
    assert lease is not None
    return lease, store.open_journal("digits", b"header", lease)


def test_what_was_answered_is_there_after_a_kill(servers: Servers) -> None:
    link = connect(servers.url)
    store = ServiceStore(link, "demo")
    lease, journal = opened(store)
    for number in range(500):
        journal.write(b"line %d" % number)
    store.note(a_transition())
    store.put_status("x", {"a": 1})

    servers.kill()
    with pytest.raises(RetryLater):
        journal.write(b"after")
    with pytest.raises(RetryLater):
        store.leases.renew(lease)
    servers.start()

    journal.write(b"after")
    store.leases.renew(lease)
    assert list(store.journal_lines("digits")) == [
        b"header",
        *(b"line %d" % number for number in range(500)),
        b"after",
    ]
    assert store.transitions("digits") == (a_transition(),)
    assert store.status("x") == {"a": 1}
    link.close()


async def test_a_restart_between_two_calls_is_not_seen(servers: Servers) -> None:
    link, ours = connect(servers.url), connect_async(servers.url)
    store, gateway = ServiceStore(link, "demo"), GatewayStore(ours, "demo")
    for _ in range(2):
        assert store.members() == await gateway.members() == ()
        servers.kill()
        servers.start()
    store.ping()
    await ours.aclose()
    link.close()


def test_writers_in_the_midst_of_a_kill_lose_and_repeat_nothing(servers: Servers) -> None:
    """Each call is repeated until it succeeds; whatever else than RetryLater comes up ends the writer."""
    written, over, failures = list[int](), threading.Event(), list[BaseException]()

    def write() -> None:
        link = connect(servers.url)
        store = ServiceStore(link, "demo")
        _, journal = opened(store)
        number = 0
        while not over.is_set():
            try:
                journal.write(b"%d" % number)
            except RetryLater:
                continue
            except BaseException as error:  # noqa: BLE001 - told by the test below
                failures.append(error)
                break
            written.append(number)
            number += 1
        link.close()

    def wait_for_more() -> None:
        target, deadline = len(written) + 50, time.monotonic() + 60.0
        while len(written) < target and thread.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.005)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(4):
            wait_for_more()
            servers.kill()
            servers.start()
        wait_for_more()
    finally:
        over.set()
        thread.join(PATIENCE_S)

    assert not failures
    link = connect(servers.url)
    lines = list(ServiceStore(link, "demo").journal_lines("digits"))
    assert lines == [b"header", *(b"%d" % number for number in written)]
    link.close()


def test_gateways_in_the_midst_of_a_kill_count_each_report_once(servers: Servers) -> None:
    told, refused = Counter[int](), Counter[int]()

    async def report(number: int, over: asyncio.Event) -> None:
        link = connect_async(servers.url)
        gateway = GatewayStore(link, "demo")
        while not over.is_set():
            try:
                await gateway.report(a_report(f"g-{number}", told[number], arrivals=((1, 1),), instance=1))
            except RetryLater:
                refused[number] += 1
                await asyncio.sleep(0.005)
                continue
            told[number] += 1
        await link.aclose()

    async def more(counted: Counter[int], by: int) -> None:
        """Until each gateway has counted so many more."""
        goal = {number: counted[number] + by for number in range(2)}
        async with asyncio.timeout(PATIENCE_S):
            while any(counted[number] < least for number, least in goal.items()):
                await asyncio.sleep(0.005)

    async def story() -> int:
        over = asyncio.Event()
        gateways = [asyncio.create_task(report(number, over)) for number in range(2)]
        for _ in range(3):
            await more(told, 5)
            servers.kill()
            await more(refused, 1)
            servers.start()
        await more(told, 5)
        over.set()
        await asyncio.gather(*gateways)
        return told.total()

    counted = asyncio.run(story())

    link = connect(servers.url)
    store = ServiceStore(link, "demo")
    assert store.arrived("digits") == store.traffic("digits").instance == counted
    link.close()


@pytest.mark.parametrize("first_to_ask", ["gateway", "controller", "agent"])
async def test_after_a_long_outage_members_are_there_until_they_stay_silent(
    servers: Servers, first_to_ask: str
) -> None:
    link = connect(servers.url)
    controller = ServiceStore(link, "demo", member_ttl_s=TTL_S)

    ours = connect_async(servers.url)
    gateway = GatewayStore(ours, "demo", member_ttl_s=TTL_S)
    agent = AgentStore(ours, "demo", member_ttl_s=TTL_S)
    for instance in ("i-1", "i-2"):
        await agent.announce(a_member(instance))
    version = await gateway.members_version()
    servers.kill()
    down_until = time.time() + 1.5 * TTL_S
    while time.time() < down_until:  # by the machine's clock, which the server's goes on with
        await asyncio.sleep(0.01)
    servers.start()

    if first_to_ask == "gateway":
        assert await gateway.members_version() == version
    elif first_to_ask == "agent":
        await agent.announce(a_member("i-1"))
    assert controller.members() == await gateway.members() == (a_member("i-1"), a_member("i-2"))

    async with asyncio.timeout(PATIENCE_S):
        while len(await gateway.members()) > 1:
            await asyncio.sleep(TTL_S / 10)
            await agent.announce(a_member("i-1"))
    await agent.announce(a_member("i-1"))
    assert await gateway.members_version() > version
    assert controller.members() == (a_member("i-1"),)
    await ours.aclose()
    link.close()


async def test_dead_agents_expire_though_only_the_controller_is_left(servers: Servers) -> None:
    """With no gateway and no agent to be heard, they get one time to live more, and no second one."""
    link = connect(servers.url)
    controller = ServiceStore(link, "demo", member_ttl_s=TTL_S)

    ours = connect_async(servers.url)
    await AgentStore(ours, "demo", member_ttl_s=TTL_S).announce(a_member())
    await ours.aclose()
    goes_by(link, 1.2 * TTL_S)
    assert controller.members() == (a_member(),)
    goes_by(link, 1.2 * TTL_S)
    assert controller.members() == ()
    link.close()


async def test_the_version_rises_though_the_store_forgot_everything(servers: Servers) -> None:
    link = connect(servers.url)

    ours = connect_async(servers.url)
    gateway, agent = GatewayStore(ours, "demo"), AgentStore(ours, "demo")
    for _ in range(3):
        await agent.announce(a_member())
        await agent.leave("i-1")
    before = await gateway.members_version()
    link.call("FLUSHALL")
    goes_by(link, 0.01)
    await agent.announce(a_member())
    assert await gateway.members_version() > before
    await ours.aclose()
    link.close()


async def test_a_store_that_takes_no_writes_tells_gateways_who_is_there(servers: Servers) -> None:
    link = connect_async(servers.url)
    agent, gateway = AgentStore(link, "shop"), GatewayStore(link, "shop", member_ttl_s=TTL_S)
    await agent.announce(a_member("i-1"))
    version = await gateway.members_version()
    await link.call("REPLICAOF", "127.0.0.1", "1")  # as on a full disk, each write is refused
    await asyncio.to_thread(goes_by, connect(servers.url), 2 * TTL_S)
    with pytest.raises(RetryLater, match=r"READONLY|read only"):
        await agent.announce(a_member("i-2"))
    assert [one.instance for one in await gateway.members()] == ["i-1"]
    assert await gateway.members_version() == version
    await link.aclose()
