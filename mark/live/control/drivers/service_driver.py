"""The loop of a service's controller: looks after shared instances, then ticks each model that is due.

Several times a second it asks every driver whether something is due, so a service of many models is one loop and
not one a model. Ticks that are due together overlap where they wait for AWS.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

POLL_EACH_S = 0.05
"""Real seconds between two passes."""
OVERLAPPING = 16
"""Models at most whose ticks wait for AWS at a time: a launch takes a second or two there."""


class Driver(Protocol):
    """A part of the service that acts at its own times. Errors: RetryLater, LeaseLost: recover anew."""

    def is_due(self) -> bool:
        """True where it has to act now; what it does between two acts is done here."""
        ...

    def act(self) -> None:
        """Do what is due."""
        ...

    def wake(self) -> None:
        """Be due at the next pass: something happened."""
        ...


class ServiceDriver:
    """The loop while this process holds the lease. hosts: of shared instances, None where no models share."""

    def __init__(self, models: Sequence[Driver], hosts: Driver | None = None) -> None:
        self._models, self._hosts = models, hosts
        self._all = (*models, hosts) if hosts is not None else tuple(models)
        self._wake = threading.Event()

    def wake(self) -> None:
        """Have everybody act at once: something happened."""
        for driver in self._all:
            driver.wake()
        self._wake.set()

    def run(self, over: threading.Event) -> None:
        """Pass until `over`. Raises what a driver raised."""
        with ThreadPoolExecutor(min(OVERLAPPING, len(self._models))) as pool:
            while not over.is_set():
                self._wake.clear()
                if not self._pass(pool):
                    self._wake.wait(POLL_EACH_S)

    def _pass(self, pool: ThreadPoolExecutor) -> bool:
        """Ask everybody once; False where nothing was due. Models plan what shared instances will not take."""
        hosts = [self._hosts] if self._hosts is not None and self._hosts.is_due() else []
        for driver in hosts:
            driver.act()
        models = [driver for driver in self._models if driver.is_due()]
        for _ in pool.map(lambda driver: driver.act(), models):
            pass
        return bool(hosts or models)
