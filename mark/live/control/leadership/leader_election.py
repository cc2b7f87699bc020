"""Leader election: a controller waits for the lease, leads while it holds it, and the next takes over (failover).

A lease that is not renewed runs out: liveness of the leader is nothing else.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from mark.aws.outside_pause import read_pause
from mark.config.settings import Settings
from mark.domain.errors import RetryLater
from mark.domain.fleet.host_spec import SHARED
from mark.domain.fleet.lease import Lease, LeaseLost
from mark.live.aws_clients import aws_of
from mark.live.background.failures import BackgroundFailures
from mark.live.background.nightly_replays import NightlyReplays
from mark.live.background.worker import start_background_worker
from mark.live.control.drivers.driver_factory import DriverFactory, ModelForecasters
from mark.live.control.entry import front_of
from mark.live.control.leadership.clients_copy import keep_clients_copied
from mark.live.control.leadership.term import Term
from mark.live.control.watches.outside_pause_watch import OutsidePauseWatch
from mark.live.forecasting.function_trainer import function_trainers
from mark.live.forecasting.retraining import Retraining
from mark.live.local.running import Running
from mark.live.models import LiveModel
from mark.plugins.load import build_forecaster
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

TRY_EACH_S = 0.25
"""Real seconds between two polls of a starting process for forecasters that the leader trained."""
PAUSE_S = 0.5
"""Real seconds between two terms, after something did not answer."""
KEEP_UP_EACH_S = 5.0
"""Real seconds between two polls of a waiting controller for forecasters that the leader trained."""
CATCH_UP_S = 30.0
"""Real seconds that a starting process waits for forecasters trained before, instead of acting at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasters:
    """Forecasters of the service's models."""

    by_model: Mapping[str, ModelForecasters]
    #: Held by the one training, or replay of a past day, that runs at a time.
    slot: threading.Lock = field(default_factory=threading.Lock)


class Node(Protocol):
    """A node whose store follows the lease. Errors: RetryLater."""

    def may_lead(self) -> bool:
        """False where its store lacks what the leader's holds."""
        ...

    def lead(self) -> None:
        """Have its store take writes."""
        ...

    def resign(self) -> None:
        """Have its store take no more writes."""
        ...

    def follow(self) -> None:
        """Have its store be a replica of the leader's."""
        ...

    def beside(self, over: threading.Event) -> None:
        """Do, until `over`, what the leading node does beside its ticks."""
        ...


class Leader:
    """A candidate for the acting controller: one a process."""

    def __init__(  # noqa: PLR0913 it has a part for every duty
        self,
        settings: Settings,
        running: Running,
        models: Sequence[LiveModel],
        *,
        store: ServiceStore,
        holder: str,
        failures: BackgroundFailures,
        forecasters: Forecasters,
        publish: Callable[[], None] | None = None,
        node: Node | None = None,
    ) -> None:
        """`publish` writes the service's description to the store while this process leads; None: another does.

        `node`: the node that holds the store, where the store follows the lease.
        """
        self._publish = publish
        self._node = node
        self._settings, self._running, self._models, self._store = settings, running, models, store
        self._holder = holder
        self._failures = failures
        self._aws = aws_of(settings.service.aws.region, running, "controller")
        self._forecasters = forecasters.by_model
        self._replays = NightlyReplays(settings, running, store=store, slot=forecasters.slot)
        self._caught_up_at = -math.inf
        self._front = front_of(store, models, is_steered=node is not None)
        self._outside = OutsidePauseWatch(
            lambda: read_pause(self._aws, running.name),
            record=partial(failures.record, "reading the pause from outside"),
        )

    def run(self, stop: threading.Event) -> None:
        """Act whenever the lease can be had, until `stop` is set."""
        start_background_worker(
            store=self._store,
            aws=self._aws,
            holder=self._holder,
            stop=stop,
            failures=self._failures,
        )
        self._outside.poll()  # before the lease is held: AWS may take long to answer
        threading.Thread(target=self._outside.run, args=(stop,), daemon=True).start()
        until = time.monotonic() + CATCH_UP_S
        while not (stop.is_set() or self._is_caught_up() or time.monotonic() > until):
            stop.wait(TRY_EACH_S)
        while not stop.is_set():
            lease = self._candidate()
            if lease is None:
                if time.monotonic() > self._caught_up_at + KEEP_UP_EACH_S:
                    self._is_caught_up()
                stop.wait(self._store.leases.times.retry_s)
                continue
            log.info("this controller leads", extra={"epoch": lease.epoch})
            self._act(lease, stop)
            with suppress(RetryLater):
                self._store.leases.release(lease)
            self._stop_training()
        self._stop_training()  # who waits may be making what another trained
        self._aws.close()

    def _beside(self, lease: Lease) -> tuple[Callable[[threading.Event], None], ...]:
        """Run beside the ticks of a term."""
        if self._node is None:
            return (self._replays.run,)
        return (self._replays.run, self._node.beside, partial(keep_clients_copied, self._store, lease))

    def _candidate(self) -> Lease | None:
        """Ask for the lease; None where another has it, or this node is not to have it."""
        try:
            if self._node is not None and not self._node.may_lead():
                return None
            lease = self._store.leases.acquire(self._holder, self._store.leases.times.ttl_s)
            if lease is None and self._node is not None:
                self._node.follow()
        except RetryLater:
            return None
        return lease

    def _is_caught_up(self) -> bool:
        """True where our forecasters are the leader's, or where the store cannot be asked."""
        self._caught_up_at = time.monotonic()
        try:
            return all(retraining.keep_up(self._store) for retraining, _ in self._forecasters.values())
        except RetryLater:
            return True

    def _stop_training(self) -> None:
        """End trainings: only the leader trains."""
        for retraining, _ in self._forecasters.values():
            retraining.stop()

    def _act(self, lease: Lease, stop: threading.Event) -> None:
        """One term after another while the lease is ours."""
        while not stop.is_set():
            try:
                if self._node is not None:
                    self._store.leases.renew(lease)  # a store whose lease is lost must not lead
                    self._node.lead()
                self._store.take_over(lease, [*(model.name for model in self._models), SHARED])
                if self._publish is not None:
                    self._store.leases.renew(lease)  # what is told has no other fence
                    self._publish()
                factory = DriverFactory(
                    self._settings, self._running, store=self._store, aws=self._aws, lease=lease, front=self._front
                )
                term = Term(
                    self._settings,
                    store=self._store,
                    aws=self._aws,
                    lease=lease,
                    failures=self._failures,
                    outside=self._outside.latest,
                    make_driver=factory.make,
                    make_hosts=factory.hosts,
                )
                term.run(self._models, self._forecasters, stop, beside=self._beside(lease))
            except LeaseLost as error:
                log.warning("another controller took over", extra={"why": str(error)})
                self._resign()
                return
            except RetryLater as error:
                log.warning("the term failed and is started again from the journal", extra={"why": str(error)})
                stop.wait(PAUSE_S)
                self._hold(lease)
        self._resign()  # the next leader's store is another one

    def _hold(self, lease: Lease) -> None:
        """Renew the lease between two terms; where that fails, have the node's store take no more writes."""
        try:
            self._store.leases.renew(lease)
        except RetryLater:
            self._resign()

    def _resign(self) -> None:
        if self._node is not None:
            with suppress(RetryLater):
                self._node.resign()


def make_forecasters(
    models: Sequence[LiveModel], settings: Settings, running: Running, store: ServiceStore
) -> Forecasters:
    """Make the policies' forecasters, and those that answer when they fail or are late."""
    elsewhere = function_trainers(settings, running, store)
    retrain, name, slot = settings.service.retrain, settings.service.name, threading.Lock()
    by_model = {
        model.name: (
            Retraining(model, retrain, slot=slot, service=name, elsewhere=elsewhere(model)),
            build_forecaster("last-value", model.setup),
        )
        for model in models
    }
    return Forecasters(by_model=by_model, slot=slot)
