"""The agent: the process on each instance that takes requests, batches them, and hands them to the backend.

Lifecycle: it starts the backend, announces itself in the store (the heartbeat by which its liveness is judged),
and serves. When a drain is requested it admits nothing new, answers its queue, deregisters, and exits with 0, on
which the machine powers off. A spot notice sets `terminates_at`; until then it admits what finishes before. Any
other exit is a crash, after which it is restarted.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypedDict

from mark.domain.clock import ClockAnchor
from mark.domain.errors import MarkError, Misconfigured, RetryLater
from mark.domain.fleet import Role
from mark.domain.member import Member, MemberState
from mark.domain.offering import Offering
from mark.ports import AgentLink, Backend, StreamingBackend, VariantBackend
from mark.protocols.handshake import new_key
from mark.service_spec import ServedModel
from mark.serving.agent.batch_trace import AgentTracing
from mark.serving.agent.certificate import make_certificate
from mark.serving.agent.gateway_link import FramePort, GatewayConnection
from mark.serving.agent.http import AgentAccess, AgentExchange, AgentHttp
from mark.serving.agent.queue import AgentCore
from mark.serving.agent.streams import StreamCore
from mark.serving.agent.variants import AgentVariants
from mark.serving.frame_link import HANDSHAKE_S
from mark.serving.http.http_server import HttpServer
from mark.steady_time import steady_time
from mark.telemetry.otlp.sender import TelemetrySender

log = logging.getLogger("mark.agent")

EXIT_DRAINED = 0
EXIT_BROKEN = 1
EXIT_STOPPED = 143
"""128 + SIGTERM, the shells' convention."""
HEARTBEAT_S = 0.25
ANNOUNCE_S = 1.0
FASTEST_S, FASTEST_LOOK_S = 0.25, 0.5
"""Shortest periods of announcements and of polls for a spot notice under a fast clock: with dozens of agents on
one machine, polling would be most of its work."""
NOTICEABLE_S = 0.1
CLOCK_S = 1.0
ANNOUNCE_WITHIN_S = 2.0
"""Longest wait of a broken agent for the store before it exits."""
CANCEL_AGAIN_S = 0.25
GRACE_S = 0.1
"""Time for requests that were on their way when the drain began; they bounce."""

STORE, METADATA = "store", "metadata service"
"""Names of an agent's dependencies in its log."""

Interruption = Callable[[], Awaitable[float | None]]
"""Poll for a spot notice: the instance's end in service time; None without a notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Identity and ports of an agent; port 0 takes a free one. `epoch` counts its starts.

    `encrypted`: frames come over TLS, as they have to where they leave the host. `standalone`: no gateway ever
    comes, and its HTTP port takes requests from whoever reaches it.
    """

    instance: str
    role: Role
    host: str
    frame_port: int = 8001
    http_port: int = 8000
    epoch: int = 0
    encrypted: bool = False
    standalone: bool = False


class _Rules(TypedDict):
    """Rules of admission, and of what hangs, as AgentCore takes them."""

    admission_factor: float | None
    admission_sigmas: float
    give_up_s: float
    cv: float
    hung_after_s: float


class Agent:
    """An agent's announced state; its queue is in `core`."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        served: ServedModel,
        offering: Offering,
        link: AgentLink,
        backend: Backend,
        telemetry: TelemetrySender | None = None,
    ) -> None:
        self.config, self.served, self.offering = config, served, offering
        self.link, self.backend = link, backend
        serving = served.variant_serving
        if serving is not None and not isinstance(backend, VariantBackend):
            raise Misconfigured(f"{served.name} has variants, and its backend cannot switch between them")
        self.variants = None if serving is None else AgentVariants(
            serving, offering.instance_type.name, horizon_s=served.slo.latency_s, cv=offering.cv
        )  # fmt: skip
        profile_s, most = offering.profile.latencies_s(offering.profile.max_batch), offering.batch.max_batch
        self.core = self._core(profile_s[:most], profile_s[most:], telemetry)
        self._profile_s = profile_s[:most]
        self.state = MemberState.STARTING
        self.terminates_at: float | None = None
        self.anchor = ClockAnchor()
        self.draining = asyncio.Event()
        self.frame_port = config.frame_port
        self.wire_key, self.certificate = new_key(), ""
        self.credits: Callable[[], float | None] = lambda: None
        self.surplus_vcpu_s: Callable[[], float] = lambda: 0.0
        self._unreachable: set[str] = set()

    def _core(
        self, profile_s: Sequence[float], beyond_s: Sequence[float], telemetry: TelemetrySender | None
    ) -> AgentCore:
        served, backend = self.served, self.backend
        rules = _Rules(
            admission_factor=served.dispatch.admission_factor,
            admission_sigmas=served.dispatch.admission_sigmas,
            give_up_s=served.dispatch.give_up_s,
            cv=self.offering.cv,
            hung_after_s=served.dispatch.hung_after_s,
        )
        tracing = None
        if telemetry is not None and telemetry.spans is not None:
            tracing = AgentTracing(telemetry.spans, model=served.name, instance=self.config.instance)
        if not served.backend.streams:
            return AgentCore(
                backend,
                profile_s=profile_s,
                beyond_s=beyond_s,
                variants=self.variants,
                tracing=tracing,
                **rules,
            )
        if not isinstance(backend, StreamingBackend):
            raise Misconfigured(f"{served.name} is to stream, and its backend cannot: leave backend.streams out")
        return StreamCore(backend, profile_s=profile_s, tracing=tracing, **rules)

    @property
    def announce_period_s(self) -> float:
        """Real seconds between two announcements: a second of service time, within bounds."""
        speed = self.anchor.speed_at(steady_time())
        return max(FASTEST_S, min(ANNOUNCE_S, ANNOUNCE_S / speed if speed > 0 else ANNOUNCE_S))

    def is_ready(self) -> bool:
        """True while the agent takes requests."""
        return self.state is MemberState.READY

    @property
    def notice_poll_s(self) -> float:
        """Real seconds between two polls for a spot notice."""
        return max(FASTEST_LOOK_S, self.announce_period_s)

    def member(self) -> Member:
        """The agent's entry in the store: its times are those of the profile that plans count on."""
        core, config, variants = self.core, self.config, self.variants
        batch_s = core.measured.batch_s if variants is None else variants.counted_s(self._profile_s)
        return Member(
            instance=config.instance,
            model=self.served.name,
            offering=self.offering.name,
            role=config.role,
            host=config.host,
            port=self.frame_port,
            state=self.state,
            max_batch=len(batch_s),
            batch_s=batch_s,
            capacity_rps=len(batch_s) / batch_s[-1],
            terminates_at=self.terminates_at,
            credits=self.credits(),
            surplus_vcpu_s=self.surplus_vcpu_s(),
            epoch=config.epoch,
            wire_key=self.wire_key,
            certificate=self.certificate,
            version=self.served.version,
        )

    async def announce(self) -> None:
        """Write the agent's entry in the store, and begin to drain where the store asks for it."""
        if await self.link.announce(self.member()) and not self.draining.is_set():
            log.info("drain requested", extra={"instance": self.config.instance})
            self.state = MemberState.DRAINING
            self.core.accepting = False
            self.core.publish_if_changed()
            self.draining.set()
            await self.link.announce(self.member())

    async def follow_clock(self) -> None:
        """Read the service's clock, and convert a notice's time with it."""
        self.anchor = await self.link.clock()
        self.set_terminates_at(self.terminates_at)

    async def watch(self, interruption: Interruption) -> None:
        """Poll for a spot notice."""
        terminates_at = await interruption()
        if terminates_at != self.terminates_at:
            log.warning(
                "spot interruption notice",
                extra={"instance": self.config.instance, "terminates_at": terminates_at},
            )
            self.set_terminates_at(terminates_at)
            self.core.publish_if_changed()
            await self.call_dependency(self.announce)

    def set_terminates_at(self, terminates_at: float | None) -> None:
        """terminates_at: service time."""
        self.terminates_at = terminates_at
        wall_at = math.inf if terminates_at is None else self.anchor.wall_time(terminates_at)
        now = time.monotonic() - steady_time()
        moved = wall_at + now
        if abs(moved - self.core.terminates_at) > NOTICEABLE_S or math.isinf(moved):
            self.core.terminates_at = moved

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
            self.core.unexpected.note(error, instance=self.config.instance)
            return
        if of in self._unreachable:
            log.info("%s reachable again", of)
            self._unreachable.remove(of)

    async def call_repeatedly(
        self, ask: Callable[[], Awaitable[None]], announce_period_s: Callable[[], float], *, of: str = STORE
    ) -> None:
        """Call a dependency periodically."""
        while True:
            await self.call_dependency(ask, of=of)
            await asyncio.sleep(announce_period_s())


async def serve_agent(  # noqa: PLR0913 it is given every port
    config: AgentConfig,
    *,
    served: ServedModel,
    offering: Offering,
    link: AgentLink,
    backend: Backend,
    interruption: Interruption,
    stop: asyncio.Event,
    credits_left: Callable[[], float | None] = lambda: None,
    surplus_vcpu_s: Callable[[], float] = lambda: 0.0,
    on_bound: Callable[[int, int], None] | None = None,
    telemetry: TelemetrySender | None = None,
) -> int:
    """Serve until drained, broken or stopped: the exit code. on_bound: gets the ports for frames and HTTP.

    telemetry: where spans and metrics go; the caller closes it.
    """
    agent = Agent(config, served=served, offering=offering, link=link, backend=backend, telemetry=telemetry)
    agent.credits, agent.surplus_vcpu_s = credits_left, surplus_vcpu_s
    loop = asyncio.get_running_loop()
    access = AgentAccess(agent.wire_key, b"" if config.standalone else None)
    answering = AgentHttp(
        agent.core,
        served,
        instance=config.instance,
        is_ready=agent.is_ready,
        access=access,
        telemetry=telemetry,
    )
    http = HttpServer(
        answering.handle, make=AgentExchange, admits=answering.admits, unexpected=agent.core.unexpected
    )
    port = FramePort(key=agent.wire_key, standby=config.role is Role.STANDBY, on_token=access.set_digest)
    connections, tls = port.open, make_certificate() if config.encrypted else None
    agent.certificate = tls.fingerprint if tls is not None else ""
    frames = await loop.create_server(
        lambda: GatewayConnection(agent.core, port),
        config.host,
        config.frame_port,
        ssl=tls.context if tls is not None else None,
        ssl_handshake_timeout=HANDSHAKE_S if tls is not None else None,
    )
    web = await loop.create_server(http.connection, config.host, config.http_port)
    agent.frame_port = frames.sockets[0].getsockname()[1]
    if on_bound is not None:
        on_bound(agent.frame_port, web.sockets[0].getsockname()[1])
    http.start()
    tasks = [
        loop.create_task(agent.call_repeatedly(agent.follow_clock, lambda: CLOCK_S)),
        loop.create_task(agent.call_repeatedly(agent.announce, lambda: agent.announce_period_s)),
        loop.create_task(
            agent.call_repeatedly(partial(agent.watch, interruption), lambda: agent.notice_poll_s, of=METADATA)
        ),
        loop.create_task(_heartbeat(agent.core, connections)),
    ]
    if telemetry is not None and telemetry.sends_metrics:
        tasks.append(loop.create_task(telemetry.send_metrics(answering.families)))
    try:
        return await _live(agent, connections, tasks, stop)
    finally:
        await _end(tasks)
        await agent.core.close()
        await backend.close()
        for server in (frames, web):
            server.close()
        await http.close()
        for connection in tuple(connections):
            connection.abort()
        while connections:  # the loop lets go of them in its next turns
            await asyncio.sleep(0)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel these until they have ended: one that just connects to the store may miss it the first time."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)


async def _live(
    agent: Agent, connections: set[GatewayConnection], tasks: list[asyncio.Task[None]], stop: asyncio.Event
) -> int:
    """Run from the backend's start to the exit code."""
    loop = asyncio.get_running_loop()
    starting = loop.create_task(agent.backend.start())
    events = (stop, agent.core.broken, agent.draining)
    ends = [loop.create_task(event.wait()) for event in events]
    stopped, broken, drained = ends
    try:
        await asyncio.wait([starting, stopped, drained, *tasks], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            if not agent.draining.is_set():
                agent.state, agent.core.accepting = MemberState.READY, True
                agent.core.publish_if_changed()
                await agent.call_dependency(agent.announce)
                await asyncio.wait([*ends, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():  # they never end by themselves: an unexpected error, which is raised here
                task.result()
        if broken.done():
            await _announce_broken(agent, connections)
            return EXIT_BROKEN
        if stopped.done():
            return EXIT_STOPPED
        return await _drain(agent, connections, stop)
    finally:
        for running in (starting, *ends):
            running.cancel()
        await asyncio.gather(starting, *ends, return_exceptions=True)


async def _announce_broken(agent: Agent, connections: set[GatewayConnection]) -> None:
    """Announce the broken state to gateways and to the store, so that no more requests come."""
    agent.state, agent.core.accepting = MemberState.BROKEN, False
    for connection in tuple(connections):
        connection.leave()
    with suppress(TimeoutError):
        async with asyncio.timeout(ANNOUNCE_WITHIN_S):
            await agent.call_dependency(agent.announce)


async def _drain(agent: Agent, connections: set[GatewayConnection], stop: asyncio.Event) -> int:
    """Answer the queue, bounce what is on its way, and deregister."""
    empty_since = time.monotonic()
    while time.monotonic() - empty_since < GRACE_S:
        await asyncio.sleep(GRACE_S / 10)
        if stop.is_set():
            return EXIT_STOPPED
        if not agent.core.is_empty:
            empty_since = time.monotonic()
    for connection in tuple(connections):
        connection.leave()
    try:
        await agent.link.leave(agent.config.instance)
    except MarkError as error:
        log.warning("could not deregister; the entry in the store expires", extra={"reason": str(error)})
    return EXIT_DRAINED


async def _heartbeat(core: AgentCore, connections: set[GatewayConnection]) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        core.check_timeouts(HEARTBEAT_S)
        for connection in tuple(connections):
            try:
                connection.check_progress(HEARTBEAT_S)
                connection.publish()
            except Exception as error:  # noqa: BLE001 - the others are told all the same
                core.unexpected.note(error)
