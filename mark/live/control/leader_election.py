"""A controller's process: waits for the lease, acts while it holds it, and lets the next one take over."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from mark.config.settings import Settings
from mark.domain.errors import RetryLater
from mark.live.aws_resources import aws_of
from mark.live.background.failures import Troubles
from mark.live.background.nightly_replays import NightlyReplays
from mark.live.background.worker import begin_aside
from mark.live.control.term import Forecasters, Term
from mark.live.forecasting.retraining import Retraining
from mark.live.local.run_dir import Running
from mark.live.models import LiveModel
from mark.plugins.load import build_forecaster
from mark.store.lease import Lease, LeaseLost
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

LEASE_S = 3.0
"""A controller that says nothing for so long has lost the lease."""
TRY_EACH_S = 0.25
PAUSE_S = 0.5
"""Between two terms, after something did not answer."""
KEEP_UP_EACH_S = 5.0
"""How often who waits looks whether who acts has trained a forecaster."""
CATCH_UP_S = 30.0
"""How long a process that starts waits for what was trained before, instead of acting at once."""


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
        troubles: Troubles,
        tell: Callable[[], None] | None = None,
    ) -> None:
        """`tell` writes to the store what the service is; None where somebody else does. Only who acts tells."""
        self._tell = tell
        self._settings, self._running, self._models, self._store = settings, running, models, store
        self._holder = holder
        self._troubles = troubles
        self._aws = aws_of(settings, running, "controller")
        slot = threading.Lock()
        self._forecasters = _forecasters(models, settings, slot)
        self._replays = NightlyReplays(settings, running, store=store, slot=slot)
        self._looked_at = -math.inf

    def run(self, stop: threading.Event) -> None:
        """Act whenever the lease can be had, until `stop` is set."""
        begin_aside(
            store=self._store,
            make_aws=lambda: aws_of(self._settings, self._running, "controller"),
            holder=self._holder,
            stop=stop,
            troubles=self._troubles,
        )
        until = time.monotonic() + CATCH_UP_S
        while not (stop.is_set() or self._is_caught_up() or time.monotonic() > until):
            stop.wait(TRY_EACH_S)
        while not stop.is_set():
            try:
                lease = self._store.leases.take(self._holder, LEASE_S)
            except RetryLater:
                lease = None
            if lease is None:
                if time.monotonic() > self._looked_at + KEEP_UP_EACH_S:
                    self._is_caught_up()
                stop.wait(TRY_EACH_S)
                continue
            log.info("acting", extra={"epoch": lease.epoch})
            self._act(lease, stop)
            with suppress(RetryLater):
                self._store.leases.release(lease)
            self._stop_training()
        self._stop_training()  # who waits may be making what another trained
        self._aws.close()

    def _is_caught_up(self) -> bool:
        """Whether our forecasters are those that who acts has trained, as far as the store can be asked."""
        self._looked_at = time.monotonic()
        try:
            return all(retraining.keep_up(self._store) for retraining, _ in self._forecasters.values())
        except RetryLater:
            return True

    def _stop_training(self) -> None:
        """Who does not act does not train."""
        for retraining, _ in self._forecasters.values():
            retraining.stop()

    def _act(self, lease: Lease, stop: threading.Event) -> None:
        """One term after another while the lease is ours."""
        while not stop.is_set():
            try:
                if self._tell is not None:
                    self._store.leases.renew(lease)  # what is told has no other fence
                    self._tell()
                term = Term(
                    self._settings,
                    self._running,
                    store=self._store,
                    aws=self._aws,
                    lease=lease,
                    troubles=self._troubles,
                )
                term.run(self._models, self._forecasters, stop, beside=(self._replays.run,))
            except LeaseLost as error:
                log.warning("another controller acts", extra={"why": str(error)})
                return
            except RetryLater as error:
                log.warning("starting over from the journal", extra={"why": str(error)})
                stop.wait(PAUSE_S)
                with suppress(RetryLater):
                    self._store.leases.renew(lease)


def _forecasters(models: Sequence[LiveModel], settings: Settings, slot: threading.Lock) -> Forecasters:
    """The policies' forecasters, trained anew one at a time, and those that answer when they fail or are late."""
    asked, name = settings.service.retrain, settings.service.name
    return {
        model.name: (
            Retraining(model, asked, slot=slot, service=name),
            build_forecaster("last-value", model.setup),
        )
        for model in models
    }
