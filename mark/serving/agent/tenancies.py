"""Models of a shared instance as the store places them: loaded, kept running, drained and unloaded.

Each model is a matter of its own: one that does not load, hangs or fails again and again is announced as broken
and started anew, later each time, while its neighbours serve on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from mark.dispatch.instance.hung import loads_within_s
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.fleet.host_spec import HostSpec, TenantSpec
from mark.domain.fleet.member import MemberState
from mark.serving.agent.device import Device
from mark.serving.agent.host import Host
from mark.serving.agent.tenant import Tenant

log = logging.getLogger("mark.agent")

AGAIN_S = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Waits before a model that broke is started again; the last one counts for all further ones."""
STEADY_S = 60.0
"""A model that served for so long begins anew with the shortest wait."""

MakeTenant = Callable[[TenantSpec, Device], Awaitable[Tenant]]
"""Makes a placed model, which is not loaded. Errors: MarkError."""


Key = tuple[str, str, str, int]
"""Model, version, offering and longest batch: what no other tenant here has."""


def _key(placed: TenantSpec) -> Key:
    return placed.model, placed.version, placed.offering, placed.max_batch


class Tenancies:
    """The models that an instance is told to hold."""

    def __init__(self, host: Host, make: MakeTenant) -> None:
        self._host, self._make = host, make
        self._device = Device()
        self._held: dict[Key, _Tenancy] = {}
        #: How often a model's version was loaded here beside or after another of its kind.
        self._generations = Counter[tuple[str, str]]()

    async def follow(self) -> None:
        """Read what is to be here, load what is new and begin to drain what is not wanted any more.

        A store that says nothing has lost its data, or nobody has said anything yet: what is here stays.
        """
        spec = await self._host.link.host(self._host.config.instance)
        if spec is not None:
            self.hold(spec)

    def hold(self, spec: HostSpec) -> None:
        """Hold these models. One that is wanted otherwise leaves once the one that follows it serves.

        Without memory for both it leaves first: while a version is rolled out, its own instances answer meanwhile.
        One model at a time is here twice: there is memory for one more.
        """
        wanted = {_key(one): one for one in spec.tenants}
        self._held = {key: held for key, held in self._held.items() if not held.task.done()}
        for key, placed in wanted.items():
            if key in self._held:
                self._held[key].give_share(placed.share_rps)
            elif self._has_memory(placed):
                self._held[key] = self._begun(placed)
        newest = {key[0]: key for key, held in self._held.items() if held.is_serving}
        for key, held in self._held.items():
            if key not in wanted and not (newest.get(key[0]) == key and self._is_awaited(key, wanted)):
                held.leaving.set()

    def _begun(self, placed: TenantSpec) -> _Tenancy:
        """A new one: its name is another's while that is still here."""
        kind = placed.model, placed.version
        if any(key[:2] == kind for key in self._held):
            self._generations[kind] += 1
        return _Tenancy(self._host, self._make, self._device, placed, self._generations[kind])

    def _has_memory(self, placed: TenantSpec) -> bool:
        """True for a model that is not here, or while none is here twice; one that broke and waits takes none."""
        if all(placed.model != model for model, *_ in self._held):
            return True
        there = Counter(model for (model, *_), held in self._held.items() if not held.is_resting)
        return placed.fits_beside and max(there.values(), default=0) < 2

    def _is_awaited(self, key: Key, wanted: Mapping[Key, TenantSpec]) -> bool:
        """True where this one's model is wanted otherwise and does not serve so yet, and need not leave first."""
        others = [other for other in wanted if other[0] == key[0]]
        return any(
            not self._held[other].is_serving if other in self._held else wanted[other].fits_beside
            for other in others
        )

    async def drain(self, stop: asyncio.Event) -> bool:
        """Let all models answer their queues and leave; False where that was stopped."""
        self.hold(HostSpec())
        stopped = asyncio.ensure_future(stop.wait())
        try:
            left = {held.task for held in self._held.values()}
            while left and not stopped.done():
                _, pending = await asyncio.wait({*left, stopped}, return_when=asyncio.FIRST_COMPLETED)
                left &= pending
            return not left
        finally:
            stopped.cancel()

    async def close(self) -> None:
        """End all models at once. Batches that run are not answered."""
        tasks = [held.task for held in self._held.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Tenancy:
    """One model's time here. `leaving`: it is not wanted any more."""

    def __init__(self, host: Host, make: MakeTenant, device: Device, placed: TenantSpec, generation: int) -> None:
        self._host, self._make, self._device, self._placed = host, make, device, placed
        self._generation = generation
        self._about = {"model": placed.model}
        self._tenant: Tenant | None = None
        #: The one that may be in the store.
        self._announced: Tenant | None = None
        self._never = asyncio.Event()
        self.leaving = asyncio.Event()
        #: It broke, and is started again later.
        self.is_resting = False
        self.task = asyncio.ensure_future(self._run())

    @property
    def is_serving(self) -> bool:
        """True while the model takes requests."""
        return self._tenant is not None and self._tenant.is_ready

    def give_share(self, share_rps: float) -> None:
        """So many requests/s it takes from now on before the model's own instances are asked."""
        self._placed = replace(self._placed, share_rps=share_rps)
        if self._tenant is not None:
            self._tenant.share_rps = share_rps

    async def _run(self) -> None:
        failures = 0
        while not self.leaving.is_set():
            began_at = asyncio.get_running_loop().time()
            await self._serve()
            is_steady = asyncio.get_running_loop().time() - began_at > STEADY_S
            failures = 1 if is_steady else failures + 1
            self.is_resting = True
            await self._until_leaving(AGAIN_S[min(failures, len(AGAIN_S)) - 1])
            self.is_resting = False
        if self._announced is not None:
            await self._host.forget(self._announced)

    async def _serve(self) -> None:
        """Load the model and serve with it until it is to leave, or breaks."""
        try:
            tenant = self._tenant = await self._make(self._placed, self._device)
        except MarkError as error:
            words = "%s cannot be placed here: %s"
            log.error(words, self._placed.model, error, extra=self._about)  # noqa: TRY400 - no fault of ours
            return
        tenant.share_rps, tenant.generation = self._placed.share_rps, self._generation
        if self._announced is not None:
            self._host.broken.discard(self._announced)
        self._announced = tenant
        self._host.add(tenant)
        try:
            if await self._load(tenant) and await self._lasts(tenant):
                await self._host.drain(tenant, self._never)
                self._announced = None
                log.info("%s unloaded", tenant.name, extra=self._about)
        finally:
            self._host.remove(tenant)
            self._tenant = None
            if tenant.state is MemberState.BROKEN:
                self._host.broken.add(tenant)
            await tenant.close()

    async def _load(self, tenant: Tenant) -> bool:
        loading = asyncio.ensure_future(tenant.backend.start())
        within_s = loads_within_s(tenant.served.model.memory_gib)
        try:
            await self._first_of(loading, within_s)
            if self.leaving.is_set() and not loading.done():
                return False
            if not loading.done():
                raise Misconfigured(f"{tenant.name} has not loaded within {within_s:.0f} s: its process is ended")
            loading.result()
        except MarkError as error:
            log.error("%s", error, extra=self._about)  # noqa: TRY400 - the model's error, not ours
            await self._tell(tenant, MemberState.BROKEN)
            return False
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
        tenant.accept()
        await self._host.call_dependency(self._host.announce)
        log.info("%s loaded", tenant.name, extra=self._about)
        return True

    async def _lasts(self, tenant: Tenant) -> bool:
        """Wait for the end: False where the model broke before it was to leave."""
        broken = asyncio.ensure_future(tenant.core.broken.wait())
        await self._first_of(broken)
        is_broken = broken.done()
        broken.cancel()
        if is_broken:
            log.error("%s is broken and is started again", tenant.name, extra=self._about)
            await self._tell(tenant, MemberState.BROKEN)
        return not is_broken

    async def _tell(self, tenant: Tenant, state: MemberState) -> None:
        tenant.refuse(state)
        await self._host.call_dependency(self._host.announce)

    async def _first_of(self, other: asyncio.Future[Any], within_s: float | None = None) -> None:
        """Until `other` is done, or the model is to leave, or so long has passed."""
        leaving = asyncio.ensure_future(self.leaving.wait())
        try:
            await asyncio.wait({leaving, other}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()

    async def _until_leaving(self, seconds: float) -> None:
        if not self.leaving.is_set():
            leaving = asyncio.ensure_future(self.leaving.wait())
            await asyncio.wait({leaving}, timeout=seconds)
            leaving.cancel()
