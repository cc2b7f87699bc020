"""The table of a full queue beside the exact sum, and the properties of what each capacity carries."""

from __future__ import annotations

from decimal import Decimal, localcontext
from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.planner.hedging.full_queue import EDGE, carried_rps, turned_away_share

ONE = np.ones(1)


def exact_share(arrivals: float, services: float) -> float:
    """The sum with so many digits that nothing cancels out."""
    with localcontext() as context:
        context.prec = 150
        load, total = Decimal(arrivals) / Decimal(services), Decimal(0)
        for j in range(int(services) + 1):
            lacking = load * (j - Decimal(services))
            total += lacking**j / factorial(j) * (-lacking).exp()
        return float(1 - total / (1 + load * total))


@given(arrivals=st.floats(0.02, 60.0), beyond=st.floats(-EDGE, EDGE))
def test_the_share_is_that_of_the_exact_sum(arrivals: float, beyond: float) -> None:
    services = max(0.05, arrivals + beyond)
    found = float(turned_away_share(np.array(arrivals), np.array(services)))
    assert found == pytest.approx(exact_share(arrivals, services), abs=3e-5)


@pytest.mark.parametrize("rate", [0.3, 1.0, 3.8, 20.0, 100.0, 200.0])
def test_the_table_is_close_to_the_share(rate: float) -> None:
    wait_s, capacities = 0.3, np.linspace(1.0, 1.5 * rate + 10.0, 50)
    [carried] = carried_rps(np.array([[rate]]), ONE, wait_s, capacities)
    services = capacities * wait_s
    exact = np.array([exact_share(rate * wait_s, float(one)) for one in services])
    assert 1.0 - carried / rate == pytest.approx(exact, abs=0.004)


@given(rate=st.floats(0.0, 1e5), more=st.floats(0.0, 1e4), wait_s=st.floats(0.001, 10.0), top=st.floats(0.1, 1e5))
def test_more_is_carried_of_more_and_by_more(rate: float, more: float, wait_s: float, top: float) -> None:
    capacities = np.linspace(0.0, top, 60)
    less, found = carried_rps(np.array([[rate], [rate + more]]), ONE, wait_s, capacities)
    rounding = 1e-9 * (rate + more) + 1e-300
    assert less[0] == found[0] == 0.0
    assert (np.diff(less) >= -rounding).all()
    assert (less <= found + rounding).all()
    assert (found <= np.minimum(rate + more, capacities) + rounding).all()
