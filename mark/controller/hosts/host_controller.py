"""The controller of the instances that several models of a service share.

What they hold is decided by `sharing.py`, each hour and when one is lost. A model is loaded where its
tenancy begins, once there is memory for it. It is taken away when its last request there is answered. One that
Lambda cannot answer in time is first loaded where it moves to; where it moves to no shared instance, its own fleet
gets time to boot, and more where it is late. One at risk (`at_risk.py`) goes once others that hold its models
have booted; where none can be launched it serves on.

It acts through two ports, the cloud and what its instances hold, so a replay and a live service run the same code.
A decision is written down when it is done. Whoever takes over goes on from the last one, and makes one anew that
was not: until then nothing is wanted but what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple, Protocol

from mark.controller.at_risk import with_risks
from mark.controller.hosts.placement_journal import Decided, PlacementDecision, PlacementJournal
from mark.controller.hosts.placement_orders import eviction_orders, launch_reason, tenant_orders
from mark.controller.hosts.sharing import (
    HISTORY_UNITS,
    PACK_EVERY_S,
    Sharer,
    memory_gib,
    share_instances,
    share_rps,
    shared_offering,
    taken_rps,
    within_quotas,
)
from mark.controller.hosts.tenancy import HostUse, expected_loads, host_uses
from mark.controller.limits.launch_breaker import LaunchBreakerPolicy, LaunchRecord, note_launches
from mark.controller.limits.quotas import QuotaLimits, no_new_quotas, takes_alone
from mark.controller.limits.spending_limit import no_spending_limit
from mark.controller.runner import no_front
from mark.controller.zones import HOUR_S, best_zone, pool_prices
from mark.domain.billing.spending import SpendingLimit
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments
from mark.domain.demand import Demand
from mark.domain.fleet.host_spec import TenantSpec
from mark.domain.fleet.instances import FleetView, Instance, InstanceState
from mark.domain.fleet.orders import Drain, Launch, LaunchRefused, RefusalCause
from mark.domain.fleet.placement import Host, Placement, PlacementOrder, Tenant, placed, remaining
from mark.domain.front import Front
from mark.domain.offerings.quota import Quotas
from mark.planner.shared.packing import Packing
from mark.planner.shared.packing_kernels import NOTHING
from mark.ports import Cloud

SOON_S = 60.0
"""While instances are kept until others boot, and after a refused launch, it is decided anew after so long."""
HAND_OVER_S = 120.0
"""Beside the time to boot, for the plan of a model's own fleet: a tick, and some minutes of load to plan by."""
LATE_S = 1800.0
"""A fleet that does not serve then is waited for so long: until what does not boot was ended and launched anew."""


class Hosts(Protocol):
    """What shared instances hold: in the simulator, or as their agents announce it. Instances are told by id."""

    def loaded(self, instance: str) -> frozenset[str]:
        """Models that are loaded there, those that answer their last requests too."""
        ...

    def loading(self, instance: str) -> frozenset[str]:
        """Models that are on their way there."""
        ...

    def accepts(self, instance: str, model: str) -> bool:
        """True where a model that is loaded takes new requests: not while it answers its last ones."""
        ...

    def has_own(self, model: str) -> bool:
        """True where an instance of the model's own takes requests."""
        ...

    def hold(self, instance: str, tenants: Sequence[TenantSpec]) -> None:
        """Have it hold these models: load what is new, keep the rest with its share, drain all others."""
        ...

    def shared_rps(self, model: str) -> float:
        """Requests/s of a model that shared instances took in the last minute."""
        ...


class _Leaving(NamedTuple):
    """When a model is taken away that gets a fleet of its own."""

    #: From then on it goes once that fleet serves.
    own_at: float
    #: It goes then all the same; later where nothing can be launched for it.
    late_at: float


CutToCap = Callable[[Packing, Sequence[Demand]], Packing]
"""Cuts a decision, by the loads of its models."""


def as_it_is(packing: Packing, _histories: Sequence[Demand]) -> Packing:
    """The decision of a service without a cap."""
    return packing


class HostController:
    """The controller of a service's shared instances. It is called with the time, which never goes back.

    sharers: the models. history: the load of each, by its number, until an instant. decided, told, launches: of
    whoever acted before: decisions, what instances were told to hold, and what became of launches. zones: those
    that launches may go to. front: where requests come in. limit: what may be rented now; under any nothing more
    is, under a pause nothing is shared. within_cap: cuts a decision to what the service's cap leaves it, by the
    loads of its models. commitments: those of now that shared instances may use. quotas: what models leave of the
    account's (None: not known). took: hears of the instances by offering that there are.
    """

    def __init__(  # noqa: PLR0913 it is given every port
        self,
        sharers: Sequence[Sharer],
        *,
        cloud: Cloud,
        hosts: Hosts,
        history: Callable[[int, float, int], Demand],
        start_at: float,
        journal: PlacementJournal,
        decided: Decided | None = None,
        told: Mapping[str, Sequence[TenantSpec]] | None = None,
        launches: Sequence[LaunchRecord] = (),
        limit: Callable[[], SpendingLimit] = no_spending_limit,
        within_cap: CutToCap = as_it_is,
        zones: tuple[str, ...] = (),
        front: Callable[[], Front | None] = no_front,
        commitments: Callable[[], Commitments] = lambda: NO_COMMITMENTS,
        quotas: Callable[[], Quotas | None] = no_new_quotas,
        took: Callable[[Mapping[str, int]], None] = takes_alone,
    ) -> None:
        self._quotas, self._took = quotas, took
        self._sharers = {sharer.model.name: sharer for sharer in sharers}
        self._models = tuple(self._sharers)
        self._history, self._cloud, self._hosts, self._journal = history, cloud, hosts, journal
        self._offerings = {item.name: item for one in sharers for item in one.offerings}
        self._start_at = start_at
        self._count, self._limit, self._within_cap = 0, limit, within_cap
        #: As `Hosts` was told last, by instance and model.
        self._told = {name: {one.model: one for one in specs} for name, specs in (told or {}).items()}
        self._wanted: Placement = decided.placement if decided is not None else {}
        #: Orders of the decision that is made now, and the tokens of its next ones.
        self._ordered: list[PlacementOrder] = []
        self._tokens: Iterator[str] = iter(())
        #: Models that get a fleet of their own, by instance and model.
        self._leaving: dict[tuple[str, str], _Leaving] = {}
        self._refused_until: dict[str, float] = {}
        #: Offerings that could not be launched at the last decision.
        self._barred: frozenset[str] = frozenset()
        self._refused_in: dict[tuple[str, str], float] = {}
        self._zones, self._front, self._commitments = zones, front, commitments
        #: What became of launches, of offerings whose instances did not become ready.
        self.launches = tuple(launches)
        last = decided.last if decided is not None else None
        self._next_decision_at, self._decided_at = (
            (start_at, start_at) if last is None else (last.next_at, last.at)
        )
        self._placed_at = start_at
        self._fleet_before = FleetView(instances=() if last is None else last.fleet)
        #: Spending limit and instances of the last decision; an instance that holds nothing was in none.
        self._decided_under = SpendingLimit.NONE if last is None else last.limit
        self._decided_on = frozenset(name for name, tenants in self._wanted.items() if tenants)
        self._ready: dict[str, Instance] = {}
        #: Until when each instance may boot.
        self._boots_until: dict[str, float] = {}
        #: All models are where they are wanted and nowhere else.
        self.is_settled = True

    @property
    def next_at(self) -> float:
        """When it is to be called next, unless something happens before."""
        leaves = (at for leaving in self._leaving.values() for at in leaving if at > self._placed_at)
        return min((self._next_decision_at, *leaves))

    @property
    def pulls(self) -> dict[str, float]:
        """What shared instances that serve pull, by zone: USD an hour, if all that they can answer crossed."""
        found: dict[str, float] = {}
        for item in self._ready.values():
            found[item.zone] = found.get(item.zone, 0.0) + self._pull(self._wanted.get(item.id, ()))
        return found

    @property
    def placement(self) -> Placement:
        """Tenants that are wanted, by instance, on those that boot too."""
        return self._wanted

    def planned_rps(self, model: str) -> float:
        """Requests/s of a model that shared instances take when all tenants fill them as planned."""
        return sum(self._share_rps(name, model) for name in self._wanted)

    def shared_rps(self, model: str, now: float) -> float | None:
        """Requests/s that shared instances took of a model in the last minute; None where none is to hold it.

        When the run starts, it is what they would have taken of the load before.
        """
        planned_rps = self.planned_rps(model)
        if not planned_rps:
            return None
        if now == self._start_at:
            return taken_rps(self._history(self._models.index(model), now, 1), planned_rps)
        return self._hosts.shared_rps(model)

    def is_booting(self, model: str, now: float) -> bool:
        """True while an instance boots that is to hold a model, as long as a boot may take."""
        return any(
            now < self._boots_until.get(name, now) and self._is_awaited(name, model)
            for name, tenants in list(self._wanted.items())
            if any(tenant.model == model for tenant in tenants)
        )

    def tick(self, now: float, *, was_lost: bool = False) -> None:
        """Decide anew where that is due or an instance was lost, and move models on their way."""
        if was_lost or self._is_outdated or (now >= self._next_decision_at and not self._waits_for_boots(now)):
            self.decide(now)
        self._place(now)

    def _waits_for_boots(self, now: float) -> bool:
        """True where nothing but a boot asks for a decision before its hour.

        The load has hardly changed meanwhile: packed anew, models move, and what is rented is given back soon.
        """
        boots = any(now < self._boots_until.get(name, now) and name not in self._ready for name in self._wanted)
        refused = any(
            until > self._decided_at for until in (*self._refused_until.values(), *self._refused_in.values())
        )
        if not boots or refused or now >= self._decided_at + PACK_EVERY_S:
            return False
        self._next_decision_at = now + min(SOON_S, PACK_EVERY_S)
        return True

    @property
    def _is_outdated(self) -> bool:
        """True under another spending limit, without an instance that is wanted, or with one that nobody knows.

        One whose launch AWS took later, or that booted when the one who ordered it was lost, would be paid for
        nothing.
        """
        staying = {item.id for item in self._cloud.observe() if item.stays}
        is_other = not (staying <= self._decided_on and self._wanted.keys() <= staying)
        return is_other or self._limit() is not self._decided_under

    def decide(self, now: float) -> None:
        """Order what the decision of now lacks, and drain what it no longer holds once nothing boots."""
        self._ordered, self._count, self._decided_at = [], self._count + 1, now
        self._tokens = (f"s{self._count}-{place}" for place in count(1))
        facts = self._cloud.drain_facts()
        fleet = self._fleet_before = with_risks(self._cloud.observe(), self._fleet_before, facts)
        for fact in facts:
            if isinstance(fact, LaunchRefused):
                self._note_refusal(fact, now)
        self.launches = note_launches(self.launches, facts, fleet, now, LaunchBreakerPolicy())
        for record in self.launches:
            if record.is_open(now):
                self._refused_until[record.offering] = record.closes_at
        staying = {item.id: item for item in fleet if item.serves_on}
        self._wanted = remaining(self._wanted, staying)
        limit = self._decided_under = self._limit()
        quotas = QuotaLimits(self._quotas() or (), self._offerings.values(), fleet.awake)
        refused = {name for name, until in self._refused_until.items() if until > now}
        if limit is not SpendingLimit.NONE:
            refused = {*self._offerings}
        without_quota = {name for name in self._offerings if quotas.left(name) < 1}
        self._barred = frozenset(refused | without_quota)
        sharers = () if limit is SpendingLimit.PAUSE else tuple(self._sharers.values())
        histories = [self._history(number, now, HISTORY_UNITS) for number in range(len(sharers))]
        packing = share_instances(
            sharers,
            histories,
            there=[
                Host(offering=item.offering, tenants=self._wanted.get(item.id, ()), name=item.id)
                for item in staying.values()
                if not item.at_risk
            ],
            refused=self._barred,
            owned=self._commitments(),
        )
        packing = within_quotas(self._within_cap(packing, histories), quotas)
        loads = expected_loads(sharers, histories, now=now)
        hosts = tuple(self._launched(host, now) for host in host_uses(packing, sharers, histories))
        there = [host for host in hosts if host.name]
        for order in tenant_orders(self._wanted, there, loads, tokens=self._tokens):
            self._send(order)
        self._place(now)
        is_booting = any(name not in self._ready for name in self._wanted)
        kept = {host.name for host in there}
        placed_models = {tenant.model for host in there for tenant in host.placed}
        lacks = bool(refused) or len(there) < len(hosts)
        held = {  # nothing can be launched in its place
            name
            for name, item in staying.items()
            if item.at_risk
            and limit is not SpendingLimit.PAUSE
            and (lacks or item.offering in without_quota)
            and not placed_models.issuperset(self._models_on(name))
        }
        surplus = tuple(name for name in staying if name not in kept | held)
        left = self._give_up(surplus, now) if surplus and not is_booting else surplus
        waits = (*self._refused_until.values(), *self._refused_in.values())
        soon = left or any(until > now for until in waits)
        self._next_decision_at = now + (min(SOON_S, PACK_EVERY_S) if soon else PACK_EVERY_S)
        self._decided_on = frozenset(item.id for item in self._cloud.observe())
        self._journal.append(
            PlacementDecision(
                at=now,
                fleet=fleet.instances,
                refused=tuple(sorted(refused)),
                without_quota=tuple(sorted(without_quota)),
                loads=loads,
                hosts=hosts,
                orders=tuple(self._ordered),
                worth_usd_per_hour=packing.worth_usd_per_hour,
                unchanged_usd_per_hour=packing.unchanged_usd_per_hour,
                next_at=self._next_decision_at,
                limit=limit,
            )
        )

    def _send(self, order: PlacementOrder) -> None:
        """Want what the order says, from now on."""
        self._wanted = placed(self._wanted, order)
        self._ordered.append(order)
        if isinstance(order, Launch | Drain):
            self._cloud.submit(order)

    def _note_refusal(self, fact: LaunchRefused, now: float) -> None:
        """Leave the offering out for a while: in its zone where there are others."""
        if fact.zone not in self._zones or fact.cause is not RefusalCause.CAPACITY:
            self._refused_until[fact.offering] = now + SOON_S
            return
        self._refused_in[fact.offering, fact.zone] = now + SOON_S
        if not self._open_zones(fact.offering, now):
            self._refused_until[fact.offering] = now + SOON_S

    def _open_zones(self, offering: str, now: float) -> list[str]:
        return [zone for zone in self._zones if self._refused_in.get((offering, zone), now) <= now]

    def _zone_for(self, host: HostUse, now: float) -> str | None:
        """Where a new instance costs least; None where AWS is to say."""
        front, zones = self._front(), self._open_zones(host.offering, now)
        if front is None or not zones:
            return None
        fleet, pulls = self._cloud.observe(), dict.fromkeys(self._zones, 0.0)
        for item in fleet:
            if item.zone in pulls:
                pulls[item.zone] += self._pull(self._wanted.get(item.id, ()))
        prices = pool_prices(self._offerings[host.offering], zones, fleet)
        return best_zone(prices, front, pulls, self._pull(host.placed))

    def _pull(self, tenants: Iterable[Tenant]) -> float:
        """Pull of these tenants of an instance, USD an hour; a model that is served no longer has none."""
        served = (one for one in tenants if one.model in self._sharers)
        return sum(HOUR_S * one.capacity_rps * self._sharers[one.model].crossing_usd for one in served)

    def _launched(self, host: HostUse, now: float) -> HostUse:
        """The same host; one that is not there yet is ordered, and keeps no name where that is refused."""
        if host.name:
            return host
        token, zone = next(self._tokens), self._zone_for(host, now)
        elsewhere = () if zone is None else tuple((host.offering, one) for one in self._zones if one != zone)
        reason = launch_reason(host) + ("" if zone is None else f"; in zone {zone}")
        self._send(Launch(token=token, reason=reason, offering=host.offering, count=1, without=elsewhere))
        return replace(host, name=next((item.id for item in self._cloud.observe() if item.token == token), ""))

    def _give_up(self, names: Sequence[str], now: float) -> tuple[str, ...]:
        """Drain these instances but those, which it returns, where a model is still needed that has no backup."""
        for order in eviction_orders(self._wanted, names, tokens=self._tokens):
            self._send(order)
        self._place(now)
        needed = tuple(
            name
            for name in names
            if name in self._ready and any(self._hosts.accepts(name, one) for one in self._hosts.loaded(name))
        )
        empty = tuple(name for name in names if name not in needed)
        if empty:
            self._send(Drain(token=next(self._tokens), reason="no model is wanted there", instances=empty))
        return needed

    def _place(self, now: float) -> None:
        """Load what is wanted where it is not, and take away what is not wanted any more."""
        self._placed_at, fleet = now, self._cloud.observe()
        self._took(fleet.awake)
        staying = {item.id: item for item in fleet if item.stays}
        self._ready = {name: item for name, item in staying.items() if item.state is InstanceState.READY}
        self._boots_until = {
            name: item.launched_at + self._offerings[item.offering].boot_s + HAND_OVER_S
            for name, item in staying.items()
            if item.offering in self._offerings
        }
        self._told = {name: told for name, told in self._told.items() if name in self._ready}
        self._leaving = {
            (name, model): leaving
            for (name, model), leaving in self._leaving.items()
            if name in self._ready and model not in self._models_on(name)
        }
        for name, item in self._ready.items():
            self._hold(name, self._specs(item))
        for name in self._ready:
            here = self._hosts.loaded(name)
            leaving = [model for model in self._models if model in here and self._leaves(name, model, now)]
            if leaving:
                told = self._told[name]
                self._hold(name, {model: spec for model, spec in told.items() if model not in leaving})
        self.is_settled = not self._leaving and all(
            not self._hosts.loading(name) and self._hosts.loaded(name) == set(self._models_on(name))
            for name in self._ready
        )

    def _hold(self, name: str, specs: dict[str, TenantSpec]) -> None:
        self._told[name] = specs
        self._hosts.hold(name, [specs[model] for model in self._models if model in specs])

    def _specs(self, item: Instance) -> dict[str, TenantSpec]:
        """Models that an instance is to hold now: those it keeps for a while, and what fits of the wanted."""
        wanted, told = self._models_on(item.id), self._told.get(item.id, {})
        here = self._hosts.loaded(item.id)
        specs = {model: spec for model, spec in told.items() if model in here and model not in wanted}
        held = {*here, *self._hosts.loading(item.id).intersection(wanted)}
        for model in wanted:
            if model in held or self._has_memory(item, {*held, model}):
                held.add(model)
                specs[model] = self._spec(item, model)
        return {
            model: replace(spec, fits_beside=self._has_memory(item, [*held, model]))
            for model, spec in specs.items()
        }

    def _spec(self, item: Instance, model: str) -> TenantSpec:
        sharer = self._sharers[model]
        found = next(one for one in sharer.offerings if one.name == item.offering)
        offering = shared_offering(found, sharer.slo)
        assert offering is not None, "it would not have been placed"
        return TenantSpec(
            model=model,
            offering=offering.name,
            max_batch=offering.batch.max_batch,
            share_rps=self._share_rps(item.id, model),
        )

    def _has_memory(self, item: Instance, models: Iterable[str]) -> bool:
        gib = sum(self._sharers[model].model.memory_gib for model in models)
        return gib <= memory_gib(self._offerings[item.offering].instance_type) + NOTHING

    def _leaves(self, name: str, model: str, now: float) -> bool:
        """True where a loaded model is to take no more requests here."""
        if model in self._models_on(name):
            return False
        moves = any(model in self._models_on(other) and self._is_awaited(other, model) for other in self._wanted)
        is_free = self._sharers[model].has_backup or not self._hosts.accepts(name, model)
        if not is_free and (self._is_left(name, model, now) or (moves and not self._is_stuck)):
            return False
        self._leaving.pop((name, model), None)
        return True

    def _is_left(self, name: str, model: str, now: float) -> bool:
        """True where a model that no shared instance is to hold still has time for its own fleet to boot.

        Under a pause none boots.
        """
        if self._limit() is SpendingLimit.PAUSE or any(model in self._models_on(other) for other in self._wanted):
            return False
        offerings = self._sharers[model].offerings
        if (name, model) not in self._leaving:
            told = self._told[name]
            self._hold(name, {**told, model: replace(told[model], share_rps=0.0)})
            own_at = now + max(item.boot_s for item in offerings) + HAND_OVER_S
            self._leaving[name, model] = _Leaving(own_at, own_at + LATE_S)
        leaving = self._leaving[name, model]
        if now < leaving.own_at or self._hosts.has_own(model):
            return now < leaving.own_at
        if now >= leaving.late_at and self._barred.issuperset(item.name for item in offerings):
            leaving = self._leaving[name, model] = leaving._replace(late_at=now + SOON_S)
        return now < leaving.late_at

    @property
    def _is_stuck(self) -> bool:
        """All that boots is there, nothing is on its way, and yet a model is not where it is wanted."""
        is_due = self._leaving or any(self._hosts.loading(name) for name in self._ready)
        return not is_due and all(name in self._ready for name in self._wanted) and self._is_moving

    @property
    def _is_moving(self) -> bool:
        """Something boots, or a model is not yet where it is wanted, or still where it is not."""
        return bool(self._leaving) or any(
            self._is_awaited(name, model) for name in self._wanted for model in self._models_on(name)
        )

    def _is_awaited(self, name: str, model: str) -> bool:
        """True where a model is not yet on an instance where it is wanted."""
        return name not in self._ready or model not in self._hosts.loaded(name)

    def _models_on(self, name: str) -> list[str]:
        """Models that are wanted on an instance, in the service's order."""
        wanted = {tenant.model for tenant in self._wanted.get(name, ())}
        return [model for model in self._models if model in wanted]

    def _share_rps(self, name: str, model: str) -> float:
        return share_rps(model, self._wanted.get(name, ()), self._sharers)
