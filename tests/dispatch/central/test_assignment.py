from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.optimize import linear_sum_assignment

from mark.dispatch.central.assignment import Assignment, assign, assignment_room

COSTS = st.tuples(st.integers(1, 7), st.integers(0, 5)).flatmap(
    lambda shape: arrays.arrays(
        np.float64, (shape[0], shape[0] + shape[1]), elements=st.integers(-9, 9) | st.floats(-1e4, 1e4)
    )
)


def room_for(largest: int) -> Assignment:
    return assignment_room(np.zeros((5, largest), np.int64), np.zeros((3, largest)))


@given(COSTS)
def test_the_cost_is_that_of_scipys_solver(costs):
    rows, columns = costs.shape
    room = room_for(max(costs.shape))
    assign(costs, rows, columns, room)
    chosen = room.column_of[:rows]
    expected = costs[linear_sum_assignment(costs)].sum()

    assert len(set(chosen)) == rows
    assert abs(costs[np.arange(rows), chosen].sum() - expected) <= 1e-9 * max(1.0, np.abs(costs).sum())


@given(COSTS, COSTS)
def test_room_that_was_used_before_changes_nothing(first, second):
    used, fresh = room_for(12), room_for(12)
    assign(first, *first.shape, used)
    for room in (used, fresh):
        assign(second, *second.shape, room)

    assert used.column_of[: len(second)].tolist() == fresh.column_of[: len(second)].tolist()
