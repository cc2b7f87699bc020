"""The DataPlane port over the store, where gateways report what they counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mark.controller.demand_units import (
    MonitorState,
    above_shared,
    advance_monitor,
    counted_unit,
    recent_windows,
    unit_windows,
    window_rates,
    window_speeds,
)
from mark.controller.policy import MonitorPolicy
from mark.dispatch.objective import missed_target
from mark.domain.demand import UNIT_S, DemandUnit
from mark.domain.load.size_window import SizeCounts, sizes_since
from mark.domain.load.traffic import ClientTraffic, ModelTraffic, grown_since
from mark.domain.models.objective import SloWindow
from mark.domain.models.variants import AccuracyTotal
from mark.live.clock import ServiceClock
from mark.store.service import ServiceStore


class LiveDataPlane:
    """One model's data plane. `next_unit_at` is where the history ended: units go on from there, none twice."""

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
        traffic = store.traffic(model)
        before = traffic.outcomes
        self._monitor = MonitorState(opened_at=clock.now(), finished=before.finished, missed=before.missed)
        self._closed: SloWindow | None = None
        self._clients, self._sizes = traffic.clients, traffic.sizes
        self._accuracy, self._outcomes = _accuracy_of(traffic), traffic.outcomes

    def next_unit(self) -> DemandUnit | None:
        """Take the oldest unit that has ended and was not taken yet."""
        if not self.is_behind():
            return None
        start_at = self._next_unit_at
        windows = unit_windows(start_at)
        self._next_unit_at += UNIT_S
        speeds = window_speeds(self._store.clocks(), *windows)
        counts, own = self._counts(*windows)
        whole, unit = counted_unit(start_at, counts, speeds), counted_unit(start_at, own, speeds)
        traffic = self._store.traffic(self._model)
        before, self._accuracy = self._accuracy, _accuracy_of(traffic)
        earlier, self._outcomes = self._outcomes, traffic.outcomes
        return replace(
            unit,
            shared_rps=whole.mean_rps - unit.mean_rps,
            clients=self._take_clients(traffic),
            accuracy=self._accuracy.since(before),
            sizes=self._take_sizes(traffic),
            outcomes=self._outcomes.since(earlier),
        )

    def _counts(self, first: int, last: int) -> tuple[list[int], list[int]]:
        """Requests of these windows, both included, and those of them that shared instances did not take."""
        counts = self._store.arrivals(self._model, first, last)
        return counts, above_shared(counts, self._store.shared(self._model, first, last))

    def _take_sizes(self, traffic: ModelTraffic) -> SizeCounts:
        """Take what was counted by size since the last call."""
        before, self._sizes = self._sizes, traffic.sizes
        return sizes_since(self._sizes, before)

    def _take_clients(self, traffic: ModelTraffic) -> tuple[ClientTraffic, ...]:
        """Take what was counted by client since the last call; who asked for nothing is left out."""
        before, self._clients = self._clients, traffic.clients
        known = {one.client: one for one in before}
        grown = (grown_since(one, known.get(one.client)) for one in self._clients)
        return tuple(one for one in grown if one.requests)

    def is_behind(self) -> bool:
        """True where a unit has ended that was not taken yet."""
        return self._clock.now() >= self._next_unit_at + UNIT_S

    def take_slo_window(self) -> SloWindow | None:
        """Take the window that closed since the last call; None where none did."""
        self._poll_monitor()
        window, self._closed = self._closed, None
        return window

    def has_missed(self) -> bool:
        """True where a window that closed missed the objective: the controller should tick at once."""
        self._poll_monitor()
        window = self._closed
        return window is not None and missed_target(window.missed, window.requests, self._target)

    def lambda_warm(self) -> int:
        """Environments that gateways' calls or our own pings should have left warm."""
        return max(self._store.traffic(self._model).lambda_warm, self._warmed())

    def recent_rps(self) -> tuple[float, ...]:
        """Rates of the last whole windows, at most twelve, oldest first, less what shared instances took."""
        windows = recent_windows(self._clock.now(), self._since)
        if not windows:
            return ()
        first, last = windows[0], windows[-1]
        own = self._counts(first, last)[1]
        return window_rates(own, window_speeds(self._store.clocks(), first, last))

    def _poll_monitor(self) -> None:
        if self._monitor_policy is None:
            return
        traffic = self._store.traffic(self._model)
        self._monitor, window = advance_monitor(self._monitor, traffic, self._clock.now(), self._monitor_policy)
        self._closed = window or self._closed


def _accuracy_of(traffic: ModelTraffic) -> AccuracyTotal:
    return AccuracyTotal(answers=traffic.accuracy_known, accuracy_sum=traffic.accuracy_sum)
