"""Failures of background work: logged, shown by status, and retried with exponential back-off; none ends the work.

They lie in the store under the name of the process; status shows those of the process that acts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from mark.domain.errors import RetryLater, failure_words
from mark.steady_time import steady_time
from mark.store.published_status import BACKGROUND, BackgroundFailure, BackgroundStatus
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

LONGEST_S = 60.0
"""Longest back-off, real seconds."""
KEEP_S = 30 * 86400.0
"""Real seconds that the failures of a process are kept: it may be gone."""
TWICE_AT_MOST = 16
"""Doublings of the back-off at most: a number without bound overflows."""


class BackgroundFailures:
    """Background work of one process, `holder`, that fails now; safe to share between threads."""

    def __init__(self, store: ServiceStore, holder: str) -> None:
        self._store, self._holder = store, holder
        self._lock = threading.Lock()
        self._failing: dict[str, BackgroundFailure] = {}
        self._written: dict[str, BackgroundFailure] = {}

    def record(self, work: str, why: str | None) -> None:
        """Record why the work fails; None where it succeeded. An unreachable store gets it with the next call."""
        with self._lock:
            if why is None:
                self._failing.pop(work, None)
            else:
                before = self._failing.get(work) or BackgroundFailure(since=steady_time())
                self._failing[work] = replace(before, why=why)
            if self._failing != self._written:
                self._write()

    def run_periodically(
        self, work: str, turn: Callable[[], object], *, each_s: float, stop: threading.Event, begin_s: float = 0.0
    ) -> None:
        """Run `turn` each `each_s` real seconds, with back-off while it fails, from `begin_s` until `stop`."""
        failures = 0
        stop.wait(begin_s)
        while not stop.is_set():
            failures = 0 if self._attempt(work, turn) else failures + 1
            stop.wait(max(each_s, min(LONGEST_S, each_s * 2 ** min(failures, TWICE_AT_MOST))))

    def _attempt(self, work: str, turn: Callable[[], object]) -> bool:
        try:
            turn()
        except RetryLater as error:
            log.warning("background work is retried later", extra={"work": work, "why": str(error)})
            self.record(work, str(error))
        except Exception as error:  # whatever it is: it would end the work without a word
            log.exception("background work failed and is retried", extra={"work": work})
            self.record(work, failure_words(error))
        else:
            self.record(work, None)
            return True
        return False

    def _write(self) -> None:
        failing = dict(self._failing)
        document = BACKGROUND.dump(BackgroundStatus(failing=failing))
        try:
            self._store.put_status(BACKGROUND.name(self._holder), document, keep_s=KEEP_S)
        except RetryLater:
            return
        self._written = failing


def failure_lines(told: BackgroundStatus, wall: float) -> list[str]:
    """Failures as notes of a status. wall: epoch seconds."""
    return [
        f"{work} fails for {max(0.0, wall - one.since):.0f} s and is tried again: {one.why}"
        for work, one in sorted(told.failing.items())
    ]
