"""What the acting controller does in its account beside its ticks: archiving, and looking for alarms.

It does so on a thread of its own that nobody waits for, with clients of its own: AWS may be as slow as it likes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from mark.app.live.alerting import AlertWatch
from mark.app.live.archiving import Archivist
from mark.app.live.clock import ServiceClock
from mark.aws.session import Aws
from mark.domain.errors import RetryLater
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Real seconds between two looks whether something is due."""


class Duty(Protocol):
    """Something to be done now and then."""

    def look(self) -> None:
        """Do what is due. RetryLater where the store is away; what AWS refuses is told by status."""


def begin_aside(
    *, store: ServiceStore, make_aws: Callable[[], Aws], holder: str, stop: threading.Event
) -> threading.Thread:
    """Start it; it works while `holder` has the lease, until `stop` is set."""

    def run() -> None:
        if stop.wait(LOOK_S):
            return
        aws, clock = make_aws(), ServiceClock(store)
        duties = (AlertWatch(store=store, aws=aws, clock=clock), Archivist(store=store, aws=aws, clock=clock))
        _work(duties, store, holder, stop)
        aws.close()

    thread = threading.Thread(target=run, name="aside", daemon=True)
    thread.start()
    return thread


def _work(duties: Sequence[Duty], store: ServiceStore, holder: str, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            if store.leases.held_by() == holder:
                for duty in duties:
                    duty.look()
        except RetryLater as error:
            log.warning("the store is away", extra={"why": str(error)})
        stop.wait(LOOK_S)
