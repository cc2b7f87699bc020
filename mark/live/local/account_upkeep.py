"""The account's resources, made again whenever the emulated AWS has begun anew: it forgets all when it ends.

It is done on a thread, so that processes are watched meanwhile. Until it is done the emulated AWS answers
nobody else (`Gate` in `mark.emulator.front`), so controllers wait as they do for any AWS that does not answer,
then see that their instances are gone and replace them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from mark.domain.errors import MarkError

log = logging.getLogger(__name__)

PAUSE_S = 0.5
END_S = 5.0


class AccountUpkeep:
    """Calls `set_up` after each `lost`, until it succeeds."""

    def __init__(self, set_up: Callable[[], None]) -> None:
        self._set_up = set_up
        self._lost = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="account", daemon=True)
        self.missing_since: float | None = None
        self.why = ""

    def begin(self) -> None:
        """Be ready for the first loss."""
        self._thread.start()

    def lost(self) -> None:
        """The account is empty: make it anew."""
        if self.missing_since is None:
            self.missing_since = time.monotonic()
        self._lost.set()

    def end(self) -> None:
        """Make nothing any more."""
        self._over.set()
        self._lost.set()
        if self._thread.is_alive():
            self._thread.join(END_S)

    def _run(self) -> None:
        while True:
            self._lost.wait()
            if self._over.is_set():
                return
            self._lost.clear()
            self._make()

    def _make(self) -> None:
        """Until it is done, or lost once more."""
        while not (self._over.is_set() or self._lost.is_set()):
            try:
                self._set_up()
            except MarkError as error:
                self._note(str(error))
                self._over.wait(PAUSE_S)
            else:
                self.missing_since, self.why = None, ""
                log.warning("the emulated AWS began anew and the account is set up again")
                return

    def _note(self, why: str) -> None:
        """Log a failure once, however often it is met."""
        if why != self.why:
            log.warning("the account cannot be set up yet", extra={"why": why})
        self.why = why
