from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from mark.dispatch.instance.slots import silent_after_s, stream_finish_at

NOW = 100.0
seconds = st.floats(0.01, 60.0)


def test_a_free_slot_starts_at_once() -> None:
    assert stream_finish_at(NOW, 1, [NOW + 9], 0, 3.0, 5.0) == NOW + 3


def test_without_one_it_starts_when_the_first_ends() -> None:
    ends = [NOW + 9, NOW + 4]
    assert stream_finish_at(NOW, 0, ends, 0, 3.0, 5.0) == NOW + 4 + 5
    assert stream_finish_at(NOW, 0, ends, 1, 3.0, 5.0) == NOW + 9 + 5
    assert stream_finish_at(NOW, 0, ends, 2, 3.0, 5.0) == NOW + 4 + 5 + 5


def test_one_that_is_overdue_ends_now() -> None:
    assert stream_finish_at(NOW, 0, [NOW - 50], 0, 3.0, 5.0) == NOW + 5


def test_of_many_that_come_at_once_to_free_slots_the_later_wait_for_the_first() -> None:
    assert [stream_finish_at(NOW, 2, [], place, 3.0, 5.0) for place in range(6)] == [
        NOW + 3, NOW + 3, NOW + 5 + 5, NOW + 5 + 5, NOW + 10 + 5, NOW + 10 + 5,
    ]  # fmt: skip


@given(st.lists(seconds, max_size=6), st.integers(0, 6), st.integers(0, 30), seconds, seconds)
def test_a_later_place_is_never_promised_sooner(
    left: list[float], free: int, waiting: int, alone_s: float, extra_s: float
) -> None:
    ends, stream_s = [NOW + one for one in left], alone_s + extra_s
    assume(ends or free)
    here, behind = (
        stream_finish_at(NOW, free, ends, place, alone_s, stream_s) for place in (waiting, waiting + 1)
    )
    assert NOW + alone_s <= here
    if waiting + 1 < free or (waiting - free + 1) % (len(ends) + free):
        assert here <= behind
    assert here == stream_finish_at(NOW, free, ends[::-1], waiting, alone_s, stream_s)


@given(seconds, seconds)
def test_no_stream_hangs_before_a_whole_one_is_over(stream_s: float, floor_s: float) -> None:
    assert silent_after_s(stream_s, floor_s) >= max(stream_s, floor_s)
