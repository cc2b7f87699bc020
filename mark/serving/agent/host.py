"""An instance with its models: what it announces, how long it is there, and who talks to which model."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence

from mark.domain.clock import ClockAnchor
from mark.domain.errors import MarkError, RetryLater
from mark.domain.fleet.host_spec import SHARED
from mark.domain.fleet.instances import Role
from mark.domain.fleet.member import Member, MemberState
from mark.domain.fleet.orphan import BEAT_S, Ownership
from mark.ports import AgentLink
from mark.serving.agent.gateway_link import FramePort
from mark.serving.agent.http import AgentHttp
from mark.serving.agent.tenant import AgentConfig, Tenant
from mark.steady_time import steady_time
from mark.telemetry.otlp.sender import TelemetrySender

log = logging.getLogger("mark.agent")

ANNOUNCE_S = 1.0
FASTEST_S, FASTEST_LOOK_S = 0.25, 0.5
"""Shortest periods of announcements and of polls for a spot notice under a fast clock: with dozens of agents on
one machine, polling would be most of its work."""
NOTICEABLE_S = 0.1
GRACE_S = 0.1
"""Time for requests that were on their way when the drain began; they bounce."""
STORE, METADATA = "store", "metadata service"
"""Names of an agent's dependencies in its log."""


class Host:
    """The agent of one instance. tenant: its only model; None for a shared instance, whose models come and go.

    `state`: of a shared instance; any other is in its model's.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        link: AgentLink,
        offering: str,
        telemetry: TelemetrySender | None = None,
        tenant: Tenant | None = None,
    ) -> None:
        self.config, self.link, self.telemetry = config, link, telemetry
        self.port = FramePort(standby=config.role is Role.STANDBY)
        self.http = AgentHttp(instance=config.instance, is_ready=self.is_ready, telemetry=telemetry)
        self.state = MemberState.STARTING
        self.terminates_at: float | None = None
        self.anchor = ClockAnchor()
        self.draining = asyncio.Event()
        #: Models that are to be started anew: they are announced as broken, and nobody talks to them.
        self.broken: set[Tenant] = set()
        self.frame_port = config.frame_port
        self.certificate = ""
        self.credits: Callable[[], float | None] = lambda: None
        self.surplus_vcpu_s: Callable[[], float] = lambda: 0.0
        self._offering = offering
        self._only = tenant
        self._goes_at = math.inf
        self._unreachable: set[str] = set()
        self._ownership: Ownership | None = None
        if tenant is not None:
            self.add(tenant)

    @property
    def tenants(self) -> Sequence[Tenant]:
        """The models that are here or are being loaded."""
        return tuple(self.port.tenants.values())

    def add(self, tenant: Tenant) -> None:
        """Let gateways talk to this model, and announce it."""
        self.port.tenants[tenant.wire_key] = tenant
        tenant.core.terminates_at = self._goes_at
        self.http.set_tenants(self.tenants)

    def remove(self, tenant: Tenant) -> None:
        """Announce it no more; who still talks to it is disconnected."""
        self.port.tenants.pop(tenant.wire_key, None)
        self.http.set_tenants(self.tenants)
        self.disconnect(tenant)

    def disconnect(self, tenant: Tenant) -> None:
        """Say goodbye to the gateways that talk to it."""
        for connection in tuple(self.port.open):
            if connection.tenant is tenant:
                connection.leave()

    def is_ready(self) -> bool:
        """True while the instance takes requests."""
        return self._only.is_ready if self._only is not None else self.state is MemberState.READY

    @property
    def announce_period_s(self) -> float:
        """Real seconds between two announcements: a second of service time, within bounds."""
        speed = self.anchor.speed_at(steady_time())
        return max(FASTEST_S, min(ANNOUNCE_S, ANNOUNCE_S / speed if speed > 0 else ANNOUNCE_S))

    @property
    def notice_poll_s(self) -> float:
        """Real seconds between two polls for a spot notice."""
        return max(FASTEST_LOOK_S, self.announce_period_s)

    def members(self) -> tuple[Member, ...]:
        """Entries in the store: the instance's first, then those of the models that share it."""
        config = self.config
        host = Member(
            instance=config.instance,
            model=SHARED,
            offering=self._offering,
            role=config.role,
            host=config.host,
            port=self.frame_port,
            state=self.state,
            max_batch=0,
            batch_s=(),
            capacity_rps=0.0,
            terminates_at=self.terminates_at,
            credits=self.credits(),
            surplus_vcpu_s=self.surplus_vcpu_s(),
            epoch=config.epoch,
            certificate=self.certificate,
            zone=config.zone,
        )
        if self._only is not None:
            return (self._only.member(host),)
        return (host, *(tenant.member(host) for tenant in (*self.tenants, *self.broken)))

    async def announce(self) -> None:
        """Write the entries in the store, and begin to drain where the store asks for it."""
        first, *others = self.members()
        if await self.link.announce(first) and not self.draining.is_set():
            log.info("drain requested", extra={"instance": self.config.instance})
            self._begin_drain()
            first, *others = self.members()
            await self.link.announce(first)
        for member in others:
            if any(member.wire_key == one.wire_key for one in (*self.tenants, *self.broken)):  # it has not left
                await self.link.announce(member)

    def _begin_drain(self) -> None:
        self.state = MemberState.DRAINING
        for tenant in self.tenants:
            tenant.refuse(MemberState.DRAINING)
        self.draining.set()

    async def watch_ownership(self) -> None:
        """Look for signs of a controller, and of use; drain where both are missing for too long."""
        now, acted_at = self.anchor.service_time(steady_time()), None
        before = self._ownership or Ownership(at=now)
        try:
            if now - before.acted_at >= BEAT_S:
                acted_at = await self.link.acted_at()
        finally:  # also where the store is lost: that is what it is for
            self._ownership = before.at_look(now, acted_at=acted_at, is_used=self.port.is_used)
            self.port.is_used = False
            if self._ownership.is_orphan and not self.draining.is_set():
                log.warning(
                    "no controller acts and nobody sends requests: the instance ends",
                    extra={"instance": self.config.instance, "alone_s": round(self._ownership.alone_s)},
                )
                self._begin_drain()

    async def follow_clock(self) -> None:
        """Read the service's clock, and convert a notice's time with it."""
        self.anchor = await self.link.clock()
        self.set_terminates_at(self.terminates_at)

    async def watch(self, interruption: Callable[[], Awaitable[float | None]]) -> None:
        """Poll for a spot notice."""
        terminates_at = await interruption()
        if terminates_at != self.terminates_at:
            log.warning(
                "spot interruption notice",
                extra={"instance": self.config.instance, "terminates_at": terminates_at},
            )
            self.set_terminates_at(terminates_at)
            for tenant in self.tenants:
                tenant.core.publish_if_changed()
            await self.call_dependency(self.announce)

    def set_terminates_at(self, terminates_at: float | None) -> None:
        """terminates_at: service time."""
        self.terminates_at = terminates_at
        wall_at = math.inf if terminates_at is None else self.anchor.wall_time(terminates_at)
        moved = wall_at + time.monotonic() - steady_time()
        if abs(moved - self._goes_at) > NOTICEABLE_S or math.isinf(moved):
            self._goes_at = moved
            for tenant in self.tenants:
                tenant.core.terminates_at = moved

    async def drain(self, tenant: Tenant, stop: asyncio.Event) -> bool:
        """Answer its queue, bounce what is on its way, and deregister it; False where that was stopped."""
        tenant.refuse(MemberState.DRAINING)
        empty_since = time.monotonic()
        while time.monotonic() - empty_since < GRACE_S:
            await asyncio.sleep(GRACE_S / 10)
            if stop.is_set():
                return False
            if not tenant.core.is_empty:
                empty_since = time.monotonic()
        await self.forget(tenant)
        return True

    async def forget(self, tenant: Tenant) -> None:
        """Announce it no more, and deregister it."""
        name = tenant.member(self.members()[0]).name
        self.remove(tenant)
        self.broken.discard(tenant)
        await self.leave(name)

    async def leave(self, name: str) -> None:
        """Deregister a member."""
        try:
            await self.link.leave(name)
        except MarkError as error:
            log.warning("could not deregister; the entry in the store expires", extra={"reason": str(error)})

    async def call_dependency(self, ask: Callable[[], Awaitable[object]], *, of: str = STORE) -> None:
        """Call the store or the metadata service; the log has one line when it is lost, one when it is back."""
        try:
            await ask()
        except RetryLater as error:
            if of not in self._unreachable:
                log.warning("%s unreachable, serving with the last known state", of, extra={"reason": str(error)})
            self._unreachable.add(of)
            return
        except MarkError:
            raise
        except Exception as error:  # noqa: BLE001 - the driver of a periodic call: the agent serves on
            self.port.unexpected.note(error, instance=self.config.instance)
            return
        if of in self._unreachable:
            log.info("%s reachable again", of)
            self._unreachable.remove(of)

    async def call_repeatedly(
        self, ask: Callable[[], Awaitable[None]], period_s: Callable[[], float], *, of: str = STORE
    ) -> None:
        """Call a dependency periodically."""
        while True:
            await self.call_dependency(ask, of=of)
            await asyncio.sleep(period_s())
