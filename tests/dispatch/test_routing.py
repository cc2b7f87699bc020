"""Which instance gets a request."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.routing import NONE, SERVER_FIELDS, Servers, least_finish, least_outstanding, weighted

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
