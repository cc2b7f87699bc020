"""The wall's time that never jumps, and how far the system's clock was set from it."""

from __future__ import annotations

import pytest

from mark.steady_time import SteadyWall


class Clocks:
    """A system clock that can be set, and a monotonic one that cannot."""

    def __init__(self) -> None:
        self.passed_s, self.set_by_s = 0.0, 0.0

    def wall(self) -> float:
        return 1_800_000_000.0 + self.passed_s + self.set_by_s

    def monotonic(self) -> float:
        return 500.0 + self.passed_s


@pytest.mark.parametrize("set_by_s", [-3600.0, 3600.0])
def test_a_clock_that_is_set_moves_it_not_at_all(set_by_s: float) -> None:
    clocks = Clocks()
    steady = SteadyWall(clocks.wall, clocks.monotonic)
    clocks.passed_s = 10.0
    clocks.set_by_s = set_by_s
    assert steady.now() == 1_800_000_010.0
    assert steady.jumped_s() == set_by_s


def test_processes_of_a_host_count_as_the_first_one_does() -> None:
    clocks = Clocks()
    first = SteadyWall(clocks.wall, clocks.monotonic)
    clocks.set_by_s = -3600.0
    later = SteadyWall(clocks.wall, clocks.monotonic)
    assert later.now() == first.now() - 3600.0
    later.adopt(first.offset_s)
    assert later.now() == first.now()
    later.reset()
    assert later.jumped_s() == 0.0
