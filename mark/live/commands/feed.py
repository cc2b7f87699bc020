"""`mark feed`: counts requests that another fleet serves, a line each, for a service that observes."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections import Counter
from typing import TextIO

from mark.controller.demand_units import window_of
from mark.domain.errors import RetryLater
from mark.domain.load.traffic import GatewayReport, ModelTraffic
from mark.live.clock import ServiceClock, adopt_wall
from mark.live.commands.load import chosen
from mark.live.local.run_dir import find_running
from mark.report.terminal import note
from mark.store.connect import connect
from mark.store.service import ServiceStore

REPORT_EACH_S = 0.5


class Feed:
    """Counts lines by the window in which they came and reports them as a gateway would, each once."""

    def __init__(self, store: ServiceStore, model: str) -> None:
        self._store, self._model = store, model
        adopt_wall(store)
        self._clock = ServiceClock(store)
        self._name = f"feed-{model}-{os.getpid()}-{time.time_ns()}"
        self._counts: Counter[int] = Counter()
        self._unsent: GatewayReport | None = None
        self._sequence = 0
        self.total = 0

    def count_requests(self, count: int = 1) -> None:
        """Count requests that arrive now."""
        if count:
            self._counts[window_of(self._clock.now())] += count
            self.total += count

    def publish(self) -> None:
        """Report what came since; what a store that is unreachable was not told is told next time, once."""
        if self._unsent is None and self._counts:
            self._sequence += 1
            traffic = ModelTraffic(model=self._model, arrivals=tuple(sorted(self._counts.items())))
            self._unsent = GatewayReport(gateway=self._name, sequence=self._sequence, models=(traffic,))
            self._counts = Counter()
        if self._unsent is None:
            return
        try:
            self._store.report(self._unsent)
        except RetryLater:
            return
        self._unsent = None


def started_feed(service: str, model: str | None) -> tuple[Feed, str]:
    """The feed of a running service's model, and its name; the first model where none is named."""
    running = find_running(service)
    name = str(chosen(running, model)["name"])
    return Feed(ServiceStore(connect(running.store), service), name), name


def feed_service(service: str, model: str | None, source: TextIO = sys.stdin) -> None:
    """Count the source's lines until it ends, or Ctrl-C."""
    feed, name = started_feed(service, model)
    lines: queue.SimpleQueue[bool] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(source, lines), daemon=True).start()
    try:
        while _count(feed, lines):
            feed.publish()
    except KeyboardInterrupt:
        pass
    feed.publish()
    note(f"{feed.total:,} requests of {name} were counted")


def _read(source: TextIO, lines: queue.SimpleQueue[bool]) -> None:
    for line in source:
        if line.strip():
            lines.put(True)
    lines.put(False)


def _count(feed: Feed, lines: queue.SimpleQueue[bool]) -> bool:
    """Count what comes within a moment; whether more may come."""
    until = time.monotonic() + REPORT_EACH_S
    while (left_s := until - time.monotonic()) > 0:
        try:
            if not lines.get(timeout=left_s):
                return False
        except queue.Empty:
            return True
        feed.count_requests()
    return True
