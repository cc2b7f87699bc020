"""Work in the background that no failure ends: it is logged, told by status, and tried again, less and less often.

What fails lies in the store under the name of the process that fails; status tells that of the one that acts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from mark.domain.errors import RetryLater, failure_words
from mark.store.service import ServiceStore
from mark.telemetry.status_document import BACKGROUND, BackgroundFailure, BackgroundStatus
from mark.telemetry.steady_time import steady_time

log = logging.getLogger(__name__)

LONGEST_S = 60.0
"""Pauses grow to this, real seconds."""
KEEP_S = 30 * 86400.0
"""For how long it is told what failed in a process, which may be gone."""
TWICE_AT_MOST = 16
"""So often a pause is doubled: more would be a number that nobody waits for."""


class Troubles:
    """What fails in the background of one process, `holder`; safe to share between threads."""

    def __init__(self, store: ServiceStore, holder: str) -> None:
        self._store, self._holder = store, holder
        self._lock = threading.Lock()
        self._failing: dict[str, BackgroundFailure] = {}
        self._told: dict[str, BackgroundFailure] = {}

    def note(self, work: str, why: str | None) -> None:
        """The work fails, and why; None: it goes. A store that is away is told with the next note."""
        with self._lock:
            if why is None:
                self._failing.pop(work, None)
            else:
                before = self._failing.get(work) or BackgroundFailure(since=steady_time())
                self._failing[work] = replace(before, why=why)
            if self._failing != self._told:
                self._tell()

    def keep_on(
        self, work: str, turn: Callable[[], object], *, each_s: float, stop: threading.Event, begin_s: float = 0.0
    ) -> None:
        """Take a turn each `each_s` real seconds, the first after `begin_s`, until `stop`."""
        failures = 0
        stop.wait(begin_s)
        while not stop.is_set():
            failures = 0 if self._attempt(work, turn) else failures + 1
            stop.wait(max(each_s, min(LONGEST_S, each_s * 2 ** min(failures, TWICE_AT_MOST))))

    def _attempt(self, work: str, turn: Callable[[], object]) -> bool:
        try:
            turn()
        except RetryLater as error:
            log.warning("work in the background waits", extra={"work": work, "why": str(error)})
            self.note(work, str(error))
        except Exception as error:  # whatever it is: it would end the work without a word
            log.exception("work in the background failed", extra={"work": work})
            self.note(work, failure_words(error))
        else:
            self.note(work, None)
            return True
        return False

    def _tell(self) -> None:
        failing = dict(self._failing)
        document = BACKGROUND.dump(BackgroundStatus(failing=failing))
        try:
            self._store.put_status(BACKGROUND.name(self._holder), document, keep_s=KEEP_S)
        except RetryLater:
            return
        self._told = failing


def trouble_lines(told: BackgroundStatus, wall: float) -> list[str]:
    """What fails as notes of a status. wall: epoch seconds."""
    return [
        f"{work} fails for {max(0.0, wall - one.since):.0f} s and is tried again: {one.why}"
        for work, one in sorted(told.failing.items())
    ]
