"""A pause from outside the service's network, polled: a stop that needs neither the store nor a gateway."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from mark.aws.errors import code_of, remedy
from mark.domain.billing.spending import OutsidePause
from mark.domain.errors import MarkError
from mark.store.published_status import OutsidePauseStatus

log = logging.getLogger(__name__)

EACH_S = 20.0
"""Real seconds between two polls: three calls a minute and controller."""


class OutsidePauseWatch:
    """Polls on a thread of its own, as long as the process lives; `latest` is the last answer."""

    def __init__(self, read: Callable[[], OutsidePause | None], *, record: Callable[[str | None], object]) -> None:
        """`record` takes why it cannot be read, None where it can."""
        self._read, self._record = read, record
        self._latest: OutsidePauseStatus | None = None

    def latest(self) -> OutsidePauseStatus | None:
        """The last answer; None where this process had none yet."""
        return self._latest

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop`."""
        while not stop.wait(EACH_S):
            self.poll()

    def poll(self) -> None:
        """Poll once; while it cannot be read the last answer stays."""
        try:
            answer = OutsidePauseStatus(pause=self._read())
        except MarkError as error:
            log.warning("a pause from outside cannot be read", extra={"why": f"{error}; {remedy(code_of(error))}"})
            self._record(str(error))
            return
        self._record(None)
        if answer != self._latest:
            self._latest = answer
            if answer.pause is not None:
                log.warning("the service is paused from outside", extra={"why": answer.pause.reason})
