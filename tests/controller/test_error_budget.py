"""What plans may miss follows what was missed: bounded, unmoved by what is not known, and the right way round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.controller.error_budget import AIM, LEAST_FACTOR, MOST_FACTOR, UNUSED, ErrorBudget
from mark.domain.load.outcomes import NO_OUTCOMES, Outcomes

TARGET = 0.98
HOUR = 60
units = st.builds(
    lambda finished, share: Outcomes(finished=finished, missed=round(share * finished)),
    st.integers(0, 5_000),
    st.floats(0, 1),
)


def after(*counts: Outcomes) -> ErrorBudget:
    budget = UNUSED
    for unit in counts:
        budget = budget.after(unit)
    return budget


def factor_after(minutes: int, missed: int, finished: int = 10_000) -> float:
    return after(*[Outcomes(finished=finished, missed=missed)] * minutes).miss_factor(TARGET)


@given(st.lists(units, max_size=50), st.floats(0.5, 1.0))
def test_the_factor_is_bounded_and_what_is_known_a_share(counts: list[Outcomes], target: float) -> None:
    budget = after(*counts)
    assert LEAST_FACTOR <= budget.miss_factor(target) <= MOST_FACTOR
    assert 0.0 <= budget.known <= 1.0
    assert 0.0 <= budget.missed <= budget.finished


@given(st.lists(units, min_size=1, max_size=20), st.integers(1, 1_000))
def test_more_misses_never_let_plans_miss_more(counts: list[Outcomes], more: int) -> None:
    *before, last = counts
    missed = min(last.finished, last.missed + more)
    worse = Outcomes(finished=last.finished, missed=missed)
    assert after(*before, worse).miss_factor(TARGET) <= after(*counts).miss_factor(TARGET)


def test_nothing_is_changed_while_nothing_is_known() -> None:
    assert UNUSED.miss_factor(TARGET) == 1.0
    assert after(*[NO_OUTCOMES] * HOUR).miss_factor(TARGET) == 1.0
    assert after(Outcomes(finished=99, missed=99)).miss_factor(TARGET) == 1.0


def test_an_objective_that_forgives_nothing_is_left_alone() -> None:
    assert after(*[Outcomes(finished=1_000, missed=10)] * HOUR).miss_factor(1.0) == 1.0


def test_caution_comes_at_once_and_ease_with_time() -> None:
    assert factor_after(1, missed=800) == LEAST_FACTOR
    assert 1.0 < factor_after(1, missed=0) < 1.02
    assert factor_after(HOUR, missed=0) < factor_after(3 * HOUR, missed=0) < MOST_FACTOR
    assert factor_after(7 * 24 * HOUR, missed=0) == pytest.approx(MOST_FACTOR)


def test_a_service_on_its_aim_stays_there() -> None:
    aimed = round(AIM * (1.0 - TARGET) * 10_000)
    assert factor_after(24 * HOUR, missed=aimed) == pytest.approx(1.0)


def test_a_bad_hour_is_forgotten_within_a_day() -> None:
    bad, good = [Outcomes(finished=1_000, missed=200)] * HOUR, [Outcomes(finished=1_000)] * (24 * HOUR)
    assert after(*bad).miss_factor(TARGET) == LEAST_FACTOR
    assert after(*bad, *good).miss_factor(TARGET) > 1.0


@pytest.mark.parametrize(
    ("now", "came"),
    [
        ((1_010, 52), (10, 2)),
        ((1_010, 40), (10, 0)),
        ((990, 52), (0, 0)),
        ((0, 0), (0, 0)),
    ],
)
def test_what_a_store_has_lost_is_not_counted_anew(now: tuple[int, int], came: tuple[int, int]) -> None:
    """A store that fails over has lost its latest counts, and still has those of months."""
    (finished, missed), before = now, Outcomes(finished=1_000, missed=50)
    since = Outcomes(finished=finished, missed=missed).since(before)
    assert (since.finished, since.missed) == came
