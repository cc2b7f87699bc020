"""Drivers of a term: each model's controller, recovered from its journal, with the ports that it acts through."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from mark.aws.ec2.fleet import Ec2Cloud
from mark.aws.ec2.guard import Guard
from mark.aws.ec2.launch import FleetSetup
from mark.aws.ec2.spot_prices import ObservedSpotPrices
from mark.aws.inbox import EventInbox
from mark.aws.session import Aws
from mark.config.service import Mode
from mark.config.settings import Settings
from mark.controller.hosts.placement_journal import PlacementHeader, placement_header_line
from mark.controller.hosts.sharing import own_history
from mark.controller.limits.service_cap import undivided
from mark.controller.limits.spending_limit import sendable_orders
from mark.controller.runner import Controller, no_shared_boots, no_shared_rps
from mark.controller.service_time_ratios import measured_ratios
from mark.domain.billing.spending import SpendingLimit
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments
from mark.domain.demand import Demand
from mark.domain.fleet.host_spec import SHARED
from mark.domain.fleet.lease import Lease
from mark.domain.load.announced_events import Events, events_of
from mark.domain.offerings.offering import Offering
from mark.domain.offerings.quota import Quotas
from mark.live.aws_resources import LaunchSetup
from mark.live.background.archive import may_drop
from mark.live.clock import ServiceClock
from mark.live.control.data_plane import LiveDataPlane
from mark.live.control.drivers.driver import ModelDriver
from mark.live.control.drivers.host_driver import HostDriver
from mark.live.control.drivers.shared_cap import SharedCap
from mark.live.control.entry import LiveFront
from mark.live.control.journal_opening import OpenedJournal, last_decided, open_journal
from mark.live.control.lambda_warmup import Warmer
from mark.live.control.observe_mode import LiveCloud, ShadowCloud
from mark.live.control.rollouts import RolloutDriver, VersionedCloud
from mark.live.control.status_writer import ModelStatusWriter
from mark.live.forecasting.retraining import FollowedJournal, Retraining
from mark.live.local.running import Running
from mark.live.models import LiveModel
from mark.live.sharers import sharers_of
from mark.ports import Forecaster, ForecasterSetup
from mark.store.published_status import EVENTS, MODEL
from mark.store.service import ServiceStore

ModelForecasters = tuple[Retraining, Forecaster]
"""The policy's forecaster of a model, and the one that answers when it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Parts that the models of a service share in a term."""

    inbox: EventInbox
    guard: Guard
    launches: LaunchSetup
    spending_limit: Callable[[], SpendingLimit]
    #: What of the account's quotas is left for a model, by its name, or for SHARED; None where they are not known.
    quotas: Callable[[str], Quotas | None]
    #: Hears what it takes of them.
    took: Callable[[str, Mapping[str, int]], None]
    #: What of the account's commitments is left for a model, by its name, or for SHARED.
    commitments: Callable[[str], Commitments | None]
    #: The cap that all models plan under; None without one.
    cap: SharedCap | None = None
    #: The instances that several models share; None where none do.
    hosts: HostDriver | None = None

    @property
    def zones(self) -> tuple[str, ...]:
        """Zones that launches may go to."""
        return tuple(sorted({zone for zone, _ in self.launches["subnets"]}))


MakeDriver = Callable[[LiveModel, ModelForecasters, Shared, ExitStack], ModelDriver]
MakeHosts = Callable[[Sequence[LiveModel], Shared, ExitStack], HostDriver | None]


def no_hosts(_models: Sequence[LiveModel], _shared: Shared, _opened: ExitStack) -> None:
    """The models share nothing."""


class DriverFactory:
    """Factory of the drivers of one term. front: where requests come in."""

    def __init__(
        self,
        settings: Settings,
        running: Running,
        *,
        store: ServiceStore,
        aws: Aws,
        lease: Lease,
        front: LiveFront,
    ) -> None:
        self._front = front
        self._settings, self._running = settings, running
        self._store, self._aws, self._lease = store, aws, lease

    def make(
        self, model: LiveModel, forecasters: ModelForecasters, shared: Shared, opened: ExitStack
    ) -> ModelDriver:
        """Make the driver of a model; what it opens is closed with `opened`."""
        store, clock = self._store, ServiceClock(self._store)
        retraining, fallback = forecasters
        controlled = replace(model.bundle.controller, zones=shared.zones)
        model = replace(model, bundle=replace(model.bundle, controller=controlled))
        hosts = shared.hosts
        if hosts is not None:
            shared = replace(shared, spending_limit=hosts.spending_limit)
            model = replace(model, setup=_left(model.setup, hosts.planned_rps(model.name)))
        written = self._open(model, clock.now(), retraining, partial(shared.quotas, model.name))
        policy = replace(model.bundle.controller, quotas=written.header.policy.quotas)
        retraining.begin(store, written.began_at)
        recovered = written.recovered
        membership = store.membership(model.name)
        warmer = self.warmer(model, clock)
        inner = self.cloud(model, written.header.run, clock, warmer, shared)
        cloud = VersionedCloud(inner, store.versions(model.name))
        opened.callback(cloud.close)
        rollouts = RolloutDriver(
            model.served,
            store=store,
            lease=self._lease,
            clock=clock,
            cloud=cloud,
            spending_limit=shared.spending_limit,
            notes=retraining.notes,
            shared_rps=lambda: 0.0 if hosts is None else hosts.planned_rps(model.name),
        )
        plane = self._plane(model, clock, warmer, written.history)
        controller = Controller(
            policy=policy,
            clock=clock,
            cloud=cloud,
            data_plane=plane,
            forecaster=retraining,
            fallback=fallback,
            journal=FollowedJournal(
                written.journal,
                lambda seen: retraining.follow(seen, controller.usual_history, store),
                retraining.notes,
            ),
            history=written.history,
            recovered=recovered,
            measure=lambda: measured_ratios(cloud.stable_members(membership.members()), policy),
            spending_limit=shared.spending_limit,
            quotas=partial(shared.quotas, model.name),
            took=partial(shared.took, model.name),
            commitments=lambda: shared.commitments(model.name),
            events=lambda: announced_events(store, model.name),
            divide=undivided if shared.cap is None else shared.cap.divide(model.name),
            shared_rps=no_shared_rps if hosts is None else lambda: hosts.shared_rps(model.name),
            shared_boots=no_shared_boots if hosts is None else lambda: hosts.is_booting(model.name),
            front=partial(self._front.of, model.name),
        )
        if hosts is not None:
            hosts.follow(model.name, lambda: controller.history)
        return ModelDriver(
            controller,
            clock=clock,
            cloud=cloud,
            plane=plane,
            publisher=ModelStatusWriter(
                model,
                store=store,
                clock=clock,
                began_at=written.began_at,
                trained=retraining.told,
                troubles=lambda: cloud.troubles,
                usd_per_hour=cloud.usd_per_hour,
                stable=lambda: "" if cloud.versions is None else cloud.versions.stable,
            ),
            journal=written.journal,
            header=written.header,
            unseen=sendable_orders(recovered.unseen if recovered else (), shared.spending_limit()),
            beside=rollouts.poll,
        )

    def hosts(self, models: Sequence[LiveModel], shared: Shared, opened: ExitStack) -> HostDriver | None:
        """The driver of shared instances, which has taken inventory; None where no models share."""
        sharers, store, clock = sharers_of(self._settings, models), self._store, ServiceClock(self._store)
        if not sharers:
            return None
        now = clock.now()
        is_new = not any(store.journal_segments(model.name) for model in models)
        told, before = MODEL.read(store, SHARED), last_decided(store)
        began_at = told.began_at if told is not None and not is_new else now
        header = PlacementHeader(
            policy=models[0].bundle.name,
            models=tuple(model.name for model in models),
            market=", ".join(sorted({item.market.value for one in sharers for item in one.offerings})),
            catalogue=f"{models[0].prices.region} {models[0].prices.date}",
            seed=self._settings.seed,
            start_at=now,
            run=uuid.uuid4().hex,
        )
        offerings = {item.name: item for one in sharers for item in one.offerings}
        cloud = self._rented(SHARED, header.run, offerings, clock, shared)
        opened.callback(cloud.close)
        driver = HostDriver(
            sharers,
            store=store,
            lease=self._lease,
            clock=clock,
            cloud=cloud,
            journal=store.open_journal(
                SHARED, placement_header_line(header), self._lease, may_drop=partial(may_drop, store, SHARED)
            ),
            header=header,
            decided=before,
            loads={model.name: partial(model.history, now) for model in models},
            spending_limit=shared.spending_limit,
            cap=shared.cap,
            began_at=now if began_at is None else began_at,
            zones=shared.zones,
            front=partial(self._front.of, SHARED),
            commitments=lambda: shared.commitments(SHARED) or NO_COMMITMENTS,
            quotas=partial(shared.quotas, SHARED),
            took=partial(shared.took, SHARED),
        )
        driver.begin()
        return driver

    def _open(
        self, model: LiveModel, now: float, retraining: Retraining, quotas: Callable[[], Quotas | None]
    ) -> OpenedJournal:
        return open_journal(
            model,
            self._settings,
            store=self._store,
            lease=self._lease,
            now=now,
            read=retraining.read,
            quotas=quotas,
        )

    def warmer(self, model: LiveModel, clock: ServiceClock) -> Warmer:
        """The warm-up of what gateways call: the store says, as to them, if the model's function has versions."""
        return Warmer(
            self._store.spec().served(model.name),
            aws=self._aws,
            store=self._store,
            clock=clock,
            lease=self._lease,
            gateways=self._settings.service.gateway_count,
        )

    def _plane(self, model: LiveModel, clock: ServiceClock, warmer: Warmer, history: Demand) -> LiveDataPlane:
        policy = model.bundle.controller
        return LiveDataPlane(
            self._store,
            model.name,
            clock=clock,
            next_unit_at=history.end_at,
            monitor=policy.monitor,
            target=policy.slo.target,
            warmed=warmer.believed,
        )

    def cloud(self, model: LiveModel, run: str, clock: ServiceClock, warmer: Warmer, shared: Shared) -> LiveCloud:
        """The fleet that serves, or the one that would, where the service only observes."""
        if self._settings.service.mode is Mode.OBSERVE:
            offerings = {offering.name: offering for offering in model.served.offerings}
            prices = ObservedSpotPrices(self._aws, offerings, shared.zones)
            return ShadowCloud(model.served, store=self._store, clock=clock, prices=prices)
        offerings = {offering.name: offering for offering in model.served.offerings}
        warm = warmer.warm if model.served.overflow else None
        return self._rented(model.name, run, offerings, clock, shared, warm)

    def _rented(
        self,
        model: str,
        run: str,
        offerings: Mapping[str, Offering],
        clock: ServiceClock,
        shared: Shared,
        warm: Callable[[int], object] | None = None,
    ) -> Ec2Cloud:
        setup = FleetSetup(
            service=self._running.name, model=model, run=run, offerings=offerings, **shared.launches
        )
        return Ec2Cloud(
            setup,
            aws=self._aws,
            clock=clock,
            membership=self._store.membership(model),
            ledger=self._store,
            inbox=shared.inbox,
            guard=shared.guard,
            warm=warm,
        )


def _left(setup: ForecasterSetup, planned_rps: float) -> ForecasterSetup:
    """The load that came before, less what shared instances will take."""
    return replace(setup, history=own_history(setup.history, planned_rps))


def announced_events(store: ServiceStore, model: str) -> Events:
    """The events about a model that were announced to the running service (`mark event`)."""
    found = EVENTS.read(store)
    return () if found is None else events_of(found.events, model)
