"""Latencies learned while queries are served."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.central.kairos import Timing
from mark.dispatch.central.learned import learn, start_learning

SIZES = np.array([10.0, 20.0, 40.0, 80.0])


def learned(answers):
    """Predictions after answers (kind, row, ms) of two types."""
    timing, learning = Timing(np.zeros((2, SIZES.size)), np.ones(2)), start_learning(2, SIZES)
    for kind, row, took_ms in answers:
        learn(kind, row, took_ms, learning, timing)
    return timing


def test_one_size_gives_a_line_through_the_origin():
    timing = learned([(1, 1, 6.0)])
    assert timing.latency_ms.tolist() == [[0.0] * 4, [3.0, 6.0, 12.0, 24.0]]
    assert timing.weight.tolist() == [1.0, 1.0], "a type without an answer has no weight of its own"


@given(st.floats(0.0, 50.0), st.floats(0.1, 5.0), st.lists(st.integers(0, 3), min_size=2, max_size=8))
def test_times_on_a_line_are_known_from_two_sizes_on(start, slope, rows):
    rows = [*rows, (rows[0] + 1) % 4]
    timing = learned([(0, row, start + slope * SIZES[row]) for row in rows])
    assert timing.latency_ms[0] == pytest.approx(start + slope * SIZES, rel=1e-6, abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.floats(0.5, 500.0)), min_size=1))
def test_an_answered_row_has_its_mean_and_weights_compare_the_largest(answers):
    timing = learned(answers)
    for kind, row in {(kind, row) for kind, row, _ in answers}:
        took_ms = [took for one, other, took in answers if (one, other) == (kind, row)]
        assert timing.latency_ms[kind, row] == pytest.approx(np.mean(took_ms))
    base_ms, own_ms = timing.latency_ms[:, -1]
    assert timing.weight.tolist() == [1.0, base_ms / own_ms if base_ms > 0 and own_ms > 0 else 1.0]
