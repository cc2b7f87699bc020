"""Evidence of a canary: exact binomials, and a number of answers after which twice as bad is found out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.models.canary_evidence import (
    FALSE_ALARM,
    UNDETECTED,
    answers_needed,
    at_most,
    most_missed,
    passing_share,
)

TARGETS = st.floats(0.5, 0.999)
SHARES = st.floats(0.001, 0.999)


@given(st.integers(0, 300), st.integers(-1, 301), SHARES)
def test_the_sum_is_that_of_all_its_terms(n: int, k: int, p: float) -> None:
    terms = (math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(min(k, n) + 1))
    assert at_most(k, n, p) == pytest.approx(math.fsum(terms), abs=1e-9)


@given(st.integers(1, 10**7), SHARES)
def test_a_version_that_misses_as_often_as_it_may_is_seldom_aborted_and_one_miss_is_none(n: int, p: float) -> None:
    most = most_missed(n, p)
    assert most >= 1
    assert 1.0 - at_most(most, n, p) <= FALSE_ALARM
    assert most == 1 or 1.0 - at_most(most - 1, n, p) > FALSE_ALARM, "no more are let pass than must be"


@given(TARGETS)
def test_with_enough_answers_twice_as_bad_is_found_out_and_with_one_less_it_is_not(target: float) -> None:
    needed = answers_needed(target)
    assert passing_share(needed, target) <= UNDETECTED < passing_share(needed - 1, target)
    assert passing_share(4 * needed, target) < UNDETECTED / 10
    assert passing_share(0, target) == 1.0


def test_figures_of_the_docs() -> None:
    assert answers_needed(0.98) == 781
    assert f"{passing_share(120, 0.98):.0%}" == "65%"
    assert answers_needed(1.0) < 10**8, "no answers prove that none is ever missed"
