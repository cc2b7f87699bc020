"""Moving a rehearsal's clock: the store and the emulated AWS are told the same."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from mark.domain.clock import ClockAnchor
from mark.domain.demand import WINDOW_S
from mark.domain.errors import Misconfigured
from mark.live.local.emulator_client import EmulatedControls
from mark.live.local.running import Running
from mark.steady_time import steady_time
from mark.store.connect import connect
from mark.store.service import ServiceStore

MARGIN_S = 2.0
"""The clock keeps its speed a little longer than the load lasts: answers are still to come."""


def first_anchor(before: ClockAnchor | None, wall: float, seen_until: float = 0.0) -> ClockAnchor:
    """First anchor of a service's clock: it stands still at a window's start.

    It shows the wall's time. But where a store that outlives its service knows a clock, `before`, that a
    rehearsal took ahead, or was told of a tick at `seen_until` (the system's clock was set back since), it goes
    on there: what is stored would else lie in the future, and nothing be planned till then.
    """
    shows = math.floor(wall / WINDOW_S) * WINDOW_S
    if before is not None:
        shows = max(shows, math.ceil(before.service_time(wall) / WINDOW_S) * WINDOW_S)
    shows = max(shows, math.ceil(seen_until / WINDOW_S) * WINDOW_S)
    return ClockAnchor(wall_at=wall, service_at=shows, speed=0.0)


def set_clock(store: ServiceStore, controls: EmulatedControls, anchor: ClockAnchor) -> None:
    """Let the service's clock and the emulated AWS's stand at `anchor`."""
    controls.set_clock(anchor)
    store.put_clock(anchor)


@contextmanager
def run_clock(running: Running, *, speed: float, from_wall: float, for_s: float) -> Iterator[None]:
    """Run the clock `speed` times as fast from `from_wall` on, for `for_s` real seconds; then as fast as the wall.

    A clock that stood still starts here. It is slowed down again even if the caller is killed: the anchor ends.
    """
    if not speed > 0:
        raise Misconfigured(f"--speed must be above 0, not {speed:g}")
    store = ServiceStore(connect(running.store), running.name)
    controls = EmulatedControls.of(running)
    before = store.clock()
    if speed == 1.0 and before.speed_at(steady_time()) == 1.0:
        yield
        return
    anchor = ClockAnchor(
        wall_at=from_wall,
        service_at=before.service_time(from_wall),
        speed=speed,
        until_wall=from_wall + for_s + MARGIN_S if speed != 1.0 else float("inf"),
    )
    set_clock(store, controls, anchor)
    try:
        yield
    finally:
        wall = steady_time()
        set_clock(store, controls, ClockAnchor(wall_at=wall, service_at=anchor.service_time(wall)))
