"""The service's clock as a process sees it: the anchor in the store, refreshed now and then."""

from __future__ import annotations

import time
from contextlib import suppress

from mark.domain.clock import ClockAnchor
from mark.domain.errors import RetryLater
from mark.steady_time import WALL, steady_time
from mark.store.service import ServiceStore

REFRESH_S = 0.05


def adopt_wall(store: ServiceStore) -> None:
    """Have this process count the wall's time as the service's other processes on this host do."""
    WALL.adopt(store.share_wall(WALL.offset_s))


class ServiceClock:
    """The Clock port over the store's anchor; while the store is unreachable it goes on as it was."""

    def __init__(self, store: ServiceStore) -> None:
        self._store = store
        self._anchor = store.clock()
        self._read_at = time.monotonic()
        self._latest = self._anchor.service_time(steady_time())

    @property
    def anchor(self) -> ClockAnchor:
        """The clock's anchor, at most REFRESH_S old."""
        if time.monotonic() - self._read_at > REFRESH_S:
            with suppress(RetryLater):
                self._anchor = self._store.clock()
            self._read_at = time.monotonic()
        return self._anchor

    def now(self) -> float:
        """Service time; never goes back."""
        self._latest = max(self._latest, self.anchor.service_time(steady_time()))
        return self._latest

    def wall_until(self, service: float) -> float:
        """Real seconds until it shows `service`; infinite while it stands still."""
        return self.anchor.wall_time(service) - steady_time()
