"""A controller's process: waits for the lease, acts while it holds it, and lets the next one take over."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress

from mark.app.live.account import aws_of
from mark.app.live.folder import Running
from mark.app.live.models import LiveModel
from mark.app.live.punctual import PunctualForecaster
from mark.app.live.term import Term
from mark.app.plugins import build_forecaster
from mark.app.settings import Settings
from mark.domain.errors import RetryLater
from mark.ports import Forecaster
from mark.store.lease import Lease, LeaseLost
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

LEASE_S = 3.0
"""A controller that says nothing for so long has lost the lease."""
TRY_EACH_S = 0.25
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
                term = Term(self._settings, self._running, store=self._store, aws=self._aws, lease=lease)
                term.run(self._models, self._forecasters, stop)
            except LeaseLost as error:
                log.warning("another controller acts", extra={"why": str(error)})
                return
            except RetryLater as error:
                log.warning("starting over from the journal", extra={"why": str(error)})
                stop.wait(PAUSE_S)
                with suppress(RetryLater):
                    self._store.leases.renew(lease)


def _forecasters(model: LiveModel) -> tuple[Forecaster, Forecaster]:
    """The policy's forecaster, held to its deadline, and the one that answers when it fails or is late."""
    name = model.bundle.forecaster
    punctual = PunctualForecaster(build_forecaster(name, model.setup), name=name)
    return punctual, build_forecaster("last-value", model.setup)
