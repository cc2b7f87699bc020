"""Instances that models of a service share, live: the driver of `host_controller.py` in real time.

What an instance is to hold is written into the store, where its agent reads it; what it holds, the agent
announces. Both are there for whoever takes over, with the journal and the instances that AWS lists: a term begins
with what the one before left. A launch is written down before it is sent, and waited for until AWS lists it.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from mark.aws.ec2.launch import UNLISTED_LIMIT_S
from mark.controller.hosts.host_controller import HostController
from mark.controller.hosts.placement_journal import (
    Decided,
    PlacementDecision,
    PlacementHeader,
    decision_line,
    placement_header_line,
)
from mark.controller.hosts.sharing import Sharer
from mark.controller.limits.quotas import no_new_quotas, takes_alone
from mark.controller.runner import no_front
from mark.domain.billing.shared_rent import device_usd
from mark.domain.billing.spending import SpendingLimit
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments
from mark.domain.demand import Demand
from mark.domain.fleet.host_spec import SHARED, HostSpec, TenantSpec
from mark.domain.fleet.instances import FleetView
from mark.domain.fleet.lease import Lease
from mark.domain.fleet.member import Member, MemberState
from mark.domain.fleet.orders import Fact, Launch, Order
from mark.domain.fleet.placement import Placement
from mark.domain.front import Front
from mark.domain.load.traffic import GatewayReport, ModelTraffic
from mark.domain.offerings.quota import Quotas
from mark.live.clock import ServiceClock
from mark.live.control.drivers.driver import rotate_if_long
from mark.live.control.drivers.shared_cap import SharedCap
from mark.live.control.observe_mode import LiveCloud
from mark.planner.shared.packing import Packing
from mark.steady_time import steady_time
from mark.store.journal import StoreJournal
from mark.store.published_status import (
    HOSTS,
    MODEL,
    PublishedHost,
    PublishedHosts,
    PublishedInstance,
    PublishedModel,
)
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

TICK_S = 5.0
"""Service seconds between two looks at the instances and at what they hold."""
LEAST_S = 0.25
"""Real seconds at least, under a fast clock."""
SERVES = (MemberState.READY, MemberState.DRAINING)


def _nothing() -> None:
    """Nobody wants to know."""


class LiveHosts:
    """The Hosts port over the store: what instances are told to hold, and what their agents announce."""

    def __init__(
        self, store: ServiceStore, versions: Callable[[str], str], shared_rps: Callable[[str], float]
    ) -> None:
        """versions: the version of a model that serves. shared_rps: what shared instances took of it lately."""
        self._store, self._versions, self.shared_rps = store, versions, shared_rps
        self._told: dict[str, HostSpec] = store.hosts()
        self._members: dict[str, dict[str, Member]] = {}
        self._alone: set[str] = set()
        #: Versions that serve, by model, as they were read since the last look.
        self._version_of: dict[str, str] = {}

    def look(self) -> None:
        """Read what the agents announce now, and what they are told: a store may have lost that."""
        self._told, self._members, self._alone = self._store.hosts(), {}, set()
        self._version_of = {}
        for member in self._store.members():
            if member.is_tenant:
                here = self._members.setdefault(member.instance, {})
                # one may be loaded beside another
                if member.model not in here or member.state is MemberState.READY:
                    here[member.model] = member
            elif member.state is MemberState.READY:
                self._alone.add(member.model)

    def members(self, instance: str) -> Mapping[str, Member]:
        """Models there, as announced."""
        return self._members.get(instance, {})

    @property
    def told(self) -> dict[str, tuple[TenantSpec, ...]]:
        """Models that instances were told to hold."""
        return {name: spec.tenants for name, spec in self._told.items()}

    def forget_gone(self, there: Sequence[str]) -> None:
        """Forget what instances were told that are gone."""
        for name in self._told.keys() - set(there):
            self._store.forget_host(name)
            del self._told[name]

    def loaded(self, instance: str) -> frozenset[str]:
        """Models that are loaded there."""
        return frozenset(name for name, one in self._members.get(instance, {}).items() if one.state in SERVES)

    def loading(self, instance: str) -> frozenset[str]:
        """Models that it was told to hold and that are not there yet; one that broke is waited for no more."""
        told = {one.model for one in self._told.get(instance, HostSpec()).tenants}
        members = self._members.get(instance, {})
        return frozenset(
            name for name in told if name not in members or members[name].state is MemberState.STARTING
        )

    def accepts(self, instance: str, model: str) -> bool:
        """True where it takes new requests there."""
        member = self._members.get(instance, {}).get(model)
        return member is not None and member.state is MemberState.READY

    def has_own(self, model: str) -> bool:
        """True where an instance of its own takes requests."""
        return model in self._alone

    def hold(self, instance: str, tenants: Sequence[TenantSpec]) -> None:
        """Have it hold these models, each in the version that serves."""
        spec = HostSpec(tenants=tuple(self._versioned(one) for one in tenants))
        if self._told.get(instance) != spec:
            self._store.put_host(instance, spec)
            self._told[instance] = spec

    def _versioned(self, tenant: TenantSpec) -> TenantSpec:
        if tenant.model not in self._version_of:
            self._version_of[tenant.model] = self._versions(tenant.model)
        return replace(tenant, version=self._version_of[tenant.model])

    def serving(self, instance: str) -> tuple[str, ...]:
        """Models that take requests there."""
        return tuple(sorted(name for name in self.loaded(instance) if self.accepts(instance, name)))


class DeviceTime:
    """Rent of the device time that models took on shared instances, between one look and the next.

    Agents announce running counters, each since its model was loaded. What is there at first is not counted: who
    acted before did. One that is new may be of a model that the store had lost, and has grown by no more than the
    time between two looks.
    """

    def __init__(self, members: Iterable[Member] = (), *, now: float) -> None:
        """now: seconds that only grow."""
        self._counted = {(member.instance, member.wire_key): member.busy_s for member in members}
        self._at = now

    def take(
        self, members: Iterable[tuple[Member, float]], there: Collection[str], now: float
    ) -> dict[str, float]:
        """USD by model since the last call. Each member comes with its instance's price, USD an hour.

        there: instances, also those of which no member is known just now.
        """
        known = {key: busy_s for key, busy_s in self._counted.items() if key[0] in there}
        found = defaultdict[str, float](float)
        for member, usd_per_hour in members:
            key = member.instance, member.wire_key
            least_s = known.get(key, max(0.0, member.busy_s - (now - self._at)))
            known[key] = member.busy_s
            if member.busy_s > least_s:
                found[member.model] += device_usd(member.busy_s - least_s, usd_per_hour)
        self._counted, self._at = known, now
        return dict(found)


class _ListedOnce:
    """A cloud that is listed once a look, and anew after an order. note: hears of a launch before it is sent."""

    def __init__(self, cloud: LiveCloud, note: Callable[[Launch], None]) -> None:
        self._cloud, self._note = cloud, note
        self._fleet: FleetView | None = None

    def look(self) -> None:
        self._fleet = None

    def observe(self) -> FleetView:
        if self._fleet is None:
            self._fleet = self._cloud.observe()
        return self._fleet

    def drain_facts(self) -> Sequence[Fact]:
        return self._cloud.drain_facts()

    def acknowledge(self) -> None:
        self._cloud.acknowledge()

    def submit(self, order: Order) -> None:
        if isinstance(order, Launch):
            self._note(order)
        log.info(order.kind, extra={"model": SHARED, "token": order.token, "reason": order.reason})
        self._cloud.submit(order)
        self._fleet = None


class PlacementWriter:
    """Decisions, written into the store's journal under the lease. placement: that after the last one."""

    def __init__(self, journal: StoreJournal, header: PlacementHeader, placement: Callable[[], Placement]) -> None:
        self._journal, self._header, self._placement = journal, header, placement

    def append(self, decision: PlacementDecision) -> None:
        """Write one, and open another segment where this one has grown long."""
        self._journal.write(decision_line(decision))
        rotate_if_long(self._journal, self._following)

    def _following(self) -> bytes:
        return placement_header_line(replace(self._header, placement=self._placement()))


class HostDriver:
    """The driver of a service's shared instances, while this process holds the lease."""

    def __init__(  # noqa: PLR0913 it is given every port
        self,
        sharers: Sequence[Sharer],
        *,
        store: ServiceStore,
        lease: Lease,
        clock: ServiceClock,
        cloud: LiveCloud,
        journal: StoreJournal,
        header: PlacementHeader,
        decided: Decided,
        loads: Mapping[str, Callable[[], Demand]],
        spending_limit: Callable[[], SpendingLimit],
        began_at: float,
        cap: SharedCap | None = None,
        zones: tuple[str, ...] = (),
        front: Callable[[], Front | None] = no_front,
        commitments: Callable[[], Commitments] = lambda: NO_COMMITMENTS,
        quotas: Callable[[], Quotas | None] = no_new_quotas,
        took: Callable[[Mapping[str, int]], None] = takes_alone,
    ) -> None:
        """decided: by the journal. loads: those of the models, by name. began_at: when the service did.

        cap: of all its instances. zones, front, commitments, quotas, took: of its controller.
        """
        self._store, self._lease, self._clock, self._cloud = store, lease, clock, cloud
        self._began_at, self._limit, self._took = began_at, spending_limit, took
        self._followed = spending_limit()
        #: called once shared instances have followed another spending limit
        self.on_followed: Callable[[], None] = _nothing
        self._models = tuple(sharer.model.name for sharer in sharers)
        self._sharers, self._cap = sharers, cap
        self._offerings = {item.name: item for sharer in sharers for item in sharer.offerings}
        self._loads = dict(loads)
        self._listed = _ListedOnce(cloud, self._note_launch)
        before = HOSTS.read(store) or PublishedHosts()
        #: Launches of whoever acted before, and of this one, and until when AWS may not list them.
        self._awaited, self._ordered = dict(before.ordered), dict[str, float]()
        self._run = header.run
        self._hosts = LiveHosts(store, self._version, self._shared_rps)
        self._device_time, self._reports = DeviceTime(now=time.monotonic()), 0
        self._reporter = f"shared-{lease.epoch}-{time.time_ns()}"
        self._look_at = -math.inf
        self._controller = HostController(
            sharers,
            cloud=self._listed,
            hosts=self._hosts,
            history=lambda number, _at, units: self._loads[self._models[number]]().whole.last(units),
            start_at=clock.now(),
            journal=PlacementWriter(journal, header, lambda: self._controller.placement),
            decided=decided,
            told=self._hosts.told,
            launches=before.launches,
            limit=spending_limit,
            within_cap=self._within_cap,
            zones=zones,
            front=front,
            commitments=commitments,
            quotas=quotas,
            took=took,
        )

    def _within_cap(self, packing: Packing, histories: Sequence[Demand]) -> Packing:
        if self._cap is None:
            return packing
        return self._cap.within(packing, self._sharers, histories, self._listed.observe(), self._offerings)

    @property
    def _is_cut(self) -> bool:
        """True where the cap leaves fewer shared instances than are wanted."""
        wanted = sum(map(bool, self._controller.placement.values()))
        return self._cap is not None and self._cap.shared_count < wanted

    def begin(self) -> None:
        """Take inventory; what is due, or was left by a lost leader, is decided before models plan."""
        self._hosts.look()
        there = self._listed.observe()
        self._took(there.awake)
        members = (member for item in there for member in self._hosts.members(item.id).values())
        self._device_time = DeviceTime(members, now=time.monotonic())
        if not self._is_waiting:
            self._controller.tick(self._clock.now())
        self._publish()

    def spending_limit(self) -> SpendingLimit:
        """The limit for the models: one that is lifted counts until the shared instances have followed."""
        return max(self._limit(), self._followed, key=[*SpendingLimit].index)

    def follow(self, model: str, load: Callable[[], Demand]) -> None:
        """Read a model's load from its controller from now on."""
        self._loads[model] = load

    def wake(self) -> None:
        """Look at the next pass: something happened."""
        self._look_at = -math.inf

    def planned_rps(self, model: str) -> float:
        """Requests/s of a model that shared instances are planned to take."""
        return self._controller.planned_rps(model) if model in self._models else 0.0

    def shared_rps(self, model: str) -> float | None:
        """As `HostController.shared_rps`; None for a model that shares nothing."""
        return self._controller.shared_rps(model, self._clock.now()) if model in self._models else None

    def is_booting(self, model: str) -> bool:
        """As `HostController.is_booting`."""
        return self._controller.is_booting(model, self._clock.now())

    def is_due(self) -> bool:
        """True where it is time to look."""
        return time.monotonic() >= self._look_at

    def act(self) -> None:
        """Look, and again in a while. Errors as `ModelDriver.act`."""
        again_s = min(TICK_S, self._clock.wall_until(self._clock.now() + TICK_S))
        self._look_at = time.monotonic() + max(LEAST_S, again_s)
        self.look()

    def look(self) -> None:
        """Look once, decide where that is due, and move models on their way."""
        self._store.leases.renew(self._lease)  # orders of a leader that is none any more must not go out
        self._listed.look()
        self._hosts.look()
        self._cloud.poll_events()
        if not self._is_waiting:
            limit, before_limit = self._limit(), self._followed
            self._controller.tick(self._clock.now(), was_lost=self._cloud.has_pending_facts or self._is_cut)
            self._followed = limit
            if limit is not before_limit:
                self.on_followed()
            self._listed.acknowledge()
        self._hosts.forget_gone([item.id for item in self._listed.observe()])
        self._count_device_time()
        self._publish()

    def _count_device_time(self) -> None:
        """Count what models took of shared instances; on a fast clock a second of theirs is as many of rent."""
        speed = self._clock.anchor.speed_at(steady_time())
        fleet = self._listed.observe()
        members = (
            (member, speed * (self._cloud.usd_per_hour(item) or 0.0))
            for item in fleet
            for member in self._hosts.members(item.id).values()
        )
        taken = self._device_time.take(members, {item.id for item in fleet}, time.monotonic())
        if taken:
            self._reports += 1
            models = tuple(ModelTraffic(model=name, shared_usd=usd) for name, usd in sorted(taken.items()))
            self._store.report(GatewayReport(gateway=self._reporter, sequence=self._reports, models=models))

    @property
    def _is_waiting(self) -> bool:
        """True while AWS may not list an instance yet that was ordered before this term: no second one is."""
        now, listed = self._clock.now(), {item.token for item in self._listed.observe()}
        self._awaited = {token: until for token, until in self._awaited.items() if until > now}
        return not self._awaited.keys() <= listed

    def _note_launch(self, order: Launch) -> None:
        self._store.leases.renew(self._lease)
        self._ordered[f"{self._run}/{order.token}"] = self._clock.now() + UNLISTED_LIMIT_S
        self._publish()

    def _version(self, model: str) -> str:
        versions = self._store.versions(model)
        return "" if versions is None else versions.stable

    def _shared_rps(self, model: str) -> float:
        took = self._loads[model]().shared_rps
        return took[-1] if took else 0.0

    def _publish(self) -> None:
        fleet, now = self._listed.observe(), self._clock.now()
        placement = self._controller.placement
        hosts = tuple(
            PublishedHost(
                id=item.id,
                wanted=tuple(one.model for one in placement.get(item.id, ())),
                serving=self._hosts.serving(item.id),
            )
            for item in fleet
        )
        self._ordered = {token: until for token, until in self._ordered.items() if until > now}
        told = PublishedHosts(
            at=now, hosts=hosts, launches=self._controller.launches, ordered={**self._awaited, **self._ordered}
        )
        HOSTS.write(self._store, told)
        observed = tuple(PublishedInstance.of(item, self._cloud.usd_per_hour(item)) for item in fleet)
        model = PublishedModel(at=now, began_at=self._began_at, observed=observed)
        MODEL.write(self._store, model, SHARED)
