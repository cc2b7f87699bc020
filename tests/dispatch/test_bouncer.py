"""The Bouncer's prediction against a tiny event simulation that shares no code with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.batcher import batch_size
from mark.dispatch.bouncer import admits, predicted_finish_at

GAPS_S = st.lists(st.floats(0.0, 0.5), min_size=1, max_size=40)


def queue_before(arrivals: list[float], index: int, batch_s: list[float]) -> tuple[float, int, list[float]]:
    """Free_at and waiting as arrival `index` meets them, and all finish times, by stepping through one server.

    batch_s: seconds of a batch by its size; entry 0 is not used.
    """
    largest = len(batch_s) - 1
    waiting: list[int] = []
    finishes = [0.0] * len(arrivals)
    free_at, seen = 0.0, (0.0, 0)
    next_in = 0
    while next_in < len(arrivals) or waiting:
        if waiting and (next_in == len(arrivals) or free_at <= arrivals[next_in]):
            took, waiting = waiting[:largest], waiting[largest:]
            start_at = max(free_at, arrivals[took[-1]] if len(took) == 1 else free_at)
            free_at = start_at + batch_s[len(took)]
            for one in took:
                finishes[one] = free_at
            continue
        if next_in == index:
            seen = (free_at, len(waiting))
        if free_at <= arrivals[next_in] and not waiting:
            free_at = arrivals[next_in] + batch_s[1]
            finishes[next_in] = free_at
        else:
            waiting.append(next_in)
        next_in += 1
    return seen[0], seen[1], finishes


def rising(gaps_s: list[float]) -> list[float]:
    at, arrivals = 0.0, []
    for gap_s in gaps_s:
        at += gap_s
        arrivals.append(at)
    return arrivals


@given(gaps_s=GAPS_S, single_s=st.floats(0.01, 1.0))
def test_the_prediction_is_exact_without_batching(gaps_s: list[float], single_s: float) -> None:
    arrivals = rising(gaps_s)
    for index, now in enumerate(arrivals):
        free_at, waiting, finishes = queue_before(arrivals, index, [0.0, single_s])
        predicted = predicted_finish_at(now, free_at, waiting, 1, single_s, single_s)
        assert predicted == pytest.approx(finishes[index], abs=1e-9)


@given(gaps_s=GAPS_S, first_s=st.floats(0.01, 1.0), steps_s=st.lists(st.floats(0.0, 0.3), min_size=1, max_size=7))
def test_the_prediction_is_never_too_early_with_batching(
    gaps_s: list[float], first_s: float, steps_s: list[float]
) -> None:
    batch_s = [0.0, first_s]
    for step_s in steps_s:
        batch_s.append(batch_s[-1] + step_s)
    largest = len(batch_s) - 1
    arrivals = rising(gaps_s)
    for index, now in enumerate(arrivals):
        free_at, waiting, finishes = queue_before(arrivals, index, batch_s)
        predicted = predicted_finish_at(now, free_at, waiting, largest, batch_s[1], batch_s[-1])
        assert predicted >= finishes[index] - 1e-9


@pytest.mark.parametrize(
    ("free_at", "waiting", "expected"),
    [
        (9.0, 0, 10.1),  # idle: alone
        (10.0, 0, 10.1),  # idle since this instant
        (10.3, 0, 10.7),  # busy: it shares a full batch
        (10.3, 3, 10.7),  # the fourth of the next batch of four
        (10.3, 4, 11.1),  # the first of the batch after it
        (10.3, 8, 11.5),
    ],
)
def test_predicted_finish(free_at: float, waiting: int, expected: float) -> None:
    assert predicted_finish_at(10.0, free_at, waiting, 4, 0.1, 0.4) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("finish_at", "factor", "admitted"),
    [(10.588, 0.98, True), (10.5881, 0.98, False), (10.6, 0.98, False), (10.6, 1.0, True), (10.6001, 1.0, False)],
)
def test_admission_uses_its_share_of_the_objective(finish_at: float, factor: float, admitted: bool) -> None:
    assert admits(finish_at, 10.0, 10.6 + 1e-12, factor) is admitted


def test_a_batch_is_what_waits_up_to_its_largest_size() -> None:
    assert [batch_size(waiting, 4) for waiting in range(7)] == [0, 1, 2, 3, 4, 4, 4]
