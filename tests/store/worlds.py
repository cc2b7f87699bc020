"""The places in which one contract is kept: the real store on a real Redis, and the fake."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Protocol

from mark.domain.clock import ClockAnchor
from mark.domain.load.traffic import Warmed
from mark.ports import AgentLink, GatewayLink, Membership
from mark.store.connect import Link, connect, connect_async
from mark.store.data_plane import AgentStore, GatewayStore
from mark.store.service import ServiceStore
from tests.store.fakes import FakeStore

TTL_S = 1.5
Story = Callable[[GatewayLink, AgentLink], Awaitable[None]]


class World(Protocol):
    """A store with a gateway's and an agent's view of it; members expire after TTL_S."""

    def play(self, story: Story) -> None: ...
    def membership(self, model: str) -> Membership: ...
    def put_clock(self, anchor: ClockAnchor) -> None: ...
    def put_acted_at(self, now: float) -> None: ...
    def put_warmed(self, warmed: Warmed) -> None: ...
    def arrivals(self, model: str, first: int, last: int) -> list[int]: ...
    def wait(self, seconds: float) -> None: ...


class RedisWorld:
    def __init__(self, store: ServiceStore, url: str, service: str) -> None:
        self.membership = store.membership
        self.put_clock = store.put_clock
        self.put_acted_at = store.put_acted_at
        self.put_warmed = store.put_warmed
        self.arrivals = store.arrivals
        self._url = url
        self._service = service

    def play(self, story: Story) -> None:
        async def played() -> None:
            ours, theirs = connect_async(self._url), connect_async(self._url)
            gateway = GatewayStore(ours, self._service, member_ttl_s=TTL_S)
            try:
                await story(gateway, AgentStore(theirs, self._service, member_ttl_s=TTL_S))
            finally:
                await ours.aclose()
                await theirs.aclose()

        asyncio.run(played())

    def wait(self, seconds: float) -> None:
        with closing(connect(self._url)) as link:
            goes_by(link, seconds)


def goes_by(link: Link, seconds: float) -> None:
    """Wait until the server's own clock, by which members and gateways expire, is so far ahead."""

    def now() -> float:
        second, micros = link.call("TIME")
        return int(second) + int(micros) / 1e6

    until = now() + seconds
    while now() < until:
        time.sleep(0.01)


class FakeWorld:
    def __init__(self) -> None:
        self._now = 0.0
        self.store = FakeStore(now=lambda: self._now, member_ttl_s=TTL_S)
        self.membership = self.store.membership
        self.put_warmed = self.store.put_warmed
        self.arrivals = self.store.arrivals

    def put_clock(self, anchor: ClockAnchor) -> None:
        self.store.anchor = anchor

    def put_acted_at(self, now: float) -> None:
        self.store.acted = now

    def play(self, story: Story) -> None:
        async def played() -> None:
            await story(self.store, self.store)

        asyncio.run(played())

    def wait(self, seconds: float) -> None:
        self._now += seconds
