"""Synchronisation of a gateway with the store, off the requests' path: members, peers, the clock, reports.

While the store is unreachable the gateway serves with the last known members. A report that may have arrived is
sent again under its sequence number; the traffic since goes into the next one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from mark.dispatch.overflow import WARM_S
from mark.domain.clients import ClientDirectory
from mark.domain.clock import ClockAnchor
from mark.domain.demand import WINDOW_S
from mark.domain.errors import RetryLater
from mark.domain.fleet.member import MemberState, Peer
from mark.domain.load.traffic import GatewayReport, Warmed
from mark.domain.models.versions import ModelVersions
from mark.ports import GatewayLink
from mark.serving.gateway.agent_pool import AgentConnections
from mark.serving.gateway.clients import Clients
from mark.serving.gateway.peers import PEERS_S, PROBE_S, Peers
from mark.serving.unexpected_errors import UnexpectedErrors
from mark.steady_time import steady_time

if TYPE_CHECKING:
    from mark.serving.gateway.model_router import ModelRouter

log = logging.getLogger("mark.gateway")

MEMBERS_S = 0.05
CLOCK_S = 0.1
WARMED_S = 0.25
BUDGET_S = 1.0
CLIENTS_S = 1.0
VERSIONS_S = 0.05
"""As often as members: an abort takes effect within it."""
REPORT_S = 0.25
RETRY_S = 0.5
"""Period of retries while the store is unreachable."""


def _nothing() -> None:
    """Nobody wants to know."""


def _nobody(_versions: ModelVersions) -> None:
    """Nobody wants to know."""


class StoreSync:
    """One gateway's view of the service's clock, and its reports."""

    def __init__(self, gateway: str, unexpected: UnexpectedErrors, zone: str = "") -> None:
        """zone: the gateway's."""
        self._zone = zone
        self.routers: dict[str, ModelRouter] = {}
        self.clients = Clients()
        #: called with the versions of a model after they have changed
        self.on_versions: Callable[[ModelVersions], None] = _nobody
        #: called after the clients have changed
        self.on_clients: Callable[[], None] = _nothing
        self.window_ends_at = 0.0
        self._gateway = gateway
        self._unexpected = unexpected
        self._anchor = ClockAnchor()
        self._window: int | None = None
        self._sequence = 0
        self._unsent: GatewayReport | None = None
        self._unreachable = False
        self._warmed: dict[tuple[str, str], Warmed] = {}
        self._versions: dict[str, ModelVersions] = {}

    def service_now(self) -> float:
        """Service time now."""
        return self._anchor.service_time(steady_time())

    def speed(self) -> float:
        """Service seconds per real second, by which each request is billed; 1 while the clock stands still."""
        return self._anchor.speed_at(steady_time()) or 1.0

    def roll_window(self, since: float) -> None:
        """Close the window of arrivals and open the one that runs now, for those since then.

        since, `window_ends_at`: the loop's clock.
        """
        if self._window is not None:
            for router in self.routers.values():
                router.tally.close_window(self._window)
        wall = steady_time()
        self._window = int(self._anchor.service_time(wall) // WINDOW_S)
        ends_at = self._anchor.wall_time((self._window + 1) * WINDOW_S)
        now = time.monotonic()
        self.window_ends_at = math.inf if math.isinf(ends_at) else now + ends_at - wall
        for router in self.routers.values():
            router.tally.open_window(self._window, since)

    async def begin(
        self, link: GatewayLink, agents: AgentConnections, peers: Peers, stop: asyncio.Event, me: Peer
    ) -> tuple[asyncio.Task[None], ...]:
        """Learn the clock, join the other gateways, then follow all that and report; the tasks to cancel.

        me: where the others reach this gateway.
        """
        while not stop.is_set() and not await self._call_store(lambda: self._follow_clock(link)):
            await asyncio.sleep(RETRY_S)
        while not stop.is_set() and not await self._call_store(lambda: self._follow_clients(link)):
            await asyncio.sleep(RETRY_S)  # without them a stranger would be let in
        while not stop.is_set() and not await self._call_store(lambda: self._follow_versions(link)):
            await asyncio.sleep(RETRY_S)  # without them an aborted version would answer
        follow = _MembersFollower(link, agents)
        while not stop.is_set() and not await self._call_store(follow.look):
            await asyncio.sleep(RETRY_S)  # without them it would answer that there is no capacity
        await self._call_store(lambda: peers.join(me, link))
        loop = asyncio.get_running_loop()
        return (
            loop.create_task(self._repeat(follow.look, lambda: MEMBERS_S)),
            loop.create_task(self._repeat(lambda: self._follow_versions(link), lambda: VERSIONS_S)),
            loop.create_task(self._repeat(lambda: self._follow_clock(link), lambda: CLOCK_S)),
            loop.create_task(self._repeat(lambda: self._follow_peers(link, agents, peers), lambda: PEERS_S)),
            loop.create_task(self._repeat(peers.probe, lambda: PROBE_S)),
            loop.create_task(self._repeat(lambda: self._follow_warmed(link), lambda: WARMED_S)),
            loop.create_task(self._repeat(lambda: self._follow_budget(link), lambda: BUDGET_S)),
            loop.create_task(self._repeat(lambda: self._follow_clients(link), lambda: CLIENTS_S)),
            loop.create_task(self._repeat(lambda: self._report(link), self._until_report_s)),
        )

    async def leave(self, link: GatewayLink, peers: Peers) -> None:
        """Withdraw this gateway from its peers."""
        await self._call_store(lambda: peers.leave(link))

    async def report_last(self, link: GatewayLink) -> None:
        """Send the last report, before the gateway ends."""
        await self._call_store(lambda: self._report(link))

    async def _repeat(self, ask: Callable[[], Awaitable[None]], pause_s: Callable[[], float]) -> None:
        while True:
            await asyncio.sleep(pause_s() if await self._call_store(ask) else RETRY_S)

    async def _call_store(self, ask: Callable[[], Awaitable[None]]) -> bool:
        """Call the store; False where it failed. Its loss and its return are logged once each."""
        try:
            await ask()
        except RetryLater as error:
            if not self._unreachable:
                log.warning("store unreachable, serving with the last known members", extra={"reason": str(error)})
            self._unreachable = True
            return False
        except Exception as error:  # noqa: BLE001 - the driver of a periodic call: the next one is made
            self._unexpected.note(error, gateway=self._gateway)
            return False
        if self._unreachable:
            log.info("store reachable again")
        self._unreachable = False
        return True

    async def _follow_clock(self, link: GatewayLink) -> None:
        anchor = await link.clock()
        if anchor != self._anchor or self._window is None:
            if self._window is not None:
                self.roll_window(time.monotonic())
            self._anchor = anchor
            self.roll_window(time.monotonic())

    @staticmethod
    async def _follow_peers(link: GatewayLink, agents: AgentConnections, peers: Peers) -> None:
        await peers.follow(link, agents.measure_loads(time.monotonic()))
        agents.set_gateways(peers.up)

    async def _follow_warmed(self, link: GatewayLink) -> None:
        for warmed in await link.warmed():
            router, whose = self.routers.get(warmed.model), (warmed.model, warmed.version)
            calls = router.calls_of(warmed.version) if router is not None else None
            known = self._warmed.get(whose)
            if calls is None or known == warmed:
                continue
            self._warmed[whose] = warmed
            # said of the function alone, before its versions are warmed anew
            if known is not None and not warmed.version and warmed.anew_at > known.anew_at:
                calls.forget_warm()
            if warmed.at > self.service_now() - WARM_S:
                calls.note_warmed(warmed.at, warmed.share)

    async def _follow_budget(self, link: GatewayLink) -> None:
        limit = await link.spending_limit()
        for router in self.routers.values():
            router.limit_spending(limit)

    async def _follow_versions(self, link: GatewayLink) -> None:
        for versions in await link.versions():
            if versions != self._versions.get(versions.model) and versions.model in self.routers:
                self._versions[versions.model] = versions
                self.on_versions(versions)

    async def _follow_clients(self, link: GatewayLink) -> None:
        try:
            self._know_clients(await link.clients())
        except RetryLater:
            self._know_clients(None)
            raise

    def _know_clients(self, directory: ClientDirectory | None) -> None:
        if self.clients.follow(directory, now=steady_time(), loop_now=time.monotonic()):
            self.on_clients()

    async def _report(self, link: GatewayLink) -> None:
        if self._unsent is not None:
            await link.report(self._unsent)
            self._unsent = None
        self._unsent = self._next_report()
        if self._unsent is not None:
            await link.report(self._unsent)
            self._unsent = None

    def _next_report(self) -> GatewayReport | None:
        self.roll_window(time.monotonic())
        models = []
        for router in self.routers.values():
            calls = router.overflow
            in_flight = calls.in_flight if calls is not None else 0
            clients = self.clients.traffic(router.name)
            warm = router.lambda_warm
            traffic = router.tally.traffic(
                router.name, in_flight=in_flight, warm=warm, clients=clients, zone=self._zone
            )
            if traffic is not None:
                models.append(traffic)
        if not models:
            return None
        self._sequence += 1
        return GatewayReport(gateway=self._gateway, sequence=self._sequence, models=tuple(models))

    def _until_report_s(self) -> float:
        """Seconds to the next report: at the end of each window, and at least every REPORT_S."""
        return max(0.005, min(REPORT_S, self.window_ends_at - time.monotonic() + 0.001))


class _MembersFollower:
    """Reads the members when their version has changed."""

    def __init__(self, link: GatewayLink, agents: AgentConnections) -> None:
        self._link, self._agents = link, agents
        self._version: int | None = None

    async def look(self) -> None:
        version = await self._link.members_version()
        if version == self._version:
            return
        members = await self._link.members()
        self._version = version
        here = {m.name: m for m in members if m.state in (MemberState.READY, MemberState.DRAINING)}
        self._agents.set_members(here)
