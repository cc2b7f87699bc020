"""A service's clock: it never goes back, and tells when it will show what."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.clock import ClockAnchor

instants = st.floats(min_value=0.0, max_value=1e7)
anchors = st.builds(
    lambda wall_at, service_at, speed, lasts_s: ClockAnchor(
        wall_at=wall_at, service_at=service_at, speed=speed, until_wall=wall_at + lasts_s
    ),
    wall_at=instants,
    service_at=instants,
    speed=st.sampled_from((0.0, 1.0, 20.0, 0.5)),
    lasts_s=st.one_of(st.just(math.inf), st.floats(min_value=0.0, max_value=1e5)),
)


def test_by_default_it_is_the_walls():
    assert ClockAnchor().service_time(1234.5) == 1234.5
    assert ClockAnchor().wall_time(1234.5) == 1234.5
    assert ClockAnchor().speed_at(1.0) == 1.0


def test_twenty_times_as_fast_until_it_is_not():
    anchor = ClockAnchor(wall_at=100.0, service_at=1000.0, speed=20.0, until_wall=110.0)

    assert anchor.service_time(90.0) == 1000.0
    assert anchor.service_time(105.0) == 1100.0
    assert anchor.service_time(112.0) == 1202.0
    assert (anchor.speed_at(109.9), anchor.speed_at(110.0)) == (20.0, 1.0)


def test_what_stands_still_never_shows_a_later_time():
    held = ClockAnchor(wall_at=100.0, service_at=1000.0, speed=0.0)

    assert held.service_time(1e9) == 1000.0
    assert held.wall_time(1000.1) == math.inf


@given(anchor=anchors, walls=st.tuples(instants, instants))
def test_it_never_goes_back(anchor, walls):
    early, late = sorted(walls)

    assert anchor.service_time(early) <= anchor.service_time(late)


@given(anchor=anchors, ahead_s=st.floats(min_value=0.0, max_value=1e5))
def test_when_it_will_show_a_time_it_shows_it(anchor, ahead_s):
    shown = anchor.service_at + ahead_s
    wall = anchor.wall_time(shown)

    if math.isinf(wall):
        assert anchor.speed == 0
    else:
        assert anchor.service_time(wall) == pytest.approx(shown, abs=1e-2)
