"""The account's vCPU quotas, read again each hour: AWS raises them when it is asked to, and may lower them."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping

from mark.aws.errors import code_of, remedy
from mark.controller.limits.quotas import SharedQuotas
from mark.domain.errors import MarkError
from mark.domain.offerings.offering import Offering
from mark.domain.offerings.quota import Quotas
from mark.ports import Clock

log = logging.getLogger(__name__)

EACH_S = 3600.0
"""Of the service's clock, between two readings."""
AGAIN_S = 300.0
"""Of the service's clock, until a reading that failed is tried again."""
POLL_S = 1.0
"""Real seconds between two looks at the clock."""


class QuotaWatch:
    """Reads the quotas on a thread of its own; `latest` is the last reading."""

    def __init__(
        self, read: Callable[[], Quotas], *, clock: Clock, record: Callable[[str | None], object]
    ) -> None:
        """`record` takes why they cannot be read, None where they can."""
        self._read, self._clock, self._record = read, clock, record
        self._latest: Quotas | None = None
        self._due_at = -math.inf

    def latest(self) -> Quotas | None:
        """The quotas as they were last read; None where they were not yet."""
        return self._latest

    def run(self, over: threading.Event) -> None:
        """Read them each hour until `over` is set; while they cannot be read the last ones stay."""
        while not over.wait(POLL_S):
            self.poll()

    def poll(self) -> None:
        """Read them if it is time."""
        now = self._clock.now()
        if now < self._due_at:
            return
        try:
            self._latest = self._read()
        except MarkError as error:
            log.warning("the quotas cannot be read", extra={"why": f"{error}; {remedy(code_of(error))}"})
            self._record(str(error))
            self._due_at = now + AGAIN_S
        else:
            self._record(None)
            self._due_at = now + EACH_S


class LeftOfQuotas:
    """Quotas that are left for a model, for drivers that each have a thread. latest: the last reading."""

    def __init__(self, latest: Callable[[], Quotas | None], offerings: Iterable[Offering]) -> None:
        self._latest, self._shared, self._lock = latest, SharedQuotas(offerings), threading.Lock()

    def left_for(self, name: str) -> Quotas | None:
        """Quotas that all others leave a model, or the shared instances; None where no quotas are known."""
        with self._lock:
            return self._shared.left_for(name, self._latest())

    def note(self, name: str, counts: Mapping[str, int]) -> None:
        """Replace what it takes: instances by offering."""
        with self._lock:
            self._shared.note(name, counts)
