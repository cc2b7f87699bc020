"""Requests beyond capacity: the bounds hold for every load with these minutes, and nothing is judged unknown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.shortfall import Shortfall, shortfall

WINDOWS = st.lists(st.floats(0.0, 100.0), min_size=12, max_size=12)


@given(minutes=st.lists(st.tuples(WINDOWS, st.floats(0.1, 120.0)), min_size=1, max_size=5))
def test_what_was_beyond_lies_between_the_bounds(minutes: list[tuple[list[float], float]]) -> None:
    """Capacity changes within a minute: here in its middle, from that at the end of the minute before."""
    loads = [windows for windows, _ in minutes]
    capacity = [end for _, end in minutes]
    means, tops = [sum(one) / 12 for one in loads], [max(one) for one in loads]
    found = shortfall(means, tops, capacity)
    beyond = 0.0
    for windows, before, end in zip(loads, [capacity[0], *capacity], capacity, strict=False):
        beyond += sum(max(0.0, rate - (before if at < 6 else end)) for at, rate in enumerate(windows)) / 12
    assert found.least - 1e-6 <= beyond <= found.most + 1e-6
    assert found.most <= found.came + 1e-6


def test_minutes_before_the_first_instance_and_unknown_ones_are_left_out() -> None:
    assert shortfall([9.0] * 5, [9.0] * 5, [None, 0.0, 10.0, None, 6.0]) == Shortfall(18.0, 0.0, 3.0, 2)
    assert shortfall([9.0], [9.0], [0.0]) == Shortfall()
    assert shortfall([0.0, 9.0], [0.0, 9.0], [5.0, 0.0]).most == 9.0
