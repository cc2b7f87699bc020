"""Each past day under other policies, replayed at night in the background, so that a report finds it done.

The acting controller looks whether a day of UTC (on the service's clock) is over that nobody has replayed yet, the
last one first, and has a child process of low priority replay it. What it finds lies in the store beside the rest
(`mark.report.cost.replays`); which days were done, what runs and what failed is in the status document
NIGHTLY. A day that fails is tried again after a pause; one that is cut short by the end of a term begins anew
with the next. Nothing waits for it: no tick, no forecast, and a forecaster in training keeps it waiting.
"""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from mark.accounting.daily_costs import DAY_S, days_between
from mark.adapters import adapter_of
from mark.config.settings import Settings
from mark.domain.errors import RetryLater
from mark.live.forecasting.forecaster_training import ONE_THREAD
from mark.live.forecasting.retraining import REST, pause_after
from mark.live.local.running import Running
from mark.report.cost.read import Period, report_period
from mark.report.cost.replays import KEEP_DAYS
from mark.steady_time import steady_time
from mark.store.published_status import NIGHTLY, FailedReplay, NightlyStatus, RunningReplay
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

MODULE = "mark.live.processes.replayer"
POLL_EACH_S = 20.0
SETTLE_S = 300.0
"""Service seconds after midnight until the day's last minutes stand in every journal."""
LIMIT_S = 2 * 3600.0
"""Real seconds after which the replay of a day is given up."""
CHILD_POLL_S = 0.2


class _ReplayFailed(Exception):
    """The child did not replay the day; the message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A day `[since, until)` of a service's clock, and under which policies it is replayed."""

    service: str
    store_url: str
    settings: Settings
    since: float
    until: float
    policies: tuple[str, ...]


class NightlyReplays:
    """The replays of one service. All transitions of NIGHTLY are here: a day starts, is done, or failed."""

    def __init__(
        self,
        settings: Settings,
        running: Running,
        *,
        store: ServiceStore,
        slot: threading.Lock,
        pause: Callable[[float], float] = pause_after,
    ) -> None:
        """`slot` is shared by all that computes in the background, one at a time."""
        self._settings, self._running, self._store = settings, running, store
        self._slot, self._pause = slot, pause
        self._rest_until = time.monotonic() + pause(0.0)

    def run(self, over: threading.Event) -> None:
        """Replay what is missing until `over`."""
        if not self._settings.service.report.policies:
            over.wait()
            return
        while not over.is_set():
            try:
                self.poll(over)
            except RetryLater as error:
                log.warning("replays wait: the store is unreachable", extra={"why": str(error)})
            over.wait(POLL_EACH_S)

    def poll(self, over: threading.Event) -> None:
        """Replay one day, where one is missing and it is time. RetryLater where the store is unreachable."""
        if time.monotonic() < self._rest_until:
            return
        found = self._next_day()
        if found is None or not self._slot.acquire(blocking=False):
            return
        try:
            self._replay(*found, over)
        finally:
            self._slot.release()

    def _next_day(self) -> tuple[str, Period] | None:
        """The latest day that is over and was not replayed under all the policies; what failed last comes last."""
        period = report_period(self._store, period_s=KEEP_DAYS * DAY_S, wall_at=steady_time())
        midnight = math.floor((period.until - SETTLE_S) / DAY_S) * DAY_S
        told, asked = self._read_status(), set(self._settings.service.report.policies)
        missing = [
            (day.isoformat(), Period(since=start, until=end))
            for day, start, end in reversed(days_between(period.since, midnight))
            if not asked <= set(told.days.get(day.isoformat(), ()))
        ]
        failed = told.failed and told.failed.day
        return min(missing, key=lambda item: item[0] == failed, default=None)

    def _replay(self, day: str, period: Period, over: threading.Event) -> None:
        told, began = self._read_status(), time.monotonic()
        self._publish(replace(told, running=RunningReplay(day=day, since=self._now())))
        policies = self._settings.service.report.policies
        task = Task(
            service=self._running.name,
            store_url=self._running.store,
            settings=self._settings,
            since=period.since,
            until=period.until,
            policies=policies,
        )
        try:
            replay_apart(task, over)
        except (_ReplayFailed, OSError) as error:
            failed = None if over.is_set() else FailedReplay(day=day, at=self._now(), error=str(error))
            self._rest_until = time.monotonic() + self._pause(time.monotonic() - began)
            if failed:
                log.warning("a day could not be replayed", extra={"day": day, "why": str(error)})
            self._publish(replace(told, running=None, failed=failed or told.failed))
            return
        self._rest_until = time.monotonic() + min(REST * (time.monotonic() - began), self._pause(0.0))
        days = {**told.days, day: policies}
        self._publish(NightlyStatus(days=dict(sorted(days.items())[-KEEP_DAYS:])))

    def _read_status(self) -> NightlyStatus:
        return NIGHTLY.read(self._store) or NightlyStatus()

    def _publish(self, told: NightlyStatus) -> None:
        NIGHTLY.write(self._store, told)

    def _now(self) -> float:
        return self._store.clock().service_time(steady_time())


def replay_apart(task: Task, over: threading.Event, *, limit_s: float = LIMIT_S) -> None:
    """Have a child replay it; _ReplayFailed where it did not, or `over` or the limit came first."""
    command = [*ONE_THREAD, sys.executable, "-P", "-m", MODULE, str(os.getpid())]
    until, told = time.monotonic() + limit_s, adapter_of(Task).dump_json(task)
    given: bytes | None = told
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:  # noqa: S603 - our own
        while True:
            try:
                said, _ = child.communicate(given, timeout=CHILD_POLL_S)
                break
            except subprocess.TimeoutExpired:
                given = None  # it has been sent
                if over.is_set() or time.monotonic() > until:
                    child.kill()  # whole days are in the store already
        if over.is_set():
            raise _ReplayFailed("the term ended")
    if child.returncode != 0:
        lines = said.decode(errors="replace").splitlines()
        raise _ReplayFailed(lines[-1] if lines else _end_words(child.returncode, limit_s))


def _end_words(status: int, limit_s: float) -> str:
    if status == -9:
        return f"its process was killed: it lacked memory, or was not done within {limit_s:g} s"
    return f"its process ended with status {status}"
