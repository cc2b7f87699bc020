"""Savings Plans: the size that saves most."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.commitment import best_commitment
from mark.domain.errors import Misconfigured

HOURS = st.lists(st.floats(0.0, 100.0), min_size=1, max_size=60)


def cost(hours: list[float], used: float, discount: float) -> float:
    """A bill written for reading: hour by hour."""
    return sum((1 - discount) * used + max(0.0, hour - used) for hour in hours)


@given(HOURS, st.floats(0.01, 0.99), st.floats(0.0, 120.0))
def test_no_other_size_saves_more_and_none_costs_more_than_without(
    hours: list[float], discount: float, other: float
) -> None:
    plan = best_commitment(np.array(hours), discount)
    used = plan.usd_per_hour / (1 - discount)

    assert plan.saved_usd >= 0
    assert plan.saved_usd == pytest.approx(sum(hours) - cost(hours, used, discount), abs=1e-6)
    for size in (other, *hours):
        assert cost(hours, used, discount) <= cost(hours, size, discount) + 1e-6


def test_a_steady_fleet_saves_the_whole_discount_and_one_that_is_on_by_day_alone_none_of_it() -> None:
    assert best_commitment(np.full(720, 2.0), 0.25) == pytest.approx((1.5, 360.0))
    by_day = np.tile([0.0] * 20 + [2.0] * 4, 30)
    assert best_commitment(by_day, 0.25) == (0.0, 0.0)


@pytest.mark.parametrize("discount", [0.0, 1.0, -0.2, float("nan")])
def test_a_discount_that_is_none_is_refused(discount: float) -> None:
    with pytest.raises(Misconfigured, match="between 0 and 1"):
        best_commitment(np.ones(3), discount)
