"""What gateways counted, as units and as the SLO monitor's windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.controller.demand_units import (
    MonitorState,
    advance_monitor,
    counted_unit,
    unit_windows,
    window_of,
    window_speeds,
)
from mark.controller.policy import MonitorPolicy
from mark.domain.clock import ClockAnchor
from mark.domain.load.traffic import ModelTraffic

MONITOR = MonitorPolicy(offering="T", requests=100, seconds=60.0)
OPENED = MonitorState(opened_at=0.0, finished=0, missed=0)


def traffic(in_time: int, late: int = 0, shed: int = 0, failed: int = 0, rejected: int = 0) -> ModelTraffic:
    answered = in_time + late
    return ModelTraffic(model="m", instance=answered, late=late, shed=shed, failed=failed, rejected=rejected)


def test_what_was_late_shed_or_failed_missed_the_objective() -> None:
    for rejected in (0, 50):
        counted = traffic(90, late=5, shed=3, failed=2, rejected=rejected)
        assert (counted.finished, counted.missed) == (100, 10)


@given(minute=st.integers(0, 10**7))
def test_the_windows_of_a_unit_are_twelve_and_those_of_two_units_meet(minute: int) -> None:
    first, last = unit_windows(60.0 * minute)
    assert last - first == 11
    assert window_of(60.0 * minute) == first
    assert window_of(60.0 * minute + 59.999) == last
    assert unit_windows(60.0 * (minute + 1))[0] == last + 1


def test_a_fast_clock_collects_fewer_requests_at_the_same_rate() -> None:
    plain, fast = (
        counted_unit(60.0, [200] * 11 + [300], [1.0] * 12),
        counted_unit(60.0, [10] * 11 + [15], [20.0] * 12),
    )
    assert fast == plain
    assert plain.max_rps == 60.0
    assert plain.mean_rps == pytest.approx(2500 / 60)


def test_windows_count_at_the_speed_that_the_clock_had_in_them() -> None:
    """The clock stands, goes at the wall's speed, then 20 times as fast for 10 s of the wall, then as before."""
    anchors = (
        ClockAnchor(wall_at=900.0, service_at=1000.0, speed=0.0),
        ClockAnchor(wall_at=950.0, service_at=1000.0),
        ClockAnchor(wall_at=952.5, service_at=1002.5, speed=20.0, until_wall=962.5),
    )
    assert window_speeds((), 200, 202) == [1.0] * 3
    assert window_speeds(anchors[:1], 200, 200) == [1.0]
    speeds = window_speeds(anchors, 199, 242)
    assert speeds[0] == 1.0
    assert speeds[1] == pytest.approx(5 / (2.5 + 2.5 / 20))  # it changed in the middle
    assert speeds[2:41] == [20.0] * 39
    assert speeds[41] == pytest.approx(5 / (2.5 / 20 + 2.5))
    assert speeds[42:] == [1.0] * 2
    rate = 40.0
    walls = [5.0, 2.625, *[0.25] * 39, 2.625, 5.0, 5.0]
    assert [count * speed / 5 for count, speed in zip([rate * s for s in walls], speeds, strict=True)] == (
        pytest.approx([rate] * 44)
    )


@given(
    steps=st.lists(
        st.tuples(st.floats(0.1, 30.0), st.integers(0, 80), st.integers(0, 40)), min_size=1, max_size=40
    )
)
def test_each_request_is_in_one_window_and_windows_close_when_they_are_full(
    steps: list[tuple[float, int, int]],
) -> None:
    state, now = OPENED, 0.0
    answered = late = 0
    windows = []
    for after_s, more, more_late in steps:
        now, answered, late = now + after_s, answered + more, late + min(more, more_late)
        before = state
        state, window = advance_monitor(state, traffic(answered - late, late=late), now, MONITOR)
        if window is None:
            held = answered - before.finished
            assert held < MONITOR.requests
            assert held == 0 or now - before.opened_at < MONITOR.seconds
            continue
        assert window.closed_at == state.opened_at == now
        assert window.requests >= MONITOR.requests or now - before.opened_at >= MONITOR.seconds
        windows.append(window)
    assert np.sum([window.requests for window in windows]) == state.finished
    assert np.sum([window.missed for window in windows]) == state.missed
