"""Timers on service time: they follow the anchor when it is replaced, and wait while the clock stands still."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mark.domain.clock import ClockAnchor
from mark.steady_time import steady_time

TOLERANCE_S = 1e-6
"""Epoch seconds as floats are no finer."""
LONGEST_SLEEP_S = 3600.0

Action = Callable[[float], None]


@dataclass(slots=True, order=True)
class _Timer:
    at: float
    place: int
    action: Action = field(compare=False)


class ServiceClock:
    """The service's clock, and what is due on it. All calls are made on the event loop's thread."""

    def __init__(self, anchor: ClockAnchor, wall: Callable[[], float] = steady_time) -> None:
        self.anchor = anchor
        self._wall = wall
        self._timers: list[_Timer] = []
        self._scheduled = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Fire timers on the running event loop from now on."""
        self._loop = asyncio.get_running_loop()
        self._arm()

    def stop(self) -> None:
        """Fire no more."""
        self._timers.clear()
        if self._handle is not None:
            self._handle.cancel()
        self._loop = self._handle = None

    def now(self) -> float:
        """Service time, epoch seconds."""
        return self.anchor.service_time(self._wall())

    def replace(self, anchor: ClockAnchor) -> None:
        """Follow another anchor; what is due is due at the same service time as before."""
        self.anchor = anchor
        self._arm()

    def at(self, at: float, action: Action) -> None:
        """Call `action` with `at` once the clock shows it."""
        self._scheduled += 1
        timer = _Timer(at, self._scheduled, action)
        heapq.heappush(self._timers, timer)
        if self._timers[0] is timer:
            self._arm()

    def _arm(self) -> None:
        if self._loop is None:
            return
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if not self._timers:
            return
        due = self.anchor.wall_time(self._timers[0].at)
        if not math.isinf(due):
            wait_s = min(max(0.0, due - self._wall()), LONGEST_SLEEP_S)
            self._handle = self._loop.call_later(wait_s, self.fire_due)

    def fire_due(self) -> None:
        """Call what is due now; the event loop does, or who moves the wall's time by hand."""
        horizon = self.now() + TOLERANCE_S * max(1.0, self.anchor.speed)
        try:
            while self._timers and self._timers[0].at <= horizon:
                timer = heapq.heappop(self._timers)
                timer.action(timer.at)
        finally:
            self._arm()  # one that fails does not stop the clock


def iso(at: float) -> str:
    """Epoch seconds as AWS writes instants, with milliseconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(at % 1 * 1000):03d}Z"
