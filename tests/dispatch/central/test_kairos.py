from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from mark.dispatch.central.assignment import assign
from mark.dispatch.central.kairos import Instances, Timing, Waiting, fill_costs, heterogeneity_weights, match
from tests.dispatch.central.test_assignment import room_for

SLO_MS, XI = 100.0, 0.98


def test_coefficients_compare_the_largest_query():
    latency = np.array([[10.0, 20.0], [5.0, 80.0]])

    assert heterogeneity_weights(latency, 1).tolist() == [1.0, 0.25]


def test_costs_are_weighted_times_and_a_late_pair_costs_ten_objectives_more():
    timing = Timing(np.array([[20.0], [70.0]]), np.array([1.0, 0.5]))
    costs = np.empty((1, 2))
    fill_costs(
        costs,
        Waiting(np.array([10.0]), np.array([0])),
        Instances(np.array([0, 1]), np.array([5.0, 18.5])),
        timing,
        SLO_MS,
        XI,
    )

    assert costs.tolist() == [[25.0, 0.5 * 88.5 + 10 * SLO_MS]]


def test_as_printed_a_late_pair_costs_ten_objectives_in_place_of_its_time():
    timing = Timing(np.array([[20.0], [70.0]]), np.array([1.0, 0.5]))
    costs = np.empty((1, 2))
    instances = Instances(np.array([0, 1]), np.array([5.0, 18.5]))
    fill_costs(costs, Waiting(np.array([10.0]), np.array([0])), instances, timing, SLO_MS, XI, True)

    assert costs.tolist() == [[25.0, 0.5 * 10 * SLO_MS]]


def everyone(solve):
    """Two queries and two instances: each instance takes the query that it answers in time."""
    timing = Timing(np.array([[10.0, 30.0], [40.0, 120.0]]), np.array([1.0, 0.25]))
    waiting = Waiting(np.array([0.0, 0.0]), np.array([0, 1]))
    return match(
        waiting, Instances(np.array([0, 1]), np.zeros(2)), timing, slo_ms=SLO_MS, admission_factor=XI, solve=solve
    )


def compiled_way(costs):
    room = room_for(max(costs.shape))
    assign(costs, *costs.shape, room)
    return np.arange(len(costs)), room.column_of[: len(costs)].copy()


@pytest.mark.parametrize("solve", [linear_sum_assignment, compiled_way], ids=["scipy", "replay"])
def test_the_large_query_goes_to_the_fast_instance(solve):
    assert sorted(everyone(solve)) == [(0, 1), (1, 0)]


@st.composite
def moments(draw):
    times = st.floats(1.0, 150.0)
    types, rows = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    latency = np.array(
        draw(st.lists(st.lists(times, min_size=rows, max_size=rows), min_size=types, max_size=types))
    )
    queries, machines = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    waiting = Waiting(
        np.array(draw(st.lists(st.floats(0.0, 120.0), min_size=queries, max_size=queries))),
        np.array(draw(st.lists(st.integers(0, rows - 1), min_size=queries, max_size=queries))),
    )
    instances = Instances(
        np.array(draw(st.lists(st.integers(0, types - 1), min_size=machines, max_size=machines))),
        np.array(draw(st.lists(st.floats(0.0, 60.0), min_size=machines, max_size=machines))),
    )
    return waiting, instances, Timing(latency, heterogeneity_weights(latency, rows - 1))


@given(moments(), st.sampled_from([XI, 1.0]))
def test_no_pair_is_late_while_a_pairing_without_one_exists(moment, factor):
    """Beyond the margin where all can be within it, beyond the objective where all can be within that."""
    waiting, instances, timing = moment
    pairs = match(waiting, instances, timing, slo_ms=SLO_MS, admission_factor=factor, solve=linear_sum_assignment)
    finish = np.array(
        [
            [
                instances.remaining_ms[j]
                + timing.latency_ms[instances.kind[j], waiting.row[i]]
                + waiting.waited_ms[i]
                for j in range(instances.kind.size)
            ]
            for i in range(waiting.row.size)
        ]
    )
    few, many = sorted(finish.shape)
    by_few = finish if finish.shape[0] == few else finish.T
    for limit in (factor * SLO_MS, SLO_MS):
        possible = any(
            all(by_few[row, column] <= limit for row, column in enumerate(columns))
            for columns in permutations(range(many), few)
        )
        if possible:
            assert all(finish[i, j] <= limit for i, j in pairs)
            break


@given(moments())
def test_both_solvers_reach_the_same_cost(moment):
    waiting, instances, timing = moment
    found = []
    for solve in (linear_sum_assignment, compiled_way):
        spent = []

        def counted(costs, solve=solve, spent=spent):
            rows, columns = solve(costs)
            spent.append(costs[rows, columns].sum())
            return rows, columns

        match(waiting, instances, timing, slo_ms=SLO_MS, admission_factor=XI, solve=counted)
        found += spent

    assert found[0] == pytest.approx(found[1], rel=1e-9)
