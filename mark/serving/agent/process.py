"""The agent: the process on each instance that takes requests, batches them, and hands them to the backends.

Lifecycle: it loads its model, or those that it is told to hold (`agent/tenancies.py`), announces itself in the
store (the heartbeat by which its liveness is judged), and serves. When a drain is requested it admits nothing new,
answers its queues, deregisters, and exits with 0, on which the machine powers off. It drains by itself where no
controller acts and nobody uses it (`domain/fleet/orphan.py`). A spot notice sets `terminates_at`; until then it
admits what finishes before. Any other exit is a crash, after which it is restarted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from mark.domain.errors import MarkError
from mark.domain.fleet.member import MemberState
from mark.domain.offerings.offering import Offering
from mark.ports import AgentLink, Backend
from mark.service_spec import ServedModel
from mark.serving.agent.gateway_link import GatewayConnection
from mark.serving.agent.host import METADATA, Host
from mark.serving.agent.http import AgentExchange
from mark.serving.agent.tenancies import MakeTenant, Tenancies
from mark.serving.agent.tenant import AgentConfig, Tenant
from mark.serving.certificate import make_certificate
from mark.serving.frame_link import HANDSHAKE_S
from mark.serving.http.http_server import HttpServer
from mark.telemetry.otlp.sender import TelemetrySender

log = logging.getLogger("mark.agent")

EXIT_DRAINED = 0
EXIT_BROKEN = 1
EXIT_STOPPED = 143
"""128 + SIGTERM, the shells' convention."""
HEARTBEAT_S = 0.25
CLOCK_S = 1.0
ANNOUNCE_WITHIN_S = 2.0
"""Longest wait of a broken agent for the store before it exits."""
CANCEL_AGAIN_S = 0.25

Interruption = Callable[[], Awaitable[float | None]]
"""Poll for a spot notice: the instance's end in service time; None without a notice."""


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
    """Serve one model until drained, broken or stopped: the exit code.

    on_bound: gets the ports for frames and HTTP. telemetry: where spans and metrics go; the caller closes it.
    """
    tenant = Tenant(config, served=served, offering=offering, backend=backend, telemetry=telemetry)
    host = Host(config, link=link, offering=offering.name, telemetry=telemetry, tenant=tenant)
    host.credits, host.surplus_vcpu_s = credits_left, surplus_vcpu_s
    return await _serve(host, partial(_live, host, tenant), tenant.close, interruption, stop, on_bound)


async def serve_host(
    config: AgentConfig,
    *,
    offering: str,
    make_tenant: MakeTenant,
    booted: Callable[[], Awaitable[None]],
    link: AgentLink,
    interruption: Interruption,
    stop: asyncio.Event,
) -> int:
    """Serve the models that the store places here, until drained or stopped: the exit code.

    offering: what the instance was rented as. make_tenant: a placed model, not loaded. booted: returns once the
    machine's boot is over. The rest as for `serve_agent`.
    """
    host = Host(config, link=link, offering=offering)
    tenancies = Tenancies(host, make_tenant)
    live = partial(_share, host, tenancies, booted)
    return await _serve(host, live, tenancies.close, interruption, stop)


_Live = Callable[[list[asyncio.Task[None]], asyncio.Event], Awaitable[int]]


async def _serve(
    host: Host,
    live: _Live,
    close: Callable[[], Awaitable[None]],
    interruption: Interruption,
    stop: asyncio.Event,
    on_bound: Callable[[int, int], None] | None = None,
) -> int:
    """Open the ports, keep what is periodic going, and be there as `live` says. close: ends the models."""
    config, port = host.config, host.port
    loop = asyncio.get_running_loop()
    http = HttpServer(host.http.handle, make=AgentExchange, admits=host.http.admits, unexpected=port.unexpected)
    tls = make_certificate() if config.encrypted else None
    host.certificate = tls.fingerprint if tls is not None else ""
    frames = await loop.create_server(
        lambda: GatewayConnection(port),
        config.host,
        config.frame_port,
        ssl=tls.context if tls is not None else None,
        ssl_handshake_timeout=HANDSHAKE_S if tls is not None else None,
    )
    web = await loop.create_server(http.connection, config.host, config.http_port)
    host.frame_port = frames.sockets[0].getsockname()[1]
    if on_bound is not None:
        on_bound(host.frame_port, web.sockets[0].getsockname()[1])
    http.start()
    tasks = [
        loop.create_task(host.call_repeatedly(host.follow_clock, lambda: CLOCK_S)),
        loop.create_task(host.call_repeatedly(host.watch_ownership, lambda: CLOCK_S)),
        loop.create_task(host.call_repeatedly(host.announce, lambda: host.announce_period_s)),
        loop.create_task(
            host.call_repeatedly(partial(host.watch, interruption), lambda: host.notice_poll_s, of=METADATA)
        ),
        loop.create_task(_heartbeat(host)),
    ]
    if host.telemetry is not None and host.telemetry.sends_metrics:
        tasks.append(loop.create_task(host.telemetry.send_metrics(host.http.families)))
    try:
        return await live(tasks, stop)
    finally:
        await _end(tasks)
        await close()  # before the connections: whoever loses one is answered elsewhere at once
        for server in (frames, web):
            server.close()
        await http.close()
        for connection in tuple(port.open):
            connection.abort()
        while port.open:  # the loop lets go of them in its next turns
            await asyncio.sleep(0)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel these until they have ended: one that just connects to the store may miss it the first time."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)


async def _live(host: Host, tenant: Tenant, tasks: list[asyncio.Task[None]], stop: asyncio.Event) -> int:
    """Be there with one model, from its backend's start to the exit code."""
    loop = asyncio.get_running_loop()
    starting = loop.create_task(tenant.backend.start())
    events = (stop, tenant.core.broken, host.draining)
    ends = [loop.create_task(event.wait()) for event in events]
    stopped, broken, drained = ends
    try:
        await asyncio.wait([starting, stopped, drained, *tasks], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            if not host.draining.is_set():
                tenant.accept()
                await host.call_dependency(host.announce)
                await asyncio.wait([*ends, *tasks], return_when=asyncio.FIRST_COMPLETED)
        _raise_failed(tasks)
        if broken.done():
            await _announce_broken(host, tenant)
            return EXIT_BROKEN
        if stopped.done() or not await host.drain(tenant, stop):
            return EXIT_STOPPED
        return EXIT_DRAINED
    finally:
        for running in (starting, *ends):
            running.cancel()
        await asyncio.gather(starting, *ends, return_exceptions=True)


async def _share(
    host: Host,
    tenancies: Tenancies,
    booted: Callable[[], Awaitable[None]],
    tasks: list[asyncio.Task[None]],
    stop: asyncio.Event,
) -> int:
    """Be there with whatever is placed here, from the boot's end to the exit code."""
    loop = asyncio.get_running_loop()
    booting = asyncio.ensure_future(booted())
    ends = [loop.create_task(event.wait()) for event in (stop, host.draining)]
    stopped, _ = ends
    following: list[asyncio.Task[None]] = []
    try:
        await asyncio.wait([booting, *ends, *tasks], return_when=asyncio.FIRST_COMPLETED)
        if booting.done():
            booting.result()
            if not host.draining.is_set():
                host.state = MemberState.READY
                await host.call_dependency(host.announce)
                follow = host.call_repeatedly(tenancies.follow, lambda: host.announce_period_s)
                following.append(loop.create_task(follow))
                await asyncio.wait([*following, *ends, *tasks], return_when=asyncio.FIRST_COMPLETED)
        _raise_failed([*tasks, *following])
        if stopped.done():
            return EXIT_STOPPED
        await _end(following)
        is_drained = await tenancies.drain(stop)
        if is_drained:
            await host.leave(host.config.instance)
        return EXIT_DRAINED if is_drained else EXIT_STOPPED
    finally:
        for running in (booting, *ends, *following):
            running.cancel()
        await asyncio.gather(booting, *ends, *following, return_exceptions=True)


def _raise_failed(tasks: list[asyncio.Task[None]]) -> None:
    """Raise the unexpected error of a task that ended: none ends by itself."""
    for task in tasks:
        if task.done():
            task.result()


async def _announce_broken(host: Host, tenant: Tenant) -> None:
    """Announce the broken state to gateways and to the store, so that no more requests come."""
    tenant.refuse(MemberState.BROKEN)
    host.disconnect(tenant)
    with suppress(TimeoutError, MarkError):
        async with asyncio.timeout(ANNOUNCE_WITHIN_S):
            await host.call_dependency(host.announce)


async def _heartbeat(host: Host) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        for tenant in host.tenants:
            tenant.core.check_timeouts(HEARTBEAT_S)
        for connection in tuple(host.port.open):
            try:
                connection.check_progress(HEARTBEAT_S)
                connection.publish()
            except Exception as error:  # noqa: BLE001 - the others are told all the same
                host.port.unexpected.note(error)
