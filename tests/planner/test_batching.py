from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.planner.batching import tune_batching
from tests.planner.builders import profile


def test_the_largest_throughput_wins_with_the_longest_wait() -> None:
    tuned = tune_batching(profile({1: 0.10, 2: 0.16, 4: 0.28, 8: 0.50}), 0.6)
    assert tuned is not None
    assert tuned.batch.max_batch == 8
    assert tuned.capacity_rps == pytest.approx(16.0)
    assert tuned.batch.max_wait_s == pytest.approx(0.1)  # the objective binds: 0.6 - 0.50


def test_the_second_inequality_may_bind() -> None:
    tuned = tune_batching(profile({1: 0.10, 2: 0.16}), 0.6)
    assert tuned is not None
    assert tuned.batch.max_wait_s == pytest.approx(0.04)  # 2 / mu_nb = 0.2, not 0.6


def test_a_batch_over_the_objective_is_left_out() -> None:
    tuned = tune_batching(profile({1: 0.10, 2: 0.16, 4: 0.28, 8: 0.50}), 0.4)
    assert tuned is not None
    assert tuned.batch.max_batch == 4


def test_a_batch_slower_than_single_runs_is_left_out() -> None:
    tuned = tune_batching(profile({1: 0.10, 2: 0.21}), 0.6)
    assert tuned is not None
    assert (tuned.batch.max_batch, tuned.batch.max_wait_s) == (1, 0.0)


def test_ties_go_to_the_smaller_batch() -> None:
    tuned = tune_batching(profile({1: 0.25, 2: 0.5}), 0.6)
    assert tuned is not None
    assert tuned.batch.max_batch == 1


def test_a_dip_is_not_believed() -> None:
    tuned = tune_batching(profile({1: 0.10, 2: 0.16, 4: 0.08}), 0.6)
    assert tuned is not None
    assert tuned.capacity_rps == pytest.approx(4 / 0.16)


def test_none_when_no_batch_keeps_the_objective() -> None:
    assert tune_batching(profile({1: 0.7, 2: 0.9}), 0.6) is None


@given(
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8),
    st.floats(0.02, 1.2),
)
def test_no_batch_at_all_does_better(latencies: list[float], latency_s: float) -> None:
    known = profile({2**k: value for k, value in enumerate(latencies)})
    tuned = tune_batching(known, latency_s)
    single_s = known.latency_s(1)
    feasible = [
        batch
        for batch in range(1, known.max_batch + 1)
        if known.latency_s(batch) <= min(latency_s, batch * single_s)
    ]
    if tuned is None:
        assert not feasible
        return
    assert tuned.capacity_rps == max(batch / known.latency_s(batch) for batch in feasible)
    spent_s = tuned.batch.max_wait_s + known.latency_s(tuned.batch.max_batch)
    assert spent_s == pytest.approx(min(latency_s, tuned.batch.max_batch * single_s))
