"""One term of the acting controller: from recovering the journals to the first failure.

One thread keeps the lease, from before the first decisions on; then one acts for the whole service. Whatever fails
ends the term: the next one, here or in another process, recovers every model from its journal.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from mark.aws.account.commitments import read_commitments
from mark.aws.ec2.guard import Guard, Guardrails
from mark.aws.inbox import EventInbox
from mark.aws.session import Aws
from mark.config.footprint import footprint_of
from mark.config.settings import Settings
from mark.domain.billing.footprint import Footprint
from mark.domain.commitments.owned import Commitments
from mark.domain.errors import RetryLater
from mark.domain.fleet.lease import Lease
from mark.live.aws_resources import launches_of
from mark.live.background.failures import BackgroundFailures
from mark.live.clock import ServiceClock
from mark.live.control.drivers.driver_factory import MakeDriver, MakeHosts, ModelForecasters, Shared, no_hosts
from mark.live.control.drivers.service_driver import ServiceDriver
from mark.live.control.drivers.shared_cap import shared_cap
from mark.live.control.journal_opening import fleet_quotas
from mark.live.control.watches.budget_watch import BudgetWatch
from mark.live.control.watches.commitment_watch import CommitmentWatch
from mark.live.control.watches.quota_watch import LeftOfQuotas, QuotaWatch
from mark.live.models import LiveModel
from mark.service_spec import ServedModel
from mark.store.published_status import RESOURCES, OutsidePauseStatus
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

POLL_S = 2
"""A long poll of the events queue: ending a term waits for it."""


class Term:
    """One term: acts for all models of a service while its lease holds."""

    def __init__(
        self,
        settings: Settings,
        *,
        store: ServiceStore,
        aws: Aws,
        lease: Lease,
        failures: BackgroundFailures,
        outside: Callable[[], OutsidePauseStatus | None],
        make_driver: MakeDriver,
        make_hosts: MakeHosts = no_hosts,
    ) -> None:
        """`outside`: the process's last answer about a pause from outside."""
        self._settings, self._background = settings, failures
        self._make_driver, self._make_hosts = make_driver, make_hosts
        self._store, self._aws, self._lease = store, aws, lease
        self._outside = outside
        self._over = threading.Event()
        self._failure: BaseException | None = None

    def run(
        self,
        models: Sequence[LiveModel],
        forecasters: Mapping[str, ModelForecasters],
        stop: threading.Event,
        *,
        beside: Sequence[Callable[[threading.Event], None]] = (),
    ) -> None:
        """Until `stop`, or until something fails, which is raised. `beside`: what runs in threads as long."""
        with ExitStack() as opened:
            # taking over many models, with their first decisions, may take longer than the lease lasts
            threads = [self._start(self._keep_lease)]
            opened.callback(threads[0].join)
            opened.callback(self._over.set)
            runs = self._drivers(models, forecasters, opened)
            runs += [partial(run, self._over) for run in beside]
            # what is sent first was written by others: it has no other fence
            self._store.leases.renew(self._lease)
            threads += map(self._start, runs)
            while not (stop.is_set() or self._over.is_set()):
                self._over.wait(0.05)
            self._over.set()
            for thread in threads:
                thread.join()
        if self._failure is not None:
            raise self._failure

    def _keep_lease(self) -> None:
        while not self._over.wait(self._store.leases.times.renew_s):
            self._store.leases.renew(self._lease)
            self._store.keep_scripts()

    def _start(self, run: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self._guarded, args=(run,), daemon=True)
        thread.start()
        return thread

    def _guarded(self, run: Callable[[], None]) -> None:
        """Run one thread; its failure ends the term."""
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - it is raised again by the process's main thread
            self._failure = self._failure or error
        finally:
            self._over.set()

    def _drivers(
        self, models: Sequence[LiveModel], forecasters: Mapping[str, ModelForecasters], opened: ExitStack
    ) -> list[Callable[[], None]]:
        """Make the driver of each model, recovered from its journal."""
        resources = RESOURCES.read(self._store)
        if resources is None:
            raise RetryLater("the service's queues are not set up yet")
        acting: list[ServiceDriver] = []

        def wake() -> None:
            for driver in acting:
                driver.wake()

        offerings = {offering.name: offering for model in models for offering in model.served.offerings}
        footprint = footprint_of(self._settings, models=len(models))
        owned = CommitmentWatch(
            self._read_commitments(models, footprint),
            footprint=footprint,
            models=[model.name for model in models],
            store=self._store,
            clock=ServiceClock(self._store),
            record=lambda why: self._background.record("reading the account's commitments", why),
        )
        watch = BudgetWatch(
            self._settings.budget,
            [*(model.served for model in models), *self._shared()],
            footprint=footprint,
            commitments=owned.all,
            store=self._store,
            clock=ServiceClock(self._store),
            outside=self._outside,
            wake=wake,
        )
        watch.poll()
        quotas = QuotaWatch(
            partial(fleet_quotas, self._aws, self._settings),
            clock=ServiceClock(self._store),
            record=lambda why: self._background.record("reading the account's quotas", why),
        )
        quotas.poll()
        left = LeftOfQuotas(quotas.latest, offerings.values())
        cap = shared_cap(self._settings)
        shared = Shared(
            spending_limit=watch.spending_limit,
            quotas=left.left_for,
            took=left.note,
            commitments=owned.left_for,
            inbox=EventInbox(
                self._aws.sqs,
                resources.events_url,
                wake=wake,
                on_poll=lambda why: self._background.record("receiving spot notices", why),
                poll_s=POLL_S,
            ),
            guard=Guard(_rails(self._settings), offerings),
            cap=cap,
            launches=launches_of(resources),
        )
        hosts = self._make_hosts(models, shared, opened)
        if hosts is not None:
            shared = replace(shared, hosts=hosts)
            hosts.on_followed = wake
        drivers = [self._make_driver(model, forecasters[model.name], shared, opened) for model in models]
        for driver in drivers:  # guardrails count the instances of all models before the first launch of any
            driver.observe()
        for driver in (
            drivers if cap is not None else ()
        ):  # all before the first plans, or that finds the cap empty
            driver.claim()
        acting.append(ServiceDriver(drivers, hosts))
        shared.inbox.start()
        opened.callback(shared.inbox.close)
        return [partial(run, self._over) for run in (watch.run, quotas.run, owned.run, acting[0].run)]

    def _shared(self) -> tuple[ServedModel, ...]:
        """What shared instances are billed as, where there are some."""
        shared = self._store.spec().shared
        return () if shared is None else (shared,)

    def _read_commitments(
        self, models: Sequence[LiveModel], footprint: Footprint
    ) -> Callable[[], Commitments] | None:
        """The question to AWS for what the service may count; None where a file says it, or nobody asks."""
        region, account = self._settings.service.aws.region, self._settings.account
        zones = self._settings.rollout.network.zones
        if account.commitments is not None or not account.read_commitments:
            return None
        kinds = [offering.instance_type for model in models for offering in model.served.offerings]
        prices = {kind.name: kind.on_demand_usd_per_hour for kind in kinds}
        prices[footprint.gateways.instance_type] = footprint.gateways.usd_per_hour
        service = self._settings.service.name

        def read() -> Commitments:
            there = read_commitments(self._aws, service=service, region=region, types=prices.keys())
            there = there.in_zones(zones).with_prices(prices)
            # what others use of reserved capacity is told
            return replace(there.share(account.share), capacity_reservations=there.capacity_reservations)

        return read


def _rails(settings: Settings) -> Guardrails:
    cap = settings.service.aws.cap
    return Guardrails(
        max_instances=settings.policy.max_instances,
        max_usd_per_hour=cap.usd_per_hour,
        max_vcpus=cap.vcpus,
        max_gpus=cap.gpus,
    )
