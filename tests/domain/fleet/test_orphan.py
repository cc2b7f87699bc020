"""The dead man's switch: nothing that is owned or used ends, and nothing else runs for ever."""

from __future__ import annotations

import math
from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from mark.domain.fleet.orphan import BEAT_S, LONGEST_STEP_S, ORPHAN_AFTER_S, Notice, Ownership, find_orphans

STEPS = st.lists(st.floats(0.0, 3 * ORPHAN_AFTER_S), max_size=60)
LAUNCHED = st.dictionaries(st.sampled_from(["i-1", "i-2", "i-3"]), st.floats(0.0, 10 * ORPHAN_AFTER_S))
HOUR_S = 3600.0


def looks(view: Ownership, steps: list[float], *, used: bool = False, beats: bool = False) -> Ownership:
    def look(before: Ownership, step_s: float) -> Ownership:
        now = before.at + step_s
        return before.at_look(now, acted_at=now if beats else None, is_used=used)

    return reduce(look, steps, view)


@given(STEPS, st.booleans())
def test_who_is_used_or_sees_a_controller_is_no_orphan(steps: list[float], used: bool) -> None:
    assert not looks(Ownership(at=0.0), [*steps, 1.0], used=used, beats=not used).is_orphan


@given(st.floats(1.0, LONGEST_STEP_S))
def test_who_is_alone_is_an_orphan_once_the_time_is_over_and_not_before(step_s: float) -> None:
    count = math.ceil(ORPHAN_AFTER_S / step_s)
    view = looks(Ownership(at=0.0, acted_at=0.0), [step_s] * (count - 1))
    assert view.is_orphan == (step_s * (count - 1) >= ORPHAN_AFTER_S)
    assert looks(view, [step_s, step_s]).is_orphan


def test_a_clock_that_jumps_ends_nothing_and_an_old_sign_is_no_news() -> None:
    view = looks(Ownership(at=0.0, acted_at=0.0), [30 * 24 * HOUR_S])
    assert view.alone_s == LONGEST_STEP_S
    assert view.at_look(view.at, acted_at=0.0, is_used=False).alone_s == LONGEST_STEP_S
    assert view.at_look(view.at + BEAT_S, acted_at=view.at, is_used=False).alone_s == 0.0


@given(LAUNCHED, st.none() | st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_nothing_ends_that_was_not_told_of_or_that_a_controller_saw_lately(
    launched_at: dict[str, float], acted_at: float | None, now: float
) -> None:
    first = find_orphans(now, launched_at=launched_at, acted_at=acted_at, notice=None)
    assert not first.ended
    assert bool(first.found) == (first.notice is not None)
    for name in first.found:
        assert now - launched_at[name] >= ORPHAN_AFTER_S
        assert acted_at is None or now - acted_at >= ORPHAN_AFTER_S


@given(LAUNCHED, st.none() | st.floats(0.0, 1e6))
def test_looked_at_each_hour_every_instance_ends_in_twice_the_time(
    launched_at: dict[str, float], acted_at: float | None
) -> None:
    begin = max([*launched_at.values(), acted_at or 0.0])
    notice, left = None, dict(launched_at)
    for hour in range(1, 14):
        seen = find_orphans(begin + hour * HOUR_S, launched_at=left, acted_at=acted_at, notice=notice)
        notice = seen.notice
        left = {name: at for name, at in left.items() if name not in seen.ended}
    assert not left


def test_a_notice_of_an_earlier_outage_ends_nothing() -> None:
    later = 10 * ORPHAN_AFTER_S
    seen = find_orphans(
        later,
        launched_at={"i-1": 0.0},
        acted_at=ORPHAN_AFTER_S,
        notice=Notice(acted_at=0.0, told_at={"i-1": 0.0}),
    )
    assert seen.found == ("i-1",)
    assert (seen.ended, seen.notice) == ((), Notice(acted_at=ORPHAN_AFTER_S, told_at={"i-1": later}))


def test_an_instance_that_was_launched_after_a_notice_is_told_of_before_it_ends() -> None:
    """Controllers that live, and may not write that they do, launch a fleet again."""
    notice, launched_at = Notice(acted_at=0.0, told_at={"i-1": ORPHAN_AFTER_S}), {"i-2": 2 * ORPHAN_AFTER_S}
    first = find_orphans(3 * ORPHAN_AFTER_S, launched_at=launched_at, acted_at=0.0, notice=notice)
    assert (first.found, first.ended) == (("i-2",), ())
    then = find_orphans(4 * ORPHAN_AFTER_S, launched_at=launched_at, acted_at=0.0, notice=first.notice)
    assert then.ended == ("i-2",)


def test_at_the_services_end_all_end_at_once() -> None:
    seen = find_orphans(100.0, launched_at={"i-2": 99.0, "i-1": 0.0}, acted_at=99.0, notice=None, ends_at=100.0)
    assert seen.ended == ("i-1", "i-2")
