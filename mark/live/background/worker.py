"""What the acting controller does in its account beside its ticks: archiving, looking for alarms, housekeeping.

It does so on a thread of its own that nobody waits for, with clients of its own: AWS may be as slow as it likes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from mark.aws.session import Aws
from mark.live.background.alerts import AlertWatch
from mark.live.background.archive import Archivist
from mark.live.background.failures import Troubles
from mark.live.background.housekeeping import Housekeeper
from mark.live.clock import ServiceClock
from mark.store.service import ServiceStore

LOOK_S = 1.0
"""Real seconds between two looks whether something is due."""


class Duty(Protocol):
    """Something to be done now and then."""

    def look(self) -> None:
        """Do what is due. RetryLater where the store is away."""


def all_duties(store: ServiceStore, aws: Aws) -> tuple[Duty, ...]:
    """What there is to do."""
    clock = ServiceClock(store)
    return (
        AlertWatch(store=store, aws=aws, clock=clock),
        Archivist(store=store, aws=aws, clock=clock),
        Housekeeper(store=store, clock=clock),
    )


def begin_aside(
    *,
    store: ServiceStore,
    make_aws: Callable[[], Aws],
    holder: str,
    stop: threading.Event,
    troubles: Troubles,
    duties: Callable[[ServiceStore, Aws], Sequence[Duty]] = all_duties,
) -> threading.Thread:
    """Start it; it works while `holder` has the lease, until `stop` is set. What fails is told by `troubles`."""
    work = _Work(store, make_aws, holder, duties)

    def run() -> None:
        troubles.keep_on("archiving, alarms and housekeeping", work.turn, each_s=LOOK_S, stop=stop, begin_s=LOOK_S)
        work.close()

    thread = threading.Thread(target=run, name="aside", daemon=True)
    thread.start()
    return thread


class _Work:
    """The duties, and clients that are made when there is something to do."""

    def __init__(
        self,
        store: ServiceStore,
        make_aws: Callable[[], Aws],
        holder: str,
        make_duties: Callable[[ServiceStore, Aws], Sequence[Duty]],
    ) -> None:
        self._store, self._make_aws, self._holder = store, make_aws, holder
        self._make_duties = make_duties
        self._aws: Aws | None = None
        self._duties: Sequence[Duty] = ()

    def turn(self) -> None:
        """Do what is due, if we act. One duty's failure keeps no other from its turn."""
        if self._store.leases.held_by() != self._holder:
            return
        self._aws = self._aws or self._make_aws()
        self._duties = self._duties or self._make_duties(self._store, self._aws)
        failures: list[Exception] = []
        for duty in self._duties:
            try:
                duty.look()
            except Exception as error:  # noqa: BLE001 - it is raised below
                failures.append(error)
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Close the clients."""
        if self._aws is not None:
            self._aws.close()
