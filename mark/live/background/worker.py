"""The background worker of the acting controller: archiving, alarms and housekeeping in its account.

A thread of its own that nobody waits for, with clients of its own: AWS may be as slow as it likes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from mark.aws.session import Aws
from mark.live.background.alerts import AlertWatch
from mark.live.background.archive import Archivist
from mark.live.background.beat import Beat
from mark.live.background.failures import BackgroundFailures
from mark.live.background.housekeeping import Housekeeper
from mark.live.clock import ServiceClock
from mark.store.service import ServiceStore

POLL_S = 1.0
"""Real seconds between two polls of the tasks."""


class PeriodicTask(Protocol):
    """A task that knows when it is due."""

    def poll(self) -> None:
        """Do what is due. RetryLater where the store is unreachable."""


def all_tasks(store: ServiceStore, aws: Aws) -> tuple[PeriodicTask, ...]:
    """The tasks of a live service."""
    clock = ServiceClock(store)
    return (
        Beat(store=store, aws=aws, clock=clock),
        AlertWatch(store=store, aws=aws, clock=clock),
        Archivist(store=store, aws=aws, clock=clock),
        Housekeeper(store=store, clock=clock),
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
