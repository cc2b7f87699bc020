"""One term of the acting controller: from recovering the journals to the first failure.

One thread ticks each model, one keeps the lease. Whatever fails ends the term: the next one, here or in another
process, recovers every model from its journal.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mark.aws.ec2.fleet import Ec2Cloud
from mark.aws.ec2.guard import Guard, Guardrails
from mark.aws.ec2.launch import FleetSetup
from mark.aws.inbox import EventInbox
from mark.aws.session import Aws
from mark.config.service import Mode
from mark.config.settings import Settings
from mark.controller.runner import Controller
from mark.controller.service_time_ratios import measured_paces
from mark.controller.spending_limit import SpendingLimit
from mark.domain.errors import RetryLater
from mark.live.aws_resources import RESOURCES, launches_of
from mark.live.background.failures import Troubles
from mark.live.clock import ServiceClock
from mark.live.control.budget_watch import RestraintWatch
from mark.live.control.data_plane import LivePlane
from mark.live.control.driver import ModelDriver
from mark.live.control.journal_opening import OpenedJournal, known_quotas, open_journal
from mark.live.control.lambda_warmup import Warmer
from mark.live.control.observe_mode import LiveCloud, ShadowCloud
from mark.live.control.status_writer import Publisher
from mark.live.forecasting.retraining import FollowedJournal, Retraining
from mark.live.local.run_dir import Running
from mark.live.models import LiveModel
from mark.ports import Forecaster
from mark.store.lease import Lease
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

RENEW_EACH_S = 0.75
POLL_S = 2
"""A long poll of the events queue: ending a term waits for it."""

Forecasters = Mapping[str, tuple[Retraining, Forecaster]]
"""By model: the policy's forecaster, and the one that answers when it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """What the models of a service share: events, guardrails, what launches start from, what is held back."""

    inbox: EventInbox
    guard: Guard
    launches: Mapping[str, Any]
    restrain: Callable[[], SpendingLimit]


class Term:
    """Acts for all models of a service while its lease holds."""

    def __init__(
        self,
        settings: Settings,
        running: Running,
        *,
        store: ServiceStore,
        aws: Aws,
        lease: Lease,
        troubles: Troubles,
    ) -> None:
        self._settings, self._running, self._troubles = settings, running, troubles
        self._store, self._aws, self._lease = store, aws, lease
        self._over = threading.Event()
        self._failure: BaseException | None = None

    def run(
        self,
        models: Sequence[LiveModel],
        forecasters: Forecasters,
        stop: threading.Event,
        *,
        beside: Sequence[Callable[[threading.Event], None]] = (),
    ) -> None:
        """Until `stop`, or until something fails, which is raised. `beside`: what runs in threads as long."""
        with ExitStack() as opened:
            runs = [*self._drivers(models, forecasters, opened), self._keep_lease]
            runs += [partial(run, self._over) for run in beside]
            # what is sent first was written by others: it has no other fence
            self._store.leases.renew(self._lease)
            threads = [threading.Thread(target=self._guarded, args=(run,), daemon=True) for run in runs]
            for thread in threads:
                thread.start()
            while not (stop.is_set() or self._over.is_set()):
                self._over.wait(0.05)
            self._over.set()
            for thread in threads:
                thread.join()
        if self._failure is not None:
            raise self._failure

    def _keep_lease(self) -> None:
        while not self._over.wait(RENEW_EACH_S):
            self._store.leases.renew(self._lease)

    def _guarded(self, run: Callable[[], None]) -> None:
        """Run one thread; its failure ends the term."""
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - it is raised again by the process's main thread
            self._failure = self._failure or error
        finally:
            self._over.set()

    def _drivers(
        self, models: Sequence[LiveModel], forecasters: Forecasters, opened: ExitStack
    ) -> list[Callable[[], None]]:
        """What drives each model, recovered from its journal."""
        resources = self._store.status(RESOURCES)
        if resources is None:
            raise RetryLater("nobody has said yet where the queues are")
        drivers: list[ModelDriver] = []

        def wake() -> None:
            for driver in drivers:
                driver.wake()

        offerings = {offering.name: offering for model in models for offering in model.served.offerings}
        watch = RestraintWatch(
            self._settings.budget,
            [model.served for model in models],
            store=self._store,
            clock=ServiceClock(self._store),
            wake=wake,
        )
        watch.look()
        shared = _Shared(
            restrain=watch.restraint,
            inbox=EventInbox(
                self._aws.sqs,
                resources["events_url"],
                wake=wake,
                tell=lambda why: self._troubles.note("hearing of spot notices", why),
                poll_s=POLL_S,
            ),
            guard=Guard(_rails(self._settings), offerings),
            launches=launches_of(resources),
        )
        runs: list[Callable[[], None]] = [lambda: watch.run(self._over)]
        for model in models:
            driver, run = self._driver(model, forecasters[model.name], shared, opened)
            drivers.append(driver)
            runs.append(run)
        for driver in drivers:  # guardrails count the instances of all models before the first launch of any
            driver.look()
        shared.inbox.start()
        opened.callback(shared.inbox.close)
        return runs

    def _driver(
        self, model: LiveModel, forecasters: tuple[Retraining, Forecaster], shared: _Shared, opened: ExitStack
    ) -> tuple[ModelDriver, Callable[[], None]]:
        store, clock = self._store, ServiceClock(self._store)
        retraining, fallback = forecasters
        written = self._open(model, clock.now(), retraining)
        policy = replace(model.bundle.controller, quotas=written.header.policy.quotas)
        retraining.begin(store, written.began_at)
        recovered = written.recovered
        membership = store.membership(model.name)
        warmer = self._warmer(model, clock)
        cloud = self._cloud(model, written.header.run, clock, warmer, shared)
        opened.callback(cloud.close)
        plane = self._plane(model, clock, warmer, written.history.end_at)
        controller = Controller(
            policy=policy,
            clock=clock,
            cloud=cloud,
            data_plane=plane,
            forecaster=retraining,
            fallback=fallback,
            journal=FollowedJournal(
                written.journal, lambda seen: retraining.follow(seen, controller.history, store), retraining.notes
            ),
            history=written.history,
            recovered=recovered,
            measure=lambda: measured_paces(membership.members(), policy),
            restrain=shared.restrain,
        )
        driver = ModelDriver(
            controller,
            clock=clock,
            cloud=cloud,
            plane=plane,
            publisher=Publisher(
                model, store=store, clock=clock, began_at=written.began_at, trained=retraining.told
            ),
            journal=written.journal,
            header=written.header,
        )
        return driver, lambda: driver.run(self._over, recovered.unseen if recovered else ())

    def _open(self, model: LiveModel, now: float, retraining: Retraining) -> OpenedJournal:
        return open_journal(
            model,
            self._settings,
            store=self._store,
            lease=self._lease,
            now=now,
            read=retraining.read,
            quotas=lambda: known_quotas(self._aws),
        )

    def _warmer(self, model: LiveModel, clock: ServiceClock) -> Warmer:
        return Warmer(
            model.served,
            aws=self._aws,
            store=self._store,
            clock=clock,
            lease=self._lease,
            gateways=self._settings.service.gateways,
        )

    def _plane(self, model: LiveModel, clock: ServiceClock, warmer: Warmer, next_unit_at: float) -> LivePlane:
        policy = model.bundle.controller
        return LivePlane(
            self._store,
            model.name,
            clock=clock,
            next_unit_at=next_unit_at,
            monitor=policy.monitor,
            target=policy.slo.target,
            warmed=warmer.believed,
        )

    def _cloud(
        self, model: LiveModel, run: str, clock: ServiceClock, warmer: Warmer, shared: _Shared
    ) -> LiveCloud:
        """The fleet that serves, or the one that would, where the service only observes."""
        if self._settings.service.mode is Mode.OBSERVE:
            return ShadowCloud(model.served, store=self._store, clock=clock)
        setup = FleetSetup(
            service=self._running.name,
            model=model.name,
            run=run,
            offerings={offering.name: offering for offering in model.served.offerings},
            **shared.launches,
        )
        return Ec2Cloud(
            setup,
            ec2=self._aws.ec2,
            clock=clock,
            membership=self._store.membership(model.name),
            ledger=self._store,
            inbox=shared.inbox,
            guard=shared.guard,
            warm=warmer.warm if model.served.overflow else None,
        )


def _rails(settings: Settings) -> Guardrails:
    limit = settings.service.aws.max_usd_per_hour
    return Guardrails(
        max_instances=settings.policy.max_instances,
        max_usd_per_hour=float("inf") if limit is None else limit,
    )
