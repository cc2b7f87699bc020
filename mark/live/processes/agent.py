"""An agent's process: who it is it learns from the instance metadata service, everything else from the store.

`run` is what an instance's image starts; its exit code is 0 for a power-off.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import uvloop

from mark.aws.ec2.imds import ENDPOINT, Identity, Imds
from mark.aws.ec2.tags import MODEL, MODEL_VERSION, OFFERING, PROFILE_OF, ROLE, SERVICE
from mark.domain.clock import ClockAnchor
from mark.domain.errors import Misconfigured, RetryLater, failure_words
from mark.domain.fleet.host_spec import SHARED, TenantSpec
from mark.domain.fleet.instances import Role
from mark.domain.fleet.orphan import ORPHAN_AFTER_S
from mark.domain.offerings.offering import Offering, as_tenant, of_type
from mark.live.cloud_process import exit_after
from mark.live.local.ports import is_loopback
from mark.live.processes.version_fetch import LOADING, READY
from mark.live.standalone_agent import StandaloneLink, is_standalone, standalone_model, standalone_offering
from mark.live.store_link import open_async_link
from mark.plugins.load import make_model
from mark.plugins.memory import share_one_heap
from mark.ports import Backend, ReplacingBackend, StreamingBackend, VariantBackend
from mark.service_spec import AgentSpec, ServedModel
from mark.serving.agent.cpu_meter import CpuMeter, busy_vcpu_s
from mark.serving.agent.device import Device
from mark.serving.agent.process import EXIT_DRAINED, EXIT_STOPPED, serve_agent, serve_host
from mark.serving.agent.tenant import AgentConfig, Tenant
from mark.serving.backends.factory import make_backend
from mark.serving.backends.isolation import (
    MODEL_USER,
    Isolation,
    become,
    needed_folders,
    unreadable_by_others,
    user_of,
    user_of_installed,
)
from mark.simulator.rng import stream
from mark.steady_time import WALL, steady_time
from mark.store.data_plane import AgentStore
from mark.telemetry.otlp.sender import TelemetrySender, open_telemetry
from mark.telemetry.structured_logs import log_json

log = logging.getLogger("mark.agent")

BOOTED_AT = "meta-data/mark/ready-at"
"""An emulated AWS tells here when the boot is over; on EC2 there is no such path, and loading is all of it."""
CPU_TIMES = "MARK_CPU_TIMES"
"""File of the machine's CPU times, in the form of /proc/stat: set where an instance has a machine of its own."""
STANDS_S = 30.0
"""Gateways have taken the agent for lost since 25 s, and nothing else would ever end it."""
LOOK_S = 1.0
LONGEST_WAIT_S = 0.5
"""Between two looks at a clock that may change its speed."""


def run(environment: Mapping[str, str]) -> int:
    """Be the agent of this instance until it is drained."""
    share_one_heap()
    imds = _metadata(environment)
    identity = imds.identity()
    own = identity.tags.get(MODEL, "")
    log_json(identity.instance, model="" if own == SHARED else own)
    if MODEL_USER in environment and own != SHARED and os.geteuid() == 0:
        become(int(environment[MODEL_USER]))
    booted_at = float(imds.get(BOOTED_AT) or 0.0)
    try:
        return uvloop.run(_serve(identity, imds, booted_at, environment))
    finally:
        imds.close()


def _metadata(environment: Mapping[str, str]) -> Imds:
    return Imds(environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or ENDPOINT)


def _store_password(environment: Mapping[str, str]) -> str:
    """Current credentials for the store, by a connection of its own: links connect whenever they must."""
    imds = _metadata(environment)
    try:
        return imds.store_password()
    finally:
        imds.close()


async def _serve(identity: Identity, imds: Imds, booted_at: float, environment: Mapping[str, str]) -> int:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    user_data = identity.user_data  # a rollout's instance has a start script there, which sets the environment
    leading = _metadata(environment)
    link = open_async_link(
        environment.get("MARK_STORE_URL") or user_data["store_url"],
        leading.leader if environment.get("MARK_LEADER") == "metadata" else None,
        partial(_store_password, environment),
    )
    store = AgentStore(link, identity.tags[SERVICE])
    try:
        if not await _reach(store, stop):
            return EXIT_STOPPED if stop.is_set() else EXIT_DRAINED
        clock = _Clock(store)
        await clock.refresh()
        serve = _share if identity.tags.get(MODEL) == SHARED else _serve_model
        return await serve(identity, imds, store, clock, booted_at, stop, environment)
    finally:
        faulthandler.cancel_dump_traceback_later()
        await link.aclose()
        leading.close()


async def _reach(store: AgentStore, stop: asyncio.Event) -> bool:
    """Wait until the store answers, which tells the wall's time; False where it does not for ORPHAN_AFTER_S.

    A machine whose agent ended and was started again would else begin to count anew.
    """
    until, is_told = steady_time() + ORPHAN_AFTER_S, False
    while not stop.is_set() and steady_time() < until:
        try:
            WALL.adopt(await store.share_wall(WALL.offset_s))
        except RetryLater as error:
            if not is_told:
                log.warning("the store does not answer yet", extra={"reason": str(error)})
            is_told = True
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_S)
        else:
            return True
    return False


async def _serve_model(
    identity: Identity,
    imds: Imds,
    store: AgentStore,
    clock: _Clock,
    booted_at: float,
    stop: asyncio.Event,
    environment: Mapping[str, str],
) -> int:
    """Serve the model that the instance was rented for."""
    tags, alone = identity.tags, is_standalone(identity.tags)
    spec = await store.spec(tags[PROFILE_OF if alone else MODEL], tags.get(MODEL_VERSION, ""))
    served = standalone_model(spec.served) if alone else spec.served
    await _files_of(served, environment)
    launched_as = of_type(tags[OFFERING], imds.get("meta-data/instance-type") or "")
    offering = standalone_offering(served, tags) if alone else served.offering(launched_as)
    rng = stream(spec.seed, f"service times {identity.instance}")
    backend = make_backend(
        served.backend, served, offering, make_model=make_model, now=clock.now, speed=clock.speed, rng=rng
    )
    config = replace(_config(identity), role=Role.SERVING if alone else Role(tags[ROLE]), standalone=alone)
    telemetry = _telemetry(spec, identity)
    meter = _cpu_meter(offering, environment, clock.now)
    booting = _Booting(backend, clock, booted_at)
    watching = asyncio.get_running_loop().create_task(_watch_loop(booting.loaded))
    try:
        return await serve_agent(
            config,
            served=served,
            offering=offering,
            link=StandaloneLink(store, tags) if alone else store,
            backend=booting,
            interruption=lambda: asyncio.to_thread(imds.taken_at),
            stop=stop,
            credits_left=lambda: getattr(meter or backend, "credits", None),
            surplus_vcpu_s=lambda: getattr(meter or backend, "surplus_vcpu_s", 0.0),
            telemetry=telemetry,
        )
    finally:
        watching.cancel()
        if telemetry is not None:
            await telemetry.close()


async def _share(
    identity: Identity,
    imds: Imds,
    store: AgentStore,
    clock: _Clock,
    booted_at: float,
    stop: asyncio.Event,
    environment: Mapping[str, str],
) -> int:
    """Serve the models that the store places here: each in a process of its own, on its own code."""
    config = _config(identity)
    users: dict[str, int] = {}

    async def make(placed: TenantSpec, device: Device) -> Tenant:
        spec = await store.spec(placed.model, placed.version)
        await _files_of(spec.served, environment)
        offering = as_tenant(spec.served.offering(placed.offering), placed.max_batch)
        rng = stream(spec.seed, f"service times {identity.instance} {placed.model}")
        backend = make_backend(
            spec.served.backend,
            spec.served,
            offering,
            make_model=make_model,
            now=clock.now,
            speed=clock.speed,
            rng=rng,
            isolation=_isolation(spec.served, offering, users, must=MODEL_USER in environment),
        )
        return Tenant(config, served=spec.served, offering=offering, backend=backend, share_rps=0.0, device=device)

    launched_as = of_type(identity.tags[OFFERING], imds.get("meta-data/instance-type") or "")
    return await serve_host(
        config,
        offering=launched_as,
        make_tenant=make,
        booted=lambda: clock.reach(booted_at),
        link=store,
        interruption=lambda: asyncio.to_thread(imds.taken_at),
        stop=stop,
    )


async def _files_of(served: ServedModel, environment: Mapping[str, str]) -> None:
    """Wait for the files of a version where somebody fetches them. Errors: Misconfigured where nobody can."""
    if not served.version or not served.backend.folder:
        return
    imds = _metadata(environment)
    try:
        while (said := await asyncio.to_thread(imds.version, served.version)) == LOADING:
            await asyncio.sleep(LOOK_S)
    finally:
        imds.close()
    if said not in (None, READY):
        raise Misconfigured(str(said))


def _isolation(served: ServedModel, offering: Offering, users: dict[str, int], *, must: bool) -> Isolation:
    """How a model's version is kept apart from those beside it. users: of these and of those before, by version.

    must: it runs as a user of its own, or not at all. Errors: Misconfigured.
    """
    memory_gib = None if offering.instance_type.accelerator else served.model.memory_gib or None
    if os.geteuid() != 0:
        return Isolation(memory_gib)
    folder, packages = Path(served.backend.folder), served.backend.packages
    has_own = bool(served.version) and folder.name == served.version
    file = Path(served.backend.target.rpartition(":")[0])
    code = folder.parent if has_own else folder if served.backend.folder else file
    apart = packages and not (has_own and Path(packages).is_relative_to(folder))
    closed = unreadable_by_others(needed_folders([code, *((Path(packages),) if apart else ())]))
    if closed is None:
        key = f"{served.name} {served.version}"
        users[key] = user_of(folder) if has_own else users.get(key) or user_of_installed(key, users.values())
        return Isolation(memory_gib, users[key])
    if must:
        raise Misconfigured(f"{served.name} would run as root: others cannot read {closed}, which it needs")
    log.warning("%s runs as root, and not as a user of its own: others cannot read %s", served.name, closed)
    return Isolation(memory_gib)


def _config(identity: Identity) -> AgentConfig:
    return AgentConfig(
        instance=identity.instance,
        role=Role.SERVING,
        host=identity.host,
        epoch=time.time_ns(),
        encrypted=not is_loopback(identity.host),
        zone=identity.zone,
    )


def _telemetry(spec: AgentSpec, identity: Identity) -> TelemetrySender | None:
    return open_telemetry(
        spec.telemetry,
        process="mark-agent",
        namespace=identity.tags[SERVICE],
        instance=identity.instance,
        headers={},  # model code runs here, and a key is none of its business
    )


def _cpu_meter(offering: Offering, environment: Mapping[str, str], now: Callable[[], float]) -> CpuMeter | None:
    """The meter of a burstable machine of the agent's own; None where the start names no CPU times."""
    burst, file = offering.instance_type.credits, environment.get(CPU_TIMES)
    if burst is None or not file:
        return None
    read = partial(busy_vcpu_s, Path(file))
    try:
        read()
    except (OSError, ValueError, IndexError) as error:
        log.warning("the machine's CPU times cannot be read, its credits are not known: %s", failure_words(error))
        return None
    return CpuMeter(burst, busy_vcpu_s=read, now=now)


async def _watch_loop(loaded: asyncio.Event) -> None:
    """End the process where its event loop stands for long, as when a model computes and lets no thread run.

    The log then has what each thread was doing. Loading a model may take as long as it takes.
    """
    await loaded.wait()
    while True:
        faulthandler.dump_traceback_later(STANDS_S, exit=True)
        await asyncio.sleep(LOOK_S)


class _Clock:
    """The service's clock, as it was when it was last asked for."""

    def __init__(self, store: AgentStore) -> None:
        self._store = store
        self._anchor = ClockAnchor()

    async def refresh(self) -> None:
        """Ask the store."""
        self._anchor = await self._store.clock()

    def now(self) -> float:
        """Service time."""
        return self._anchor.service_time(steady_time())

    def speed(self) -> float:
        """Its speed against the wall's."""
        return self._anchor.speed_at(steady_time())

    def wall_until(self, service: float) -> float:
        """Real seconds until it shows `service`."""
        return self._anchor.wall_time(service) - steady_time()

    async def reach(self, service: float) -> None:
        """Wait until it shows `service`."""
        while (left_s := self.wall_until(service)) > 0:
            await asyncio.sleep(min(left_s, LONGEST_WAIT_S))
            with suppress(RetryLater):
                await self.refresh()


class _Booting:
    """A backend that has not started before the machine's boot is over."""

    def __init__(self, backend: Backend, clock: _Clock, booted_at: float) -> None:
        self._backend, self._clock, self._booted_at = backend, clock, booted_at
        self.infer, self.close = backend.infer, backend.close
        if isinstance(backend, VariantBackend):
            self.infer_variant = backend.infer_variant
        if isinstance(backend, ReplacingBackend):
            self.replace_hung = backend.replace_hung
        if isinstance(backend, StreamingBackend):
            self.stream = backend.stream
        self.loaded = asyncio.Event()

    async def start(self) -> None:
        """Load, then wait for the boot's end."""
        await self._backend.start()
        self.loaded.set()
        await self._clock.reach(self._booted_at)


if __name__ == "__main__":
    exit_after(run)
