"""A live controller looks for surges when a replay does: at the end of each window, once it is reported."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mark.domain.clock import ClockAnchor
from mark.domain.demand import WINDOW_S
from mark.live.control.drivers.driver import SETTLE_S, ModelDriver

START = 1_800_000_015.0


class Moved:
    """A service's clock that the test moves, in real seconds."""

    def __init__(self, speed: float) -> None:
        self.wall, self.anchor = 0.0, ClockAnchor(service_at=START, speed=speed)

    def now(self) -> float:
        return self.anchor.service_time(self.wall)

    def wall_until(self, service: float) -> float:
        return self.anchor.wall_time(service) - self.wall


def driver(clock: Moved, watch_s: float, polled: list[float]) -> ModelDriver:
    def is_surging() -> bool:
        polled.append(clock.now())
        return False

    controller: Any = SimpleNamespace(watch_s=watch_s, is_surging=is_surging)
    rest: Any = SimpleNamespace()
    return ModelDriver(controller, clock=clock, cloud=rest, plane=rest, publisher=rest, journal=rest, header=rest)  # type: ignore[arg-type]


@given(speed=st.sampled_from([1.0, 20.0]), late_s=st.lists(st.floats(0.0, 0.04), min_size=50, max_size=50))
def test_each_window_is_looked_at_once_soon_after_it_is_reported(speed: float, late_s: list[float]) -> None:
    clock, polled = Moved(speed), list[float]()
    made = driver(clock, WINDOW_S, polled)
    for late in late_s * 4:
        clock.wall += 0.05 + late
        made._is_surging()
    windows = [math.floor((at - START) / WINDOW_S) for at in polled]
    assert windows == sorted(set(windows))
    assert len(windows) >= math.floor((clock.now() - START) / WINDOW_S) - 1
    for at in polled[1:]:
        assert SETTLE_S <= ((at - START) % WINDOW_S + 1e-6) / speed <= SETTLE_S + 0.1


def test_a_policy_that_bridges_no_surges_is_never_polled() -> None:
    clock, polled = Moved(20.0), list[float]()
    made = driver(clock, math.inf, polled)
    for _ in range(100):
        clock.wall += 0.05
        made._is_surging()
    assert polled == []
