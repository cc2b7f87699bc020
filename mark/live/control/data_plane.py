"""The DataPlane port over the store: what gateways counted, as the controller asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable

from mark.controller.demand_units import (
    MonitorState,
    advance_monitor,
    live_unit,
    totals_of,
    unit_windows,
    window_of,
    window_speeds,
)
from mark.controller.policy import MonitorPolicy
from mark.dispatch.objective import missed_target
from mark.domain.demand import UNIT_S, WINDOW_S, DemandUnit
from mark.domain.orders import SloWindow
from mark.live.clock import ServiceClock
from mark.store.service import ServiceStore

RECENT_WINDOWS = 12


class LivePlane:
    """One model's traffic. `next_unit_at` is where the history ended: units go on from there, none twice."""

    def __init__(
        self,
        store: ServiceStore,
        model: str,
        *,
        clock: ServiceClock,
        next_unit_at: float,
        monitor: MonitorPolicy | None,
        target: float,
        warmed: Callable[[], int] = lambda: 0,
    ) -> None:
        self._warmed = warmed
        self._store, self._model, self._clock = store, model, clock
        self._next_unit_at = next_unit_at
        self._since = next_unit_at
        self._monitor_policy, self._target = monitor, target
        finished, missed = totals_of(store.traffic(model))
        self._monitor = MonitorState(opened_at=clock.now(), finished=finished, missed=missed)
        self._closed: SloWindow | None = None

    def demand(self) -> DemandUnit | None:
        """The oldest unit that has closed and was not given yet."""
        if not self.is_behind():
            return None
        start_at = self._next_unit_at
        counts = self._store.arrivals(self._model, *unit_windows(start_at))
        self._next_unit_at += UNIT_S
        return live_unit(start_at, counts, window_speeds(self._store.clocks(), *unit_windows(start_at)))

    def is_behind(self) -> bool:
        """Whether a unit has closed that was not given yet."""
        return self._clock.now() >= self._next_unit_at + UNIT_S

    def slo_window(self) -> SloWindow | None:
        """The window that closed since the last call, if one did."""
        self._look()
        window, self._closed = self._closed, None
        return window

    def has_missed(self) -> bool:
        """Whether a window has closed that missed the objective: the controller should look at once."""
        self._look()
        window = self._closed
        return window is not None and missed_target(window.missed, window.requests, self._target)

    def lambda_warm(self) -> int:
        """Environments that gateways' calls or our own pings should have left warm."""
        return max(self._store.traffic(self._model).lambda_warm, self._warmed())

    def recent_rps(self) -> tuple[float, ...]:
        """Rates of the last whole windows, at most twelve, oldest first."""
        after = window_of(self._clock.now())
        first = max(after - RECENT_WINDOWS, math.ceil(self._since / WINDOW_S))
        if first >= after:
            return ()
        counts = self._store.arrivals(self._model, first, after - 1)
        speeds = window_speeds(self._store.clocks(), first, after - 1)
        return tuple(count * speed / WINDOW_S for count, speed in zip(counts, speeds, strict=True))

    def _look(self) -> None:
        if self._monitor_policy is None:
            return
        traffic = self._store.traffic(self._model)
        self._monitor, window = advance_monitor(self._monitor, traffic, self._clock.now(), self._monitor_policy)
        self._closed = window or self._closed
