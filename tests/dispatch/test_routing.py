"""Which instance gets a request."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.routing import (
    NONE,
    SERVER_FIELDS,
    Servers,
    least_finish,
    least_finish_of_size,
    least_outstanding,
    sized_finish_at,
    weighted,
)

DTYPE = np.dtype(list(SERVER_FIELDS.items()))


def servers(count: int, **fields: list[float] | float) -> Servers:
    made = np.zeros(count, DTYPE).view(np.recarray)
    made.terminates_at, made.max_batch, made.single_s, made.full_batch_s, made.weight = np.inf, 1, 0.1, 0.1, 1.0
    for name, values in fields.items():
        made[name] = values
    return made


def rows(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(numbers, np.int64)


@given(weights=st.lists(st.integers(1, 20), min_size=1, max_size=8), rounds=st.integers(1, 3))
def test_weighted_gives_each_its_exact_share_each_round(weights: list[int], rounds: int) -> None:
    made = servers(len(weights), weight=[float(w) for w in weights])
    every = rows(*range(len(weights)))
    total = sum(weights)
    for _ in range(rounds):
        taken = Counter(weighted(every, made) for _ in range(total))
        assert [taken[row] for row in range(len(weights))] == weights


@given(weights=st.lists(st.floats(0.5, 50.0), min_size=2, max_size=8))
def test_weighted_is_even_at_every_moment(weights: list[float]) -> None:
    made = servers(len(weights), weight=weights)
    every = rows(*range(len(weights)))
    taken = [0] * len(weights)
    for sent in range(1, 200):
        taken[weighted(every, made)] += 1
        for row, weight in enumerate(weights):
            assert abs(taken[row] - sent * weight / sum(weights)) < len(weights)


def test_weighted_interleaves_as_nginx_documents() -> None:
    made = servers(3, weight=[5.0, 1.0, 1.0])
    assert [weighted(rows(0, 1, 2), made) for _ in range(7)] == [0, 0, 1, 0, 2, 0, 0]


def test_least_finish_ties_go_to_the_first_row_listed() -> None:
    made = servers(3)
    assert least_finish(1.0, rows(0, 1, 2), made) == 0
    assert least_finish(1.0, rows(2, 1), made) == 2


def test_least_finish_weighs_queue_and_speed() -> None:
    made = servers(3, free_at=[5.0, 5.0, 0.0], in_service=[1, 1, 0], waiting=[0, 3, 0], single_s=[0.1, 0.1, 9.0])
    made.full_batch_s = [0.1, 0.1, 9.0]
    assert least_finish(4.9, rows(0, 1, 2), made) == 0
    made[0].waiting = 100
    assert least_finish(4.9, rows(0, 1, 2), made) == 1


def test_an_idle_instance_is_preferred_to_one_that_is_overdue() -> None:
    made = servers(3, free_at=[0.9, 0.0, 1.01], in_service=[1, 0, 1])
    assert least_finish(1.0, rows(0, 1, 2), made) == 1
    profiles = np.tile([0.0, 0.1], (3, 1))
    assert least_finish_of_size(1.0, 1, rows(0, 1, 2), made, profiles) == 1
    made[1].in_service = 1  # overdue for longer, and no sooner done for that
    assert least_finish(1.0, rows(0, 1), made) == 0


def test_least_finish_refuses_what_is_gone_before_the_answer() -> None:
    made = servers(2, terminates_at=[1.05, 1.1], single_s=[0.1, 0.1])
    assert least_finish(1.0, rows(0, 1), made) == 1
    made[1].terminates_at = 1.09
    assert least_finish(1.0, rows(0, 1), made) == NONE


@pytest.mark.parametrize("rule", [weighted, least_outstanding])
def test_nobody_accepts(rule: object) -> None:
    assert callable(rule)
    assert rule(rows(), servers(1)) == NONE


def test_least_outstanding_counts_served_and_waiting() -> None:
    made = servers(3, in_service=[4, 1, 0], waiting=[0, 2, 3])
    assert least_outstanding(rows(0, 1, 2), made) == 1
    assert least_outstanding(rows(0, 2), made) == 2
    assert least_outstanding(rows(2, 1), made) == 2


queues = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 20), st.floats(0.01, 1.0), st.floats(1.0, 3.0)),
    min_size=1,
    max_size=6,
)


@given(held=queues, now=st.floats(0.0, 2.0))
def test_a_request_of_one_item_goes_where_one_without_a_size_goes(
    held: list[tuple[int, int, float, float]], now: float
) -> None:
    made = servers(
        len(held),
        in_service=[float(one[0]) for one in held],
        waiting=[float(one[1]) for one in held],
        max_batch=8,
        single_s=[one[2] for one in held],
        full_batch_s=[one[2] * one[3] for one in held],
    )
    every, profiles = rows(*range(len(held))), [[0.0, 1.0]] * len(held)
    assert least_finish_of_size(now, 1, every, made, profiles) == least_finish(now, every, made)


def test_a_large_request_goes_to_the_idle_instance_that_is_fast_for_its_size() -> None:
    made = servers(2, single_s=[0.01, 0.02], full_batch_s=[0.4, 0.1], max_batch=4)
    profiles = [[0.0, 0.01, 0.1, 0.2, 0.4], [0.0, 0.02, 0.04, 0.06, 0.1]]
    assert least_finish_of_size(0.0, 1, rows(0, 1), made, profiles) == 0
    assert least_finish_of_size(0.0, 3, rows(0, 1), made, profiles) == 1


def test_a_request_that_does_not_fit_behind_those_that_wait_is_a_batch_later() -> None:
    (server,) = servers(1, in_service=4, waiting=3, free_at=1.0, full_batch_s=0.5, max_batch=4)
    profile = [0.0, 0.1, 0.2, 0.3, 0.5, 0.6]
    assert sized_finish_at(0.0, 1, server, profile) == 1.5
    assert sized_finish_at(0.0, 2, server, profile) == 2.0
    assert sized_finish_at(0.0, 5, server, profile) == 2.5
