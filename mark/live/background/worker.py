"""The background worker of the acting controller: archiving, alarms and housekeeping in its account.

A thread of its own that nobody waits for, with clients of its own: AWS may be as slow as it likes.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from mark.aws.session import Aws
from mark.domain.fleet.orphan import BEAT_S
from mark.live.background import alerts, housekeeping
from mark.live.background.archive import Archivist
from mark.live.background.beat import give_sign
from mark.live.background.failures import BackgroundFailures
from mark.live.clock import ServiceClock
from mark.ports import Clock
from mark.store.service import ServiceStore

POLL_S = 1.0
"""Real seconds between two polls of the tasks."""


class PeriodicTask(Protocol):
    """A task that knows when it is due."""

    def poll(self) -> None:
        """Do what is due. RetryLater where the store is unreachable."""


class Each:
    """Work that is done each `each_s` of the service's clock, and at the next poll again where it failed."""

    def __init__(self, each_s: float, work: Callable[[float], None], clock: Clock) -> None:
        """`work` is given service time."""
        self._each_s, self._work, self._clock = each_s, work, clock
        self._due_at = -math.inf

    def poll(self) -> None:
        """Do it where it is due. Errors as of the work."""
        now = self._clock.now()
        if now >= self._due_at:
            self._work(now)
            self._due_at = now + self._each_s


def all_tasks(store: ServiceStore, aws: Aws) -> tuple[PeriodicTask, ...]:
    """The tasks of a live service."""
    clock = ServiceClock(store)
    return (
        Each(BEAT_S, partial(give_sign, store, aws), clock),
        Each(alerts.EACH_S, partial(alerts.publish_alerts, store, aws), clock),
        Archivist(store=store, aws=aws, clock=clock),
        Each(housekeeping.EACH_S, partial(housekeeping.keep_house, store), clock),
    )


def start_background_worker(
    *,
    store: ServiceStore,
    aws: Aws,
    holder: str,
    stop: threading.Event,
    failures: BackgroundFailures,
    tasks: Callable[[ServiceStore, Aws], Sequence[PeriodicTask]] = all_tasks,
) -> threading.Thread:
    """Start the thread: it works while `holder` has the lease, until `stop`, and records what fails."""
    worker = _Worker(store, aws, holder, tasks)

    def run() -> None:
        failures.run_periodically(
            "archiving, alarms and housekeeping", worker.turn, each_s=POLL_S, stop=stop, begin_s=POLL_S
        )

    thread = threading.Thread(target=run, name="background", daemon=True)
    thread.start()
    return thread


class _Worker:
    """Polls the tasks, which are made when they are first needed."""

    def __init__(
        self,
        store: ServiceStore,
        aws: Aws,
        holder: str,
        make_tasks: Callable[[ServiceStore, Aws], Sequence[PeriodicTask]],
    ) -> None:
        self._store, self._aws, self._holder = store, aws, holder
        self._make_tasks = make_tasks
        self._tasks: Sequence[PeriodicTask] = ()

    def turn(self) -> None:
        """Poll all tasks, if this process acts; one that fails keeps no other from its turn."""
        if self._store.leases.held_by() != self._holder:
            return
        self._tasks = self._tasks or self._make_tasks(self._store, self._aws)
        failures: list[Exception] = []
        for task in self._tasks:
            try:
                task.poll()
            except Exception as error:  # noqa: BLE001 - it is raised below
                failures.append(error)
        if failures:
            raise failures[0]
