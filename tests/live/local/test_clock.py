"""The service's clock goes on whatever the system's clock is set to."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mark.domain.clock import ClockAnchor
from mark.live.clock import ServiceClock, adopt_wall
from mark.live.local.process_watch import WallWatch
from mark.steady_time import WALL, steady_time

HOUR_S = 3600.0


class Store:
    """A store that holds an anchor, and what the host's first process counted with."""

    def __init__(self, offset_s: float | None = None) -> None:
        self.anchor, self.offset_s = ClockAnchor(wall_at=steady_time(), service_at=1000.0), offset_s

    def clock(self) -> ClockAnchor:
        return self.anchor

    def share_wall(self, offset_s: float) -> float:
        self.offset_s = offset_s if self.offset_s is None else self.offset_s
        return self.offset_s


@pytest.mark.parametrize("set_by_s", [-HOUR_S, HOUR_S])
def test_a_system_clock_that_is_set_neither_stops_it_nor_bills_an_hour(
    set_by_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = Store()
    clock = ServiceClock(store)
    before, real = clock.now(), time.time
    monkeypatch.setattr(time, "time", lambda: real() + set_by_s)
    assert before <= clock.now() < before + HOUR_S / 2
    assert clock.wall_until(clock.now() + 60.0) < 61.0  # the next tick is no hour away


def test_a_process_that_begins_later_shows_the_same_time() -> None:
    own = WALL.offset_s
    store: Any = Store(offset_s=own + HOUR_S)  # the clock was set back since the first process began
    try:
        adopt_wall(store)
        assert WALL.offset_s == own + HOUR_S
    finally:
        WALL.adopt(own)


def test_a_jump_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    jump = 0.0
    watch = WallWatch(lambda: jump)
    watch.look()
    for jump in (1.0, -3600.0, -3600.4, -3599.8):  # noqa: B007 - read by the watch
        watch.look()
    assert [record.by_s for record in caplog.records] == [-3600.0]  # type: ignore[attr-defined]
    assert watch.jump_s == -3600.0
