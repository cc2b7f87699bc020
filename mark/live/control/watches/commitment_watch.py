"""Commitments of the account: of a file, or read of AWS once an hour; and what is left of them for each model.

What stands around the fleets uses them first, then instances that models share. Of the models, each may count what
those before it by name leave.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from mark.aws.errors import code_of, remedy
from mark.catalog.commitment_bill import left_by_standing
from mark.domain.billing.footprint import Footprint
from mark.domain.commitments.applied import left_for_each
from mark.domain.commitments.eligible import Usage, running_hour
from mark.domain.commitments.owned import Commitments
from mark.domain.errors import MarkError
from mark.domain.fleet.host_spec import SHARED
from mark.domain.fleet.instances import InstanceState
from mark.ports import Clock
from mark.store.published_status import COMMITMENTS, MODEL, AccountCommitments
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

EACH_S = 3_600.0
"""Of the service's clock, between two readings: others of the account take places in reserved capacity."""
POLL_S = 5.0
"""Real seconds between two looks at the clock, and at what the models run."""


class CommitmentWatch:
    """Reads the commitments on a thread of its own; the last reading stays where one fails, also in the store."""

    def __init__(
        self,
        read: Callable[[], Commitments] | None,
        *,
        footprint: Footprint,
        models: Sequence[str],
        store: ServiceStore,
        clock: Clock,
        record: Callable[[str | None], object],
    ) -> None:
        """`read`: asks AWS; None where a file says them. `record` takes why they cannot be read, else None."""
        self._read, self._footprint, self._models = read, footprint, sorted(models)
        self._store, self._clock, self._record = store, clock, record
        kept = None if read is None else COMMITMENTS.read(store)
        self._all = footprint.commitments if kept is None else kept.commitments
        self._left: dict[str, Commitments] = {}
        self._due_at = -math.inf
        if read is None:
            COMMITMENTS.write(store, AccountCommitments(commitments=self._all))

    def all(self) -> Commitments:
        """The commitments as they were last read."""
        return self._all

    def left_for(self, name: str) -> Commitments | None:
        """The commitments that are left for SHARED or for a model now; for a model None before the first poll."""
        return self._left_by_standing() if name == SHARED else self._left.get(name)

    def run(self, over: threading.Event) -> None:
        """Poll until `over` is set; while the store is unreachable what is known stays."""
        while not over.wait(POLL_S):
            try:
                self.poll()
            except MarkError as error:
                log.warning("the models' fleets cannot be read", extra={"why": str(error)})

    def poll(self) -> None:
        """Read AWS if it is time, and share what there is among the models."""
        now = self._clock.now()
        if self._read is not None and now >= self._due_at:
            self._ask(self._read, now)
        running = {name: self._running(name) for name in (SHARED, *self._models)}
        self._left = left_for_each(self._left_by_standing(), running)

    def _left_by_standing(self) -> Commitments:
        return left_by_standing(self._all.active_at(self._clock.now()), self._footprint)

    def _ask(self, read: Callable[[], Commitments], now: float) -> None:
        self._due_at = now + EACH_S
        try:
            found = replace(read().with_rates_of(self._all), zones=self._footprint.zones)
        except MarkError as error:
            why = f"{error}; {remedy(code_of(error))}"
            log.warning("the account's commitments cannot be read", extra={"why": why})
            self._record(str(error))
            return
        if found != self._all:
            log.info("the account's commitments have changed", extra={"usd_per_hour": found.usd_per_hour})
        self._all = found
        COMMITMENTS.write(self._store, AccountCommitments(commitments=found, read_at=now))
        self._record(None)

    def _running(self, model: str) -> tuple[Usage, ...]:
        """An hour of what a model, or all that share instances, runs on demand, as the last look saw it."""
        known = MODEL.read(self._store, model)
        return running_hour(
            (one.offering, one.usd_per_hour)
            for one in (() if known is None else known.observed)
            if one.state is not InstanceState.STOPPED and one.usd_per_hour
        )
