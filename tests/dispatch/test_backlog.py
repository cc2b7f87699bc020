"""The backlog of async requests: idle servers first, then load at the slowest pace that keeps all deadlines."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.backlog import IDLE_SHARE, Backlog, idle_room, pace_rps

TAIL_S = 1.0
DEADLINES = st.lists(st.tuples(st.floats(0.0, 50.0), st.floats(10.0, 200.0)), min_size=1, max_size=40)
"""When each arrives, and its deadline, seconds."""


def filled(*pairs: tuple[float, float]) -> Backlog[int]:
    backlog: Backlog[int] = Backlog()
    for number, (at, deadline_s) in enumerate(pairs):
        backlog.add(number, size=1, due_at=at + deadline_s, load_at=at + 0.5 * deadline_s)
    return backlog


@given(given_=DEADLINES, step_s=st.floats(0.05, 2.0))
def test_each_is_taken_between_its_load_time_and_its_tail(
    given_: list[tuple[float, float]], step_s: float
) -> None:
    backlog, now, taken = filled(*given_), 0.0, dict[int, float]()
    while len(backlog):
        now += step_s
        for one in backlog.take_load(now, TAIL_S):
            assert one.item not in taken, "each is taken once"
            taken[one.item] = now
            assert one.load_at <= now or one.due_at - TAIL_S <= now
            assert now <= one.due_at - TAIL_S + step_s, "no later than a step after its tail"
    assert len(taken) == len(given_)


@given(given_=DEADLINES)
def test_the_earliest_deadline_is_taken_first(given_: list[tuple[float, float]]) -> None:
    backlog = filled(*given_)
    due = [one.due_at for one in backlog.take_for_idle(len(given_))]
    assert due == sorted(due)
    assert not len(backlog)


def test_load_is_spread_over_what_is_left() -> None:
    backlog = filled(*[(0.0, 200.0 + TAIL_S)] * 100)
    counts = [len(backlog.take_load(float(now), TAIL_S)) for now in range(201)]
    assert sum(counts[:101]) == 0, "until half of the deadline has passed, idle capacity may come"
    assert sum(counts) == 100
    assert max(counts[101:]) <= 2, "one a second, as instances that are rented for them would serve them"


def test_idle_servers_leave_less_to_become_load() -> None:
    backlog = filled(*[(0.0, 200.0)] * 100)
    assert len(backlog.take_for_idle(60)) == 60
    taken = sum(len(backlog.take_load(float(now), TAIL_S)) for now in range(200))
    assert taken == 40


def test_one_that_found_no_server_is_taken_again_in_time() -> None:
    backlog = filled((0.0, 10.0))
    (one,) = backlog.take_load(9.0, TAIL_S)
    backlog.add(one.item, size=one.size, due_at=one.due_at, load_at=one.load_at)
    assert [again.item for again in backlog.take_load(9.1, TAIL_S)] == [one.item]


def test_sizes_fill_the_room_of_an_idle_server() -> None:
    backlog: Backlog[str] = Backlog()
    for name, size in (("a", 3), ("b", 4), ("c", 1)):
        backlog.add(name, size=size, due_at=1.0, load_at=0.5)
    assert [one.item for one in backlog.take_for_idle(6)] == ["a"], "nobody is overtaken by a smaller one"
    assert [one.item for one in backlog.take_for_idle(3)] == ["c"], "the others do not wait for what fits nowhere"
    assert [one.item for one in backlog.take_for_idle(5)] == ["b"]


def test_the_pace_is_that_of_the_busiest_prefix() -> None:
    assert pace_rps(0.0, []) == 0.0
    assert pace_rps(0.0, [10.0, 10.0, 100.0]) == pytest.approx(0.2)
    assert pace_rps(5.0, [5.0]) == math.inf


@given(
    single_s=st.floats(0.001, 1.0),
    factor=st.floats(1.0, 20.0),
    max_batch=st.integers(1, 64),
    objective_s=st.floats(0.01, 10.0),
)
def test_a_batch_for_idle_capacity_leaves_an_ordinary_request_in_time(
    single_s: float, factor: float, max_batch: int, objective_s: float
) -> None:
    full_s = single_s if max_batch == 1 else factor * single_s
    room = idle_room(single_s, full_s, max_batch, objective_s)
    assert 0 <= room <= max_batch
    if room:
        batch_s = single_s + (full_s - single_s) * (room - 1) / max(1, max_batch - 1)
        assert batch_s + single_s <= IDLE_SHARE * objective_s * (1 + 1e-9)
    else:
        assert 2 * single_s > IDLE_SHARE * objective_s
