"""The Bouncer's prediction against a tiny event simulation that shares no code with it."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.batcher import batch_size
from mark.dispatch.bouncer import admits, late_finish_at, predicted_finish_at, stays

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
        predicted = predicted_finish_at(now, free_at, free_at > now, waiting, 1, single_s, single_s)
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
        predicted = predicted_finish_at(now, free_at, free_at > now, waiting, largest, batch_s[1], batch_s[-1])
        assert predicted >= finishes[index] - 1e-9


@pytest.mark.parametrize(
    ("free_at", "in_service", "waiting", "expected"),
    [
        (9.0, 0, 0, 10.1),  # idle: alone
        (10.0, 0, 0, 10.1),  # idle since this instant
        (10.3, 1, 0, 10.7),  # busy: it shares a full batch
        (10.3, 2, 3, 10.7),  # the fourth of the next batch of four
        (10.3, 4, 4, 11.1),  # the first of the batch after it
        (10.3, 4, 8, 11.5),
        (9.9, 4, 0, 10.4),  # the batch in service is overdue: it ends now
    ],
)
def test_predicted_finish(free_at: float, in_service: int, waiting: int, expected: float) -> None:
    assert predicted_finish_at(10.0, free_at, in_service, waiting, 4, 0.1, 0.4) == pytest.approx(expected)


QUEUES = st.tuples(st.integers(0, 4), st.integers(0, 20)).filter(lambda queue: queue[0] > 0 or queue[1] == 0)


@given(
    queue=QUEUES,
    left_s=st.floats(0.0, 0.5),
    cvs=st.tuples(st.floats(0.0, 0.5), st.floats(0.0, 0.5)),
    sigmas=st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 3.0)),
)
def test_the_late_finish_grows_with_noise_and_with_confidence(
    queue: tuple[int, int], left_s: float, cvs: tuple[float, float], sigmas: tuple[float, float]
) -> None:
    in_service, waiting = queue
    finish_at = predicted_finish_at(10.0, 10.0 + left_s, in_service, waiting, 4, 0.1, 0.4)

    def late(cv: float, deviations: float) -> float:
        return late_finish_at(10.0, finish_at, in_service, waiting, 4, 0.4, cv, deviations)

    low, high = sorted(cvs)
    fewer, more = sorted(sigmas)
    assert late(0.0, more) == late(high, 0.0) == finish_at
    if fewer >= 1.0:  # below it the median of a skewed time counts, which lies under its mean
        assert late(low, fewer) <= late(high, fewer) + 1e-12
    assert late(high, fewer) <= late(high, more) + 1e-12 or fewer == 0.0


@pytest.mark.parametrize("cv", [0.1, 0.25])
@pytest.mark.parametrize(("in_service", "waiting"), [(0, 0), (1, 0), (1, 9)])
@pytest.mark.parametrize("share", [0.84, 0.98])
def test_the_late_finish_is_the_quantile_of_batches_that_vary(
    cv: float, in_service: int, waiting: int, share: float
) -> None:
    """Against a hundred thousand sums of lognormal times; a batch in service has just begun."""
    batch_s, draws = 0.4, np.random.default_rng(1).standard_normal((4, 100_000))
    finish_at = predicted_finish_at(0.0, batch_s * in_service, in_service, waiting, 4, batch_s, batch_s)
    batches, sigma = round(finish_at / batch_s), np.sqrt(np.log1p(cv**2))
    exact = np.quantile(batch_s * np.exp(sigma * draws[:batches] - sigma**2 / 2).sum(axis=0), share)
    sigmas = NormalDist().inv_cdf(share)
    found = late_finish_at(0.0, finish_at, in_service, waiting, 4, batch_s, cv, sigmas)
    assert found == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize(
    ("finish_at", "factor", "admitted"),
    [(10.588, 0.98, True), (10.5881, 0.98, False), (10.6, 0.98, False), (10.6, 1.0, True), (10.6001, 1.0, False)],
)
def test_admission_uses_its_share_of_the_objective(finish_at: float, factor: float, admitted: bool) -> None:
    assert admits(finish_at, 10.0, 10.6 + 1e-12, factor) is admitted


def test_a_batch_is_what_waits_up_to_its_largest_size() -> None:
    assert [batch_size(waiting, 4) for waiting in range(7)] == [0, 1, 2, 3, 4, 4, 4]


@pytest.mark.parametrize(
    ("late_at", "terminates_at", "factor", "taken"),
    [
        (0.5, math.inf, 0.98, True),
        (0.7, math.inf, 0.98, False),
        (0.7, math.inf, math.inf, True),
        (0.5, 0.3, math.inf, False),
    ],
    ids=["in time", "late", "late without a Bouncer", "it ends before"],
)
def test_an_instance_takes_what_it_admits_and_ends_no_sooner_than(
    late_at: float, terminates_at: float, factor: float, taken: bool
) -> None:
    assert stays(0.4, late_at, terminates_at, 0.0, 0.6, factor) is taken


def test_without_a_bouncer_a_deadline_of_now_is_no_reason_to_refuse() -> None:
    assert stays(0.4, 0.4, math.inf, 0.0, 0.0, math.inf)
