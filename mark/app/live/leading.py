"""A controller's process: waits for the lease, acts while it holds it, and lets the next one take over.

One thread ticks each model, one keeps the lease. Whatever fails ends the term: the next one, here or in another
process, recovers every model from its journal.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress

from mark.app.live.account import RESOURCES, aws_of, templates_of
from mark.app.live.clock import ServiceClock
from mark.app.live.driver import ModelDriver
from mark.app.live.folder import Running
from mark.app.live.models import LiveModel
from mark.app.live.plane import LivePlane
from mark.app.live.publishing import Publisher
from mark.app.live.warming import Warmer
from mark.app.plugins import build_forecaster
from mark.app.settings import Settings
from mark.aws.fleet import Ec2Cloud
from mark.aws.guard import Guard, Guardrails
from mark.aws.inbox import EventInbox
from mark.aws.launching import FleetSetup
from mark.aws.session import Aws
from mark.controller.journal import Header, header_line, read_journal
from mark.controller.paces import measured_paces
from mark.controller.planning import KEEP_UNITS, tail
from mark.controller.recovery import Recovered, recover
from mark.controller.runner import KEEP_HISTORY, Controller
from mark.domain.errors import RetryLater
from mark.domain.offering import Offering
from mark.ports import Forecaster
from mark.store.lease import Lease, LeaseLost
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

LEASE_S = 3.0
"""A controller that says nothing for so long has lost the lease."""
RENEW_EACH_S = 0.75
TRY_EACH_S = 0.25
POLL_S = 2
"""A long poll of the events queue: ending a term waits for it."""
PAUSE_S = 0.5
"""Between two terms, after something did not answer."""


class Leader:
    """One process's wish to be the acting controller."""

    def __init__(
        self,
        settings: Settings,
        running: Running,
        models: Sequence[LiveModel],
        *,
        store: ServiceStore,
        holder: str,
    ) -> None:
        self._settings, self._running, self._models, self._store = settings, running, models, store
        self._holder = holder
        self._aws = aws_of(settings, running)
        self._forecasters = {model.name: _forecasters(model) for model in models}

    def run(self, stop: threading.Event) -> None:
        """Act whenever the lease can be had, until `stop` is set."""
        while not stop.is_set():
            try:
                lease = self._store.leases.take(self._holder, LEASE_S)
            except RetryLater:
                lease = None
            if lease is None:
                stop.wait(TRY_EACH_S)
                continue
            log.info("acting", extra={"epoch": lease.epoch})
            self._act(lease, stop)
            with suppress(RetryLater):
                self._store.leases.release(lease)
        self._aws.close()

    def _act(self, lease: Lease, stop: threading.Event) -> None:
        """One term after another while the lease is ours."""
        while not stop.is_set():
            try:
                _Term(self._settings, self._running, self._models, self._store, self._aws, lease).run(
                    stop, self._forecasters
                )
            except LeaseLost as error:
                log.warning("another controller acts", extra={"why": str(error)})
                return
            except RetryLater as error:
                log.warning("starting over from the journal", extra={"why": str(error)})
                stop.wait(PAUSE_S)
                with suppress(RetryLater):
                    self._store.leases.renew(lease)


class _Term:
    """From recovering the journals to the first failure."""

    def __init__(
        self,
        settings: Settings,
        running: Running,
        models: Sequence[LiveModel],
        store: ServiceStore,
        aws: Aws,
        lease: Lease,
    ) -> None:
        self._settings, self._running, self._models = settings, running, models
        self._store, self._lease = store, lease
        self._aws = aws
        self._over = threading.Event()
        self._failure: BaseException | None = None

    def run(self, stop: threading.Event, forecasters: dict[str, tuple[Forecaster, Forecaster]]) -> None:
        """Until `stop`, or until something fails, which is raised."""
        with ExitStack() as opened:
            runs = [*self._drivers(forecasters, opened), self._keep_lease]
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
        self, forecasters: dict[str, tuple[Forecaster, Forecaster]], opened: ExitStack
    ) -> list[Callable[[], None]]:
        """A driver for each model, recovered from its journal."""
        resources = self._store.status(RESOURCES)
        if resources is None:
            raise RetryLater("nobody has said yet where the queues are")
        drivers: list[ModelDriver] = []

        def wake() -> None:
            for driver in drivers:
                driver.wake()

        inbox = EventInbox(self._aws.sqs, resources["events_url"], wake=wake, poll_s=POLL_S)
        offerings = {o.name: o for model in self._models for o in model.served.offerings}
        guard = Guard(_rails(self._settings, offerings), offerings)
        runs: list[Callable[[], None]] = []
        for model in self._models:
            driver, run = self._driver(model, forecasters[model.name], inbox, guard, resources, opened)
            drivers.append(driver)
            runs.append(run)
        inbox.start()
        opened.callback(inbox.close)
        return runs

    def _driver(
        self,
        model: LiveModel,
        forecasters: tuple[Forecaster, Forecaster],
        inbox: EventInbox,
        guard: Guard,
        resources: dict[str, dict[str, str]],
        opened: ExitStack,
    ) -> tuple[ModelDriver, Callable[[], None]]:
        store, policy = self._store, model.bundle.controller
        membership = store.membership(model.name)
        clock = ServiceClock(store)
        header, recovered = self._recovered(model, clock.now())
        journal = store.open_journal(model.name, header_line(header), self._lease)
        before = header.history if header.checkpoint else model.history(header.history.end_at)
        history = recovered.history(before, KEEP_HISTORY) if recovered else before
        warmer = Warmer(model.served, aws=self._aws, store=store, clock=clock, lease=self._lease)
        cloud = Ec2Cloud(
            FleetSetup(
                service=self._running.name,
                model=model.name,
                run=header.run,
                offerings={o.name: o for o in model.served.offerings},
                templates=templates_of(resources),
            ),
            ec2=self._aws.ec2,
            clock=clock,
            membership=membership,
            ledger=store,
            inbox=inbox,
            guard=guard,
            warm=warmer.warm if model.served.overflow else None,
        )
        opened.callback(cloud.close)
        plane = LivePlane(
            store,
            model.name,
            clock=clock,
            next_unit_at=history.end_at,
            monitor=policy.monitor,
            target=policy.slo.target,
            warmed=warmer.believed,
        )
        controller = Controller(
            policy=policy,
            clock=clock,
            cloud=cloud,
            data_plane=plane,
            forecaster=forecasters[0],
            fallback=forecasters[1],
            journal=journal,
            history=history,
            recovered=recovered,
            measure=lambda: measured_paces(membership.members(), policy),
        )
        began_at = recovered.first_at if recovered else before.end_at
        publisher = Publisher(model, store=store, clock=clock, began_at=began_at)
        driver = ModelDriver(
            controller,
            clock=clock,
            cloud=cloud,
            plane=plane,
            publisher=publisher,
            journal=journal,
            header=header,
        )
        unseen = recovered.unseen if recovered else ()
        return driver, lambda: driver.run(self._over, unseen)

    def _recovered(self, model: LiveModel, now: float) -> tuple[Header, Recovered | None]:
        """The journal's header and where it stopped; a new header where there is no journal."""
        if not self._store.journal_segments(model.name):
            return _new_header(model, self._settings, now), None
        header, ticks = read_journal(self._store.journal_lines(model.name))
        return header, recover(header, ticks)


def _new_header(model: LiveModel, settings: Settings, now: float) -> Header:
    bundle = model.bundle
    trace = settings.trace.file
    return Header(
        policy=bundle.controller,
        catalogue=f"{model.prices.region} {model.prices.date}",
        seed=settings.seed,
        history=tail(model.history(now), KEEP_UNITS),
        dispatch=bundle.dispatch,
        forecaster=bundle.forecaster,
        model=model.name,
        trace="live" if trace is None else f"live after {trace.name}",
        market=bundle.controller.offerings[0].market.value if bundle.controller.offerings else "",
        run=uuid.uuid4().hex,
    )


def _rails(settings: Settings, offerings: Mapping[str, Offering]) -> Guardrails:
    limit = settings.service.aws.max_usd_per_hour
    return Guardrails(
        max_instances=settings.policy.max_instances,
        max_usd_per_hour=float("inf") if limit is None else limit,
        allowed_types=frozenset(offering.instance_type.name for offering in offerings.values()),
    )


def _forecasters(model: LiveModel) -> tuple[Forecaster, Forecaster]:
    """The policy's forecaster and the one that answers when it fails."""
    return build_forecaster(model.bundle.forecaster, model.setup), build_forecaster("last-value", model.setup)
