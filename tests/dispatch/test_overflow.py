"""Overflow to Lambda, and CPU credits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import poisson

from mark.dispatch.instance.credits import earned, slowed_s
from mark.dispatch.overflow import (
    BUCKET_S,
    BUCKETS,
    SHED,
    TO_INSTANCE,
    TO_LAMBDA,
    WARM_S,
    after_bounce,
    believed_warm,
    environments_for,
    lambda_finish_at,
    note_in_flight,
    warm_for_all,
    warms_one_more,
)


def belief() -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.zeros((2, BUCKETS), np.int64)


@given(
    notes=st.lists(st.tuples(st.floats(0.0, 8000.0), st.integers(0, 50)), min_size=1, max_size=60),
    later_s=st.floats(0.0, 4000.0),
)
def test_belief_never_outlives_the_shortest_idle_life(notes: list[tuple[float, int]], later_s: float) -> None:
    made = belief()
    notes = sorted(notes)
    for at, in_flight in notes:
        note_in_flight(made, at, in_flight)
    now = notes[-1][0] + later_s
    believed = believed_warm(made, now)
    assert believed <= max((n for at, n in notes if at > now - WARM_S - 1e-6), default=0)
    assert believed >= max((n for at, n in notes if at >= now - WARM_S + BUCKET_S), default=0)


@given(count=st.integers(0, 5000), share=st.floats(0.001, 1.0))
def test_versions_that_were_warmed_by_their_shares_are_as_good_as_one(count: int, share: float) -> None:
    warm = warm_for_all([(count, 1.0), (math.ceil(share * count), share)])
    assert warm == count
    assert warm_for_all([(count, 1.0), (0, share)]) == 0


@given(rps=st.floats(0.0, 500.0), latency_s=st.floats(0.001, 2.0), cold_share=st.floats(1e-4, 0.5))
def test_environments_are_as_few_as_start_no_more_than_the_share_cold(
    rps: float, latency_s: float, cold_share: float
) -> None:
    """Against Erlang's formula as the share of a truncated Poisson distribution's last state."""
    busy = rps * latency_s
    count = environments_for(rps, latency_s, cold_share, 10_000)
    assert blocked(busy, count) <= cold_share + 1e-12
    assert count == 0 or blocked(busy, count - 1) > cold_share - 1e-12


def blocked(busy: float, count: int) -> float:
    states = poisson.pmf(np.arange(count + 1), busy)
    return float(states[-1] / states.sum()) if busy > 0 else 0.0


def test_a_quiet_model_keeps_more_than_one_environment() -> None:
    """Half a call under way on average: every third would start a second environment cold."""
    assert environments_for(25.0, 0.02, 0.002, 1000) == 4
    assert environments_for(25.0, 0.02, 0.002, 3) == 3


def test_a_call_beyond_the_warm_environments_starts_cold() -> None:
    assert lambda_finish_at(5.0, 2, 3, 0.4, 2.9) == pytest.approx(5.4)
    assert lambda_finish_at(5.0, 3, 3, 0.4, 2.9) == pytest.approx(8.3)


@pytest.mark.parametrize(
    ("lambda_open", "shed_late", "lambda_at", "instance_at", "expected"),
    [
        (True, False, 99.0, 10.1, TO_LAMBDA),  # wherever it would be sooner
        (False, False, 10.2, 10.1, TO_INSTANCE),  # there is no Lambda, or it refused the call
        (False, False, 10.2, math.inf, SHED),
        (True, True, 10.7, 10.5, TO_INSTANCE),  # Lambda would be late, and late requests are shed
        (True, True, 10.7, 10.65, SHED),  # so would the instance
        (True, True, 10.6, 10.65, TO_LAMBDA),  # just in time
        (False, False, math.inf, 70.0, TO_INSTANCE),
        (False, False, math.inf, 70.1, SHED),  # nobody waits that long
    ],
)
def test_what_becomes_of_a_bounced_request(
    lambda_open: bool, shed_late: bool, lambda_at: float, instance_at: float, expected: int
) -> None:
    assert after_bounce(lambda_open, shed_late, lambda_at, instance_at, 10.0, 10.6, 60.0) == expected


INSTANTS = st.one_of(st.floats(10.0, 11.0), st.floats(10.0, 100.0), st.just(math.inf))


@given(
    lambda_open=st.booleans(),
    shed_late=st.booleans(),
    lambda_at=INSTANTS,
    instance_at=INSTANTS,
)
def test_a_bounced_request_is_shed_only_where_nobody_is_left(
    lambda_open: bool, shed_late: bool, lambda_at: float, instance_at: float
) -> None:
    became = after_bounce(lambda_open, shed_late, lambda_at, instance_at, 10.0, 10.6, 60.0)
    if became == TO_LAMBDA:
        assert lambda_open
    elif became == TO_INSTANCE:
        assert instance_at <= (10.6 if shed_late else 70.0)
    else:
        assert instance_at > (10.6 if shed_late else 70.0)
    if lambda_open and lambda_at <= 10.6:
        assert became == TO_LAMBDA


def test_credits_are_earned_up_to_the_ceiling() -> None:
    assert earned(10.0, 60.0, 0.1, 144.0) == pytest.approx(16.0)
    assert earned(140.0, 600.0, 0.1, 144.0) == 144.0


def test_launch_credits_above_the_ceiling_are_kept_and_not_added_to() -> None:
    assert earned(200.0, 600.0, 0.1, 144.0) == 200.0


def test_work_within_the_balance_runs_at_full_speed_and_the_rest_at_baseline() -> None:
    assert slowed_s(1.0, 1.0, 0.3, 10.0) == 0.3
    assert slowed_s(0.5, 1.0, 0.3, 10.0) == pytest.approx(0.15 + 1.5)
    assert slowed_s(0.0, 1.0, 0.3, 10.0) == pytest.approx(3.0)
    assert slowed_s(0.0, 0.0, 0.3, 10.0) == 0.3


@given(balance=st.floats(0.0, 5.0), needed=st.floats(0.0, 5.0), slow=st.floats(1.0, 20.0))
def test_slowing_lies_between_full_speed_and_baseline_and_falls_with_credits(
    balance: float, needed: float, slow: float
) -> None:
    took = slowed_s(balance, needed, 1.0, slow)
    assert 1.0 - 1e-12 <= took <= slow + 1e-9
    assert slowed_s(balance + 0.5, needed, 1.0, slow) <= took + 1e-12


@pytest.mark.parametrize(
    ("deadline_at", "in_flight", "warms"),
    [(10.6, 4, True), (10.4, 4, False), (10.6, 5, False)],
    ids=["in time and room", "late even where warm", "no room"],
)
def test_a_cold_lambda_is_warmed_only_for_what_a_warm_one_answers_in_time(
    deadline_at: float, in_flight: int, warms: bool
) -> None:
    assert warms_one_more(10.0, deadline_at, 0.5, in_flight, 5) is warms
