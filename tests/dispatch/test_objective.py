"""Attainment: windows, shares and error budgets, which every report takes from here."""

from __future__ import annotations

import math

import pytest

from mark.dispatch.objective import attainment, burn_rate, is_window_full


@pytest.mark.parametrize(
    ("requests", "elapsed_s", "full"),
    [(99, 59.9, False), (100, 0.0, True), (1, 60.0, True), (0, 1e6, False)],
)
def test_a_window_is_full_by_requests_or_by_time_and_never_empty(
    requests: int, elapsed_s: float, full: bool
) -> None:
    assert is_window_full(requests, elapsed_s, 100, 60.0) is full


def test_attainment_is_the_share_in_time_and_unknown_without_requests() -> None:
    assert attainment(5, 20) == 0.75
    assert attainment(0, 0) is None


@pytest.mark.parametrize(
    ("missed", "target", "burn"), [(2, 0.98, 1.0), (1, 0.98, 0.5), (0, 1.0, 0.0), (1, 1.0, math.inf)]
)
def test_a_burn_rate_of_one_is_all_that_the_target_allows(missed: int, target: float, burn: float) -> None:
    assert burn_rate(missed, 100, target) == pytest.approx(burn)


def test_nothing_is_burnt_without_requests() -> None:
    assert burn_rate(0, 0, 0.98) is None
