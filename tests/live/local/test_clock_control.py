"""Where the clock of a service that starts stands: at the wall's time, never behind what its store has seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.clock import ClockAnchor
from mark.domain.demand import WINDOW_S
from mark.live.local.clock_control import first_anchor

WALL = 1_800_000_003.0


@pytest.mark.parametrize(
    ("before", "shows"),
    [
        (None, WALL - 3.0),
        (ClockAnchor(wall_at=WALL - 900.0, service_at=WALL - 904.0), WALL - 3.0),
        (ClockAnchor(wall_at=WALL - 900.0, service_at=WALL - 900.0), WALL + 2.0),
        # An hour at twenty times the speed, then a while as fast as the wall.
        (ClockAnchor(wall_at=WALL - 600.0, service_at=WALL - 600.0 + 19 * 3600.0), WALL + 2.0 + 19 * 3600.0),
        # It was killed in its rehearsal, whose end the anchor knows.
        (
            ClockAnchor(wall_at=WALL - 100.0, service_at=WALL - 100.0, speed=20.0, until_wall=WALL - 90.0),
            WALL + 2.0 + 19 * 10.0,
        ),
        # It never began to run.
        (ClockAnchor(wall_at=WALL - 900.0, service_at=WALL - 900.0, speed=0.0), WALL - 3.0),
    ],
)
def test_it_goes_on_where_the_store_is(before: ClockAnchor | None, shows: float) -> None:
    assert first_anchor(before, WALL) == ClockAnchor(wall_at=WALL, service_at=shows, speed=0.0)


@given(st.floats(0.0, 1e9), st.floats(-1e6, 1e6), st.floats(0.0, 50.0), st.floats(0.0, 1e5))
def test_it_never_goes_back(wall: float, ahead_s: float, speed: float, for_s: float) -> None:
    before = ClockAnchor(wall_at=wall, service_at=wall + ahead_s, speed=speed)
    now = wall + for_s
    shows = first_anchor(before, now).service_at
    assert shows >= before.service_time(now) - 1e-6
    assert shows > now - WINDOW_S - 1e-6
