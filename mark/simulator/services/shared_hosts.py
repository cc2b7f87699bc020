"""Instances that several models of a service share, in virtual time: rented, loaded, drained and billed.

They are instances of a simulated cloud like any other. What they hold is decided by
`host_controller.py`. A model takes requests once it is loaded, and is gone when its last request there
is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from mark.catalog.billing import bill_instances, bill_running
from mark.cloudmodel.world import World
from mark.controller.hosts.host_controller import HostController
from mark.controller.hosts.placement_journal import PlacementDecision, PlacementJournal
from mark.controller.hosts.sharing import LOAD_S, Sharer, within_cap
from mark.controller.runner import no_front
from mark.domain.billing.costs import BillLine, FleetUsage
from mark.domain.billing.footprint import Footprint
from mark.domain.billing.shared_rent import RentShares, divide_rent
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments
from mark.domain.demand import Demand
from mark.domain.fleet.host_spec import SHARED, TenantSpec
from mark.domain.front import Front
from mark.domain.offerings.offering import Offering, as_tenant
from mark.planner.shared.packing import Packing
from mark.simulator.cloud import SimulatedCloud
from mark.simulator.engine.host_plane import HostPlane
from mark.simulator.engine.shared_plane import SharedPlane
from mark.simulator.faults import FaultScript
from mark.simulator.services.account_quotas import AccountQuotas
from mark.simulator.services.service_cap import CappedService


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
    #: Who shared them; none where the instances are nodes with pods.
    decisions: tuple[PlacementDecision, ...] = ()
    #: Rent of the device time that each model took; empty where the instances are nodes with pods.
    used_usd: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, cloud: SimulatedCloud, offerings: dict[str, Offering], *, duration_s: float, overhead: bool = True
    ) -> SharedFleet:
        """The instances that a closed cloud rented of these in so many seconds."""
        seconds = sum(usage.ended_at - usage.started_at for usage in cloud.usages)
        usage = FleetUsage(usages=tuple(cloud.usages), asleep_s=cloud.asleep_s, running_s=cloud.running_s)
        return cls(usage=usage, offerings=offerings, instances=seconds / duration_s, overhead=overhead)

    @property
    def rent(self) -> RentShares:
        """Who pays what of their rent."""
        return divide_rent(sum(line.usd for line in self._rents()), self.used_usd)

    def _rents(self) -> tuple[BillLine, ...]:
        return bill_instances(self.usage.usages, self.usd_per_hour)

    def bill(self, footprint: Footprint) -> tuple[BillLine, ...]:
        """Their lines of a bill."""
        running = bill_running(footprint, self.usage.running_s) if self.overhead else ()
        return (*self._rents(), *running)

    @property
    def usd_per_hour(self) -> dict[str, float]:
        """List price of an instance by offering."""
        return {name: offering.usd_per_hour for name, offering in self.offerings.items()}


class SharedHosts:
    """The shared instances of a service's replay.

    sharers: its models, in the order of the plane's engines; none where they share nothing. history: the load of
    each until an instant. journal: where decisions are written, None for nowhere. front: where requests come in.
    owned: commitments that what stands around the fleets leaves. quotas: the account's, shared with the models'
    own fleets; its own where none are given.
    """

    def __init__(  # noqa: PLR0913 it is given every part of a replay
        self,
        plane: SharedPlane,
        sharers: Sequence[Sharer],
        *,
        history: Callable[[int, float, int], Demand],
        world: World,
        faults: FaultScript,
        seed: int,
        end_s: float,
        journal: PlacementJournal | None = None,
        cap: CappedService | None = None,
        quotas: AccountQuotas | None = None,
        front: Callable[[], Front | None] = no_front,
        owned: Commitments = NO_COMMITMENTS,
    ) -> None:
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
        self._cloud.reserved = lambda: owned.capacity_reservations
        self._sharers, self._cap = sharers, cap
        if cap is not None:
            cap.watch(self._cloud, self._offerings)
        quotas = quotas or AccountQuotas(world.quotas, self._offerings)
        quotas.watch(self._cloud)
        shared = quotas.shared
        self._decisions = _Kept(journal)
        self._held = _Held(self._plane, self._cloud, sharers)
        self._models = [sharer.model.name for sharer in sharers]
        self._controller = HostController(
            sharers,
            cloud=self._cloud,
            hosts=self._held,
            history=history,
            start_at=plane.now,
            journal=self._decisions,
            within_cap=self._within_cap,
            zones=tuple(filter(None, world.zones)),
            front=front,
            commitments=lambda: owned,
            quotas=lambda: shared.left_for(SHARED, world.quotas),
            took=partial(shared.note, SHARED),
        )

    def begin(self) -> None:
        """The instances of the first decision are there when the run starts."""
        if not self._models:
            return
        self._cloud.prewarmed = True
        self._controller.decide(self._plane.now)
        self._cloud.prewarmed = False

    def next_at(self) -> float:
        """When something happens next."""
        if not self._models:
            return self._end_s
        return min(self._controller.next_at, self._cloud.next_at(), self._held.next_at(), self._end_s)

    def reach(self, now: float) -> None:
        """Let happen what is due by now."""
        is_due = self._cloud.next_at() <= now or not self.is_settled or self._controller.next_at <= now
        was_lost = self._cloud.fire(now) or self._is_cut
        if now < self._end_s and self._models and (is_due or was_lost):
            self._controller.tick(now, was_lost=was_lost)

    @property
    def _is_cut(self) -> bool:
        """True where the cap leaves fewer shared instances than there are."""
        wanted = sum(map(bool, self._controller.placement.values()))
        return self._cap is not None and self._cap.divider.shared_count < wanted

    def _within_cap(self, packing: Packing, histories: Sequence[Demand]) -> Packing:
        if self._cap is None:
            return packing
        return within_cap(packing, self._sharers, histories, self._cap.divider, self._cap.taken(self._cloud))

    @property
    def is_settled(self) -> bool:
        """True where nothing is to be placed until something happens."""
        return self._controller.is_settled

    def end(self) -> SharedFleet:
        """Bill what still runs to the end."""
        self._cloud.close(self._end_s)
        fleet = SharedFleet.of(self._cloud, self._offerings, duration_s=self._end_s - self._start_s)
        used_usd = {name: self._plane.used_usd(number) for number, name in enumerate(self._models)}
        return replace(fleet, decisions=tuple(self._decisions), used_usd=used_usd)

    def running(self) -> Iterator[tuple[str, float]]:
        """Instances that are billed now: the offering of each, and its list price, USD an hour."""
        for name, count in self._cloud.observe().awake.items():
            yield from [(name, self._offerings[name].usd_per_hour)] * count

    def tenants(self) -> dict[str, tuple[str, ...]]:
        """Models that take requests on each instance that serves, by its id."""
        return {
            name: tuple(self._models[number] for number in sorted(self._plane.tenants(slot)))
            for name, slot in self._cloud.slots().items()
        }

    @property
    def pulls(self) -> dict[str, float]:
        """What they pull that serve, by zone, USD an hour."""
        return self._controller.pulls

    def planned_rps(self, number: int) -> float:
        """Requests/s of a model that shared instances take when all tenants fill them as planned."""
        return self._controller.planned_rps(self._models[number]) if self._models else 0.0

    def shared_rps(self, number: int) -> float | None:
        """Requests/s that shared instances took of a model in the last minute; None where none is to hold it."""
        return self._controller.shared_rps(self._models[number], self._plane.now) if self._models else None

    def is_booting(self, number: int) -> bool:
        """True while an instance boots that is to hold a model."""
        return bool(self._models) and self._controller.is_booting(self._models[number], self._plane.now)


class _Kept(list[PlacementDecision]):
    """Decisions so far, each written down where there is a journal."""

    def __init__(self, journal: PlacementJournal | None) -> None:
        super().__init__()
        self._journal = journal

    def append(self, decision: PlacementDecision) -> None:
        """Take in the next one."""
        super().append(decision)
        if self._journal is not None:
            self._journal.append(decision)


class _Held:
    """What instances hold: the Hosts port over the plane. Loading takes LOAD_S, but while an instance boots."""

    def __init__(self, plane: HostPlane, cloud: SimulatedCloud, sharers: Sequence[Sharer]) -> None:
        self._plane, self._cloud = plane, cloud
        self._models = [sharer.model.name for sharer in sharers]
        self._numbers = {name: number for number, name in enumerate(self._models)}
        self._offerings = [{item.name: item for item in sharer.offerings} for sharer in sharers]
        #: When a model that is being loaded is there, by instance and model.
        self._loaded_at: dict[tuple[str, str], float] = {}

    def next_at(self) -> float:
        """When the next model is loaded; none is where the instance is to go."""
        if self._loaded_at:
            staying = {item.id for item in self._cloud.observe() if item.stays}
            self._loaded_at = {key: at for key, at in self._loaded_at.items() if key[0] in staying}
        return min(self._loaded_at.values(), default=float("inf"))

    def loaded(self, instance: str) -> frozenset[str]:
        """Models that are loaded there."""
        slot = self._cloud.slots().get(instance)
        return (
            frozenset(self._models[number] for number in self._plane.tenants(slot))
            if slot is not None
            else frozenset()
        )

    def loading(self, instance: str) -> frozenset[str]:
        """Models that are on their way there."""
        return frozenset(model for name, model in self._loaded_at if name == instance)

    def accepts(self, instance: str, model: str) -> bool:
        """True where it takes new requests there."""
        return self._plane.accepts(self._cloud.slots()[instance], self._numbers[model])

    def shared_rps(self, model: str) -> float:
        """Requests/s that shared instances took in the last minute."""
        return self._plane.shared_rps(self._numbers[model])

    def has_own(self, model: str) -> bool:
        """True where an instance of its own takes requests."""
        return self._plane.has_own(self._numbers[model])

    def hold(self, instance: str, tenants: Sequence[TenantSpec]) -> None:
        """Have it hold these models."""
        device, here, now = self._cloud.slots()[instance], self.loaded(instance), self._plane.now
        wanted = {tenant.model for tenant in tenants}
        self._loaded_at = {
            (name, model): at
            for (name, model), at in self._loaded_at.items()
            if name != instance or model in wanted
        }
        is_booting = not here and not self.loading(instance)
        for tenant in tenants:
            number = self._numbers[tenant.model]
            if tenant.model in here:
                self._plane.keep(device, number, tenant.share_rps)
                continue
            key = instance, tenant.model
            if self._loaded_at.setdefault(key, now if is_booting else now + LOAD_S) <= now:
                del self._loaded_at[key]
                offering = as_tenant(self._offerings[number][tenant.offering], tenant.max_batch)
                self._plane.place(device, number, offering, tenant.share_rps)
        for number in sorted(self._numbers[model] for model in here - wanted):
            self._plane.evict(device, number)
