"""Demand units, recent rates and the SLO monitor's windows, made from counts. Pure, for live and replay.

Gateways count arrivals in windows of 5 s of service time and add up what became of requests; both only grow. A
clock that runs `speed` times as fast as the wall collects a window in 5 / speed real seconds, so its rate is its
count times `speed` / 5: the rates are real, only time is compressed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mark.controller.policy import MonitorPolicy
from mark.dispatch.objective import is_window_full
from mark.domain.clock import ClockAnchor, mean_speed
from mark.domain.demand import UNIT_S, WINDOW_S, DemandUnit, unit_of_windows
from mark.domain.load.traffic import ModelTraffic
from mark.domain.models.objective import SloWindow

WINDOWS_A_UNIT = round(UNIT_S / WINDOW_S)
RECENT_WINDOWS = 12
"""Windows that a surge is looked for in: a minute."""


def window_of(at: float) -> int:
    """The number of the window that holds the instant `at`, service time."""
    return math.floor(at / WINDOW_S)


def unit_windows(start_at: float) -> tuple[int, int]:
    """First and last window of the unit that starts at `start_at`, which is a window's first instant."""
    first = round(start_at / WINDOW_S)
    return first, first + WINDOWS_A_UNIT - 1


def window_speeds(anchors: Sequence[ClockAnchor], first: int, last: int) -> list[float]:
    """The clock's speed in each of these windows, both included."""
    return [mean_speed(anchors, at * WINDOW_S, (at + 1) * WINDOW_S) for at in range(first, last + 1)]


def counted_unit(start_at: float, counts: Sequence[int], speeds: Sequence[float]) -> DemandUnit:
    """The unit of these windows. counts: requests in each, oldest first; `count` is scaled as the rates are."""
    return unit_of_windows(start_at, [count * speed for count, speed in zip(counts, speeds, strict=True)])


def above_shared(counts: Sequence[int], shared: Sequence[int]) -> list[int]:
    """The part of each window's requests that shared instances did not take."""
    return [max(0, count - taken) for count, taken in zip(counts, shared, strict=True)]


def recent_windows(now: float, since: float) -> range:
    """The last whole windows by `now`, RECENT_WINDOWS at most; none from before `since`."""
    end = window_of(now)
    return range(max(end - RECENT_WINDOWS, math.ceil(since / WINDOW_S)), end)


def window_rates(counts: Sequence[int], speeds: Sequence[float]) -> tuple[float, ...]:
    """The rate of each window, requests/s."""
    return tuple(count * speed / WINDOW_S for count, speed in zip(counts, speeds, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorState:
    """The SLO monitor's open window: when it was opened, and the totals at that instant."""

    opened_at: float
    finished: int
    missed: int


def advance_monitor(
    state: MonitorState, traffic: ModelTraffic, now: float, monitor: MonitorPolicy
) -> tuple[MonitorState, SloWindow | None]:
    """The monitor after a look at the totals, and the window that was full by `now`; None where it was not."""
    outcomes = traffic.outcomes
    requests = outcomes.finished - state.finished
    if not is_window_full(requests, now - state.opened_at, monitor.requests, monitor.seconds):
        return state, None
    window = SloWindow(closed_at=now, requests=requests, missed=outcomes.missed - state.missed)
    return replace(state, opened_at=now, finished=outcomes.finished, missed=outcomes.missed), window
