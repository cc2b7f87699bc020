"""Instances that several models of a service share, in virtual time: rented, loaded, drained and billed.

They are instances of a simulated cloud like any other. What they hold is decided by `controller/sharing.py`, each
hour and when one is lost. A model is loaded where its tenancy begins, once there is memory for it, and takes
requests when it is loaded. It is taken away when its last request there is answered. One that Lambda cannot answer
in time is first loaded where it moves to; where it moves to no shared instance, its own fleet gets time to boot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mark.catalog.billing import bill_instances, bill_running
from mark.cloudmodel.world import World
from mark.controller.sharing import (
    HISTORY_UNITS,
    LOAD_S,
    PACK_EVERY_S,
    Sharer,
    memory_gib,
    share_instances,
    share_rps,
    shared_offering,
    taken_rps,
    within_cap,
)
from mark.domain.billing.costs import BillLine, FleetUsage
from mark.domain.billing.footprint import Footprint
from mark.domain.demand import Demand
from mark.domain.fleet import Instance
from mark.domain.offering import Offering
from mark.domain.orders import Drain, Launch, LaunchRefused
from mark.planner.packing import Host, Tenant
from mark.planner.packing_kernels import NOTHING
from mark.simulator.cloud import SimulatedCloud
from mark.simulator.engine.host_plane import HostPlane
from mark.simulator.engine.shared_plane import SharedPlane
from mark.simulator.faults import FaultScript
from mark.simulator.service_cap import CappedService

SOON_S = 60.0
"""While instances boot, and after a refused launch, it is decided anew after so long."""
HAND_OVER_S = 120.0
"""Beside the time to boot, for the plan of a model's own fleet: a tick, and some minutes of load to plan by."""


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

    @classmethod
    def of(
        cls, cloud: SimulatedCloud, offerings: dict[str, Offering], *, duration_s: float, overhead: bool = True
    ) -> SharedFleet:
        """The instances that a closed cloud rented of these in so many seconds."""
        seconds = sum(usage.ended_at - usage.started_at for usage in cloud.usages)
        usage = FleetUsage(usages=tuple(cloud.usages), asleep_s=cloud.asleep_s, running_s=cloud.running_s)
        return cls(usage=usage, offerings=offerings, instances=seconds / duration_s, overhead=overhead)

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
        cap: CappedService | None = None,
    ) -> None:
        self._sharers, self._cap = sharers, cap
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
        if cap is not None:
            cap.watch(self._cloud, self._offerings)
        #: What each instance is to hold, by its id.
        self._wanted: dict[str, tuple[Tenant, ...]] = {}
        #: When a model that is being loaded is there, by instance and number.
        self._loaded_at: dict[tuple[str, int], float] = {}
        #: When a model is taken away that gets a fleet of its own, by instance and number.
        self._leaves_at: dict[tuple[str, int], float] = {}
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
        return min(self._next_pack, self._cloud.next_at(), *self._due, self._end_s)

    @property
    def _due(self) -> Iterable[float]:
        return (*self._loaded_at.values(), *self._leaves_at.values())

    def reach(self, now: float) -> None:
        """Let happen what is due by now."""
        was_lost = self._cloud.fire(now)
        is_cut = self._cap is not None and self._cap.divider.shared_count < sum(map(bool, self._wanted.values()))
        if (was_lost or is_cut or now >= self._next_pack) and now < self._end_s:
            self._decide()
        self._place()

    def end(self) -> SharedFleet:
        """Bill what still runs to the end."""
        self._cloud.close(self._end_s)
        return SharedFleet.of(self._cloud, self._offerings, duration_s=self._end_s - self._start_s)

    def tenants(self) -> dict[str, tuple[str, ...]]:
        """Models that take requests on each instance that serves, by its id."""
        return {
            name: tuple(self._sharers[number].model.name for number in sorted(self._plane.tenants(slot)))
            for name, slot in self._cloud.slots().items()
        }

    def planned_rps(self, number: int) -> float:
        """Requests/s of a model that shared instances take when all tenants fill them as planned."""
        if not self._sharers:
            return 0.0
        return sum(self._share_rps(name, number) for name in self._wanted)

    def shared_rps(self, number: int) -> float | None:
        """Requests/s that shared instances took of a model in the last minute; None where none is to hold it.

        When the run starts, it is what they would have taken of the load before.
        """
        planned_rps = self.planned_rps(number)
        if not planned_rps:
            return None
        if self._plane.now == self._start_s:
            return taken_rps(self._history(number, self._start_s, 1), planned_rps)
        return self._plane.shared_rps(number)

    def _share_rps(self, name: str, number: int) -> float:
        model = self._sharers[number].model.name
        return sum(share_rps(one) for one in self._wanted.get(name, ()) if one.model == model)

    def _decide(self) -> None:
        """Order what the decision of now lacks, and drain what it no longer holds once nothing boots."""
        now = self._plane.now
        for fact in self._cloud.drain_facts():
            if isinstance(fact, LaunchRefused):
                self._refused_until[fact.offering] = now + SOON_S
        staying = {item.id: item for item in self._cloud.observe() if item.stays}
        self._wanted = {name: held for name, held in self._wanted.items() if name in staying}
        histories = [self._history(number, now, HISTORY_UNITS) for number in range(len(self._sharers))]
        packing = share_instances(
            self._sharers,
            histories,
            there=[
                Host(offering=item.offering, tenants=self._wanted.get(item.id, ()), name=item.id)
                for item in staying.values()
            ],
            refused=[name for name, until in self._refused_until.items() if until > now],
        )
        if self._cap is not None:
            taken = self._cap.taken(self._cloud)
            packing = within_cap(packing, self._sharers, histories, self._cap.divider, taken)
        kept = {host.name: host.tenants for host in packing.hosts if host.name}
        self._wanted |= kept
        for host in packing.hosts:
            if not host.name:
                self._launch(host)
        self._place()
        is_booting = any(name not in self._cloud.slots() for name in self._wanted)
        surplus = tuple(name for name in staying if name not in kept)
        if surplus and not is_booting:
            surplus = self._give_up(surplus)
        soon = is_booting or surplus or any(until > now for until in self._refused_until.values())
        self._next_pack = now + (min(SOON_S, PACK_EVERY_S) if soon else PACK_EVERY_S)

    def _give_up(self, names: Sequence[str]) -> tuple[str, ...]:
        """Drain these instances but those, which it returns, where a model is still needed that has no backup."""
        self._wanted |= dict.fromkeys(names, ())
        self._place()
        slots = {name: slot for name, slot in self._cloud.slots().items() if name in names}
        needed = tuple(
            name
            for name, slot in slots.items()
            if any(self._plane.accepts(slot, number) for number in self._plane.tenants(slot))
        )
        empty = tuple(name for name in names if name not in needed)
        if empty:
            self._orders += 1
            self._cloud.submit(Drain(token=f"s{self._orders}", reason="no longer shared", instances=empty))
        for name in empty:
            del self._wanted[name]
        return needed

    @property
    def _is_moving(self) -> bool:
        """Something boots, or a model is not yet where it is wanted, or still where it is not."""
        return bool(self._leaves_at) or any(
            self._is_awaited(name, number) for name in self._wanted for number in self._numbers_on(name)
        )

    def _is_awaited(self, name: str, number: int) -> bool:
        """True where a model is not yet on an instance where it is wanted."""
        slot = self._cloud.slots().get(name)
        return slot is None or number not in self._plane.tenants(slot)

    def _numbers_on(self, name: str) -> list[int]:
        """Models that are wanted on an instance."""
        return sorted(self._numbers[tenant.model] for tenant in self._wanted.get(name, ()))

    def _launch(self, host: Host) -> None:
        self._orders += 1
        token = f"s{self._orders}"
        self._cloud.submit(Launch(token=token, reason="shared", offering=host.offering, count=1))
        for item in self._cloud.observe():
            if item.token == token:
                self._wanted[item.id] = host.tenants

    def _place(self) -> None:
        """Load what is wanted where it is not, and take away what is not wanted any more."""
        slots = self._cloud.slots()
        staying = {item.id: item for item in self._cloud.observe() if item.stays and item.id in slots}
        self._loaded_at = {
            (name, number): at
            for (name, number), at in self._loaded_at.items()
            if name in staying and number in self._numbers_on(name)
        }
        self._leaves_at = {
            (name, number): at
            for (name, number), at in self._leaves_at.items()
            if name in staying and number not in self._numbers_on(name)
        }
        for name, item in staying.items():
            self._load(item, slots[name])
        for name in staying:
            self._take_away(name, slots[name])

    def _load(self, item: Instance, device: int) -> None:
        now, there = self._plane.now, self._plane.tenants(device)
        wanted = self._numbers_on(item.id)
        loading = {number for name, number in self._loaded_at if name == item.id}
        first = not there and not loading
        for number in wanted:
            if number in there:
                self._plane.keep(device, number, self._share_rps(item.id, number))
                continue
            if number not in loading and not self._has_memory(item, there | loading, number):
                continue
            loading.add(number)
            # what an instance boots with is loaded in that time
            if self._loaded_at.setdefault((item.id, number), now if first else now + LOAD_S) <= now:
                del self._loaded_at[item.id, number]
                sharer = self._sharers[number]
                found = next(one for one in sharer.offerings if one.name == item.offering)
                offering = shared_offering(found, sharer.slo)
                assert offering is not None, "it would not have been placed"
                self._plane.place(device, number, offering, self._share_rps(item.id, number))

    def _has_memory(self, item: Instance, held: frozenset[int], number: int) -> bool:
        """True where an instance that holds these models has memory for one more."""
        gib = sum(self._sharers[one].model.memory_gib for one in {*held, number})
        return gib <= memory_gib(self._offerings[item.offering].instance_type) + NOTHING

    def _take_away(self, name: str, device: int) -> None:
        for number in self._plane.tenants(device).difference(self._numbers_on(name)):
            moves = any(
                number in self._numbers_on(other) and self._is_awaited(other, number) for other in self._wanted
            )
            is_free = self._sharers[number].has_backup or not self._plane.accepts(device, number)
            if is_free or self._is_stuck or not (moves or self._is_left(name, number)):
                self._leaves_at.pop((name, number), None)
                self._plane.evict(device, number)

    def _is_left(self, name: str, number: int) -> bool:
        """True where a model that no shared instance is to hold still has time for its own fleet to boot."""
        if any(number in self._numbers_on(other) for other in self._wanted):
            return False
        if (name, number) not in self._leaves_at:
            self._plane.hand_over(self._cloud.slots()[name], number)
        boot_s = max(item.boot_s for item in self._sharers[number].offerings)
        return self._plane.now < self._leaves_at.setdefault((name, number), self._plane.now + boot_s + HAND_OVER_S)

    @property
    def _is_stuck(self) -> bool:
        """All that boots is there, nothing is being loaded, and yet a model is not where it is wanted."""
        return not self._due and all(name in self._cloud.slots() for name in self._wanted) and self._is_moving
