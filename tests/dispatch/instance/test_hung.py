"""When a batch is taken for one that never ends."""

from __future__ import annotations

import pytest

from mark.dispatch.instance.hung import hung_after_s


@pytest.mark.parametrize(
    ("expected_s", "is_first", "after_s"),
    [(0.1, False, 10.0), (0.1, True, 60.0), (2.0, False, 40.0), (2.0, True, 60.0), (5.0, True, 100.0)],
)
def test_many_times_what_it_should_take_and_never_less_than_the_floor(
    expected_s: float, is_first: bool, after_s: float
) -> None:
    assert hung_after_s(expected_s, 10.0, is_first=is_first) == after_s
