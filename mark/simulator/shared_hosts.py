"""Instances that several models of a service share, in virtual time: rented, loaded, drained and billed.

They are instances of a simulated cloud like any other. What they hold is decided by `controller/sharing.py`, each
hour and when one is lost. A model is loaded where its tenancy begins, and takes requests once it is; it is taken
away when its last request there is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mark.catalog.billing import bill_instances, bill_running
from mark.cloudmodel.world import World
from mark.controller.sharing import (
    DAY_UNITS,
    LOAD_S,
    PACK_EVERY_S,
    Sharer,
    share_instances,
    shared_offering,
)
from mark.domain.billing.costs import BillLine, FleetUsage
from mark.domain.billing.footprint import Footprint
from mark.domain.demand import Demand
from mark.domain.fleet import Instance
from mark.domain.offering import Offering
from mark.domain.orders import Drain, Launch, LaunchRefused
from mark.planner.packing import Host, Tenant
from mark.simulator.cloud import SimulatedCloud
from mark.simulator.engine.host_plane import HostPlane
from mark.simulator.engine.shared_plane import SharedPlane
from mark.simulator.faults import FaultScript

SOON_S = 60.0
"""While instances boot, and after a refused launch, it is decided anew after so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFleet:
    """The shared instances of a run: their use, and how many there were."""

    usage: FleetUsage
    #: By name, at list price.
    offerings: dict[str, Offering]
    #: Rented, in the mean over time.
    instances: float
    #: Whether what runs beside an instance (disk, address) is billed; no where its price contains that.
    overhead: bool = True

    def bill(self, footprint: Footprint) -> tuple[BillLine, ...]:
        """Their lines of a bill."""
        prices = {name: offering.usd_per_hour for name, offering in self.offerings.items()}
        running = bill_running(footprint, self.usage.running_s) if self.overhead else ()
        return (*bill_instances(self.usage.usages, prices), *running)


class SharedHosts:
    """The shared instances of a service's replay.

    sharers: its models, in the order of the plane's engines; none where they share nothing. history: the load of
    each until an instant.
    """

    def __init__(
        self,
        plane: SharedPlane,
        sharers: Sequence[Sharer],
        *,
        history: Callable[[int, float, int], Demand],
        world: World,
        faults: FaultScript,
        seed: int,
        end_s: float,
    ) -> None:
        self._sharers = sharers
        self._numbers = {sharer.model.name: number for number, sharer in enumerate(sharers)}
        self._history = history
        self._start_s, self._end_s = plane.now, end_s
        self._plane = HostPlane(plane, [sharer.model.redispatch for sharer in sharers])
        self._offerings = {item.name: item for sharer in sharers for item in sharer.offerings}
        self._cloud = SimulatedCloud(
            engine=self._plane,
            offerings=self._offerings,
            world=world,
            faults=faults,
            seed=seed,
            start_at=plane.now,
            redispatch=True,
        )
        #: What each instance is to hold, by its id.
        self._wanted: dict[str, tuple[Tenant, ...]] = {}
        #: When a model that is being loaded is there, by instance and number.
        self._loaded_at: dict[tuple[str, int], float] = {}
        self._refused_until: dict[str, float] = {}
        self._next_pack = plane.now + PACK_EVERY_S if sharers else end_s
        self._orders = 0

    def begin(self) -> None:
        """The instances of the first decision are there when the run starts."""
        if not self._sharers:
            return
        self._cloud.prewarmed = True
        self._decide()
        self._cloud.prewarmed = False

    def next_at(self) -> float:
        """When something happens next."""
        return min(self._next_pack, self._cloud.next_at(), *self._loaded_at.values(), self._end_s)

    def reach(self, now: float) -> None:
        """Let happen what is due by now."""
        was_lost = self._cloud.fire(now)
        if (was_lost or now >= self._next_pack) and now < self._end_s:
            self._decide()
        self._place()

    def end(self) -> SharedFleet:
        """Bill what still runs to the end."""
        self._cloud.close(self._end_s)
        seconds = sum(usage.ended_at - usage.started_at for usage in self._cloud.usages)
        return SharedFleet(
            usage=FleetUsage(
                usages=tuple(self._cloud.usages), asleep_s=self._cloud.asleep_s, running_s=self._cloud.running_s
            ),
            offerings=self._offerings,
            instances=seconds / (self._end_s - self._start_s),
        )

    def planned_rps(self, number: int) -> float:
        """Capacity that a model is planned to have on shared instances, requests/s."""
        if not self._sharers:
            return 0.0
        name = self._sharers[number].model.name
        return sum(one.capacity_rps for held in self._wanted.values() for one in held if one.model == name)

    def _decide(self) -> None:
        """Order what the decision of now lacks, and drain what it no longer holds once nothing boots."""
        now = self._plane.now
        for fact in self._cloud.drain_facts():
            if isinstance(fact, LaunchRefused):
                self._refused_until[fact.offering] = now + SOON_S
        staying = {item.id: item for item in self._cloud.observe() if item.stays}
        self._wanted = {name: held for name, held in self._wanted.items() if name in staying}
        packing = share_instances(
            self._sharers,
            [self._history(number, now, DAY_UNITS) for number in range(len(self._sharers))],
            there=[
                Host(offering=item.offering, tenants=self._wanted.get(item.id, ()), name=item.id)
                for item in staying.values()
            ],
            refused=[name for name, until in self._refused_until.items() if until > now],
        )
        kept = {host.name: host.tenants for host in packing.hosts if host.name}
        self._wanted |= kept
        for host in packing.hosts:
            if not host.name:
                self._launch(host)
        is_booting = any(name not in self._cloud.slots() for name in self._wanted)
        surplus = tuple(name for name in staying if name not in kept)
        if surplus and not is_booting:
            self._orders += 1
            self._cloud.submit(Drain(token=f"s{self._orders}", reason="no longer shared", instances=surplus))
            for name in surplus:
                self._wanted.pop(name, None)
        soon = is_booting or any(until > now for until in self._refused_until.values())
        self._next_pack = now + (SOON_S if soon else PACK_EVERY_S)
        self._place()

    def _launch(self, host: Host) -> None:
        self._orders += 1
        token = f"s{self._orders}"
        self._cloud.submit(Launch(token=token, reason="shared", offering=host.offering, count=1))
        for item in self._cloud.observe():
            if item.token == token:
                self._wanted[item.id] = host.tenants

    def _place(self) -> None:
        """Load what is wanted where it is not, and take away what is not wanted any more."""
        now = self._plane.now
        instances: dict[str, Instance] = {item.id: item for item in self._cloud.observe()}
        slots = self._cloud.slots()
        staying = {name: device for name, device in slots.items() if instances[name].stays}
        all_wanted = {
            name: {self._numbers[tenant.model] for tenant in self._wanted.get(name, ())} for name in staying
        }
        self._loaded_at = {key: at for key, at in self._loaded_at.items() if key[1] in all_wanted.get(key[0], ())}
        for name, device in staying.items():
            there, wanted = self._plane.tenants(device), all_wanted[name]
            first = not there and not any(key[0] == name for key in self._loaded_at)
            for number in sorted(wanted - there):
                # what an instance boots with is loaded in that time
                at = self._loaded_at.setdefault((name, number), now if first else now + LOAD_S)
                if at <= now:
                    del self._loaded_at[name, number]
                    sharer = self._sharers[number]
                    found = next(item for item in sharer.offerings if item.name == instances[name].offering)
                    offering = shared_offering(found, sharer.slo)
                    assert offering is not None, "it would not have been placed"
                    self._plane.place(device, number, offering)
            for number in there & wanted:
                self._plane.keep(device, number)
            for number in there - wanted:
                self._plane.evict(device, number)
