"""A tenant's share and its parts: they add up, cover the loads that the share covers, and none is nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.instance.device_share import LOAD_S, SHARE_S, has_share, part_of_share, recent_rps

RATES = st.floats(0.0, 1e4)
LOADS = st.lists(RATES, min_size=1, max_size=8)


def parts(share_rps: float, loads: list[float]) -> list[float]:
    return [part_of_share(share_rps, one, sum(loads), len(loads)) for one in loads]


@given(RATES, LOADS)
def test_parts_add_up_to_the_share_and_more_load_has_no_less(share_rps: float, loads: list[float]) -> None:
    found = parts(share_rps, sorted(loads))
    assert sum(found) == pytest.approx(share_rps)
    assert all(one <= more * (1 + 1e-9) for one, more in pairwise(found))
    assert min(found) > 0.0 or share_rps < 1e-300


@given(LOADS, RATES)
def test_a_share_that_covers_all_loads_covers_each_and_leaves_each_as_much(
    loads: list[float], over_rps: float
) -> None:
    """Each also has one request in SHARE_S, so that a gateway whose load begins is not starved."""
    found = parts(sum(loads) + len(loads) / SHARE_S + over_rps, loads)
    over = [part - load for part, load in zip(found, loads, strict=True)]
    assert over == pytest.approx([1.0 / SHARE_S + over_rps / len(loads)] * len(loads), abs=1e-6)


@given(RATES, LOADS)
def test_less_is_divided_by_load(part: float, loads: list[float]) -> None:
    share_rps = sum(loads) * min(1.0, part)
    assert parts(share_rps, loads) == pytest.approx(
        [share_rps * (one + 1.0 / SHARE_S) / (sum(loads) + len(loads) / SHARE_S) for one in loads]
    )


@given(RATES, RATES, st.lists(st.floats(0.01, 60.0), min_size=1, max_size=20))
def test_a_steady_load_is_found_from_whatever_was_before(before: float, rps: float, steps: list[float]) -> None:
    found = before
    for step_s in steps:
        found = recent_rps(found, rps * step_s, step_s)  # type: ignore[arg-type]  # parts of requests
    assert found == pytest.approx(rps + (before - rps) * math.exp(-sum(steps) / LOAD_S), abs=1e-6)


@dataclass(slots=True)
class Tenant:
    share_rps: float = 2.0
    share_left: float = math.inf
    share_at: float = 0.0
    max_batch: int = 4


def test_a_share_is_what_was_saved_up_and_its_rate() -> None:
    one = Tenant()
    taken = 0
    for tenth in range(1000):
        while has_share(tenth / 10.0, one):
            one.share_left -= 1.0
            taken += 1
    assert taken == pytest.approx(SHARE_S * 2.0 + 4 + 2.0 * 100.0, abs=1)
