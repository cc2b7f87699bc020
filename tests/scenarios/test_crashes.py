"""The plug is pulled before and after each port call of a controller: the next one goes on as if it never was."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest

from tests.scenarios.crash_world import (
    MOST_LATE_S,
    PERIOD_S,
    Crash,
    Fenced,
    Life,
    Standing,
    drawn_world,
    standing,
)

WORLDS, POINTS = 6, 25
"""Some 140 schedules: so many worlds, and crashes in each."""


@dataclass(slots=True)
class Minute:
    """A minute of a run without a crash: the life before it, its port calls, and where it stood after it."""

    before: bytes
    calls: range
    after: Standing


def untroubled(seed: int) -> list[Minute]:
    """A run in which nothing crashes, minute by minute."""
    life = Life(drawn_world(seed))
    before, called = pickle.dumps(life), 0
    life.begin()
    minutes = []
    for minute in range(len(life.world.rates)):
        if minute:
            life.run_until(minute * PERIOD_S)
        minutes.append(Minute(before=before, calls=range(called, life.calls), after=standing(life)))
        before, called = pickle.dumps(life), life.calls
    return minutes


def crashed_at(minute: Minute, place: int) -> Life:
    """The life before that minute, run until it crashes at `place`."""
    life: Life = pickle.loads(minute.before)  # noqa: S301 - written above
    life._crash_at = place
    try:
        if life.calls == 0:
            life.begin()
        life.run_until(math.inf)
    except Crash:
        return life
    raise AssertionError(f"it never came to place {place}")


def after_takeover(crashed: Life, rng: np.random.Generator) -> tuple[Life, float]:
    """The next holder of the lease, or the one after it, after its first tick; and when its second one is due.

    It takes over before the next notice: one that came in between would be seen together with what was missed,
    and what a run without a crash had ordered before would not be ordered at all.
    """
    world = crashed.world
    at = world.now
    quiet_s = world.warnings[0][0] - at if world.warnings else math.inf
    late_s = float(rng.uniform(0.0, min(MOST_LATE_S, quiet_s)))
    if rng.random() < 0.3:  # the next one crashes as well
        world.move_to(at + late_s * 0.6)
        following = Life(world, crash_at=int(rng.integers(0, 40)))
        try:
            following.begin()
        except Crash:
            pass
        else:
            following._crash_at = None
    world.move_to(at + late_s)
    last = Life(world)
    last.begin()
    return last, (math.floor(at / PERIOD_S) + 1) * PERIOD_S


def survive(seed: int, points: int | None) -> int:
    """Crash a world at so many places (None: at all of them); how many there were."""
    rng = np.random.default_rng(seed)
    minutes = untroubled(seed)
    places = [(m, p) for m, one in enumerate(minutes) for p in range(2 * one.calls.start, 2 * one.calls.stop)]
    last_s = PERIOD_S * (len(minutes) - 1)
    chosen = places if points is None else [places[int(i)] for i in rng.integers(0, len(places), points)]
    tried = 0
    for number, place in chosen:
        crashed = crashed_at(minutes[number], place)
        life, due_at = after_takeover(crashed, rng)
        if due_at > last_s:
            continue
        tried += 1
        shift_s = life.controller.checkpoint.first_at  # where no tick was written, periods count from the takeover
        life.run_until(due_at + shift_s)
        expected = minutes[round(due_at / PERIOD_S)].after
        assert standing(life) == expected, f"world {seed}, minute {number}, place {place}"
    return tried


def test_a_crash_at_any_port_call_changes_nothing_after_two_ticks() -> None:
    """Some of the controllers that take over crash as well."""
    assert sum(survive(seed, POINTS) for seed in range(WORLDS)) > 120


def test_every_port_call_of_a_world_may_crash() -> None:
    assert survive(7, None) > 100


@pytest.mark.slow
def test_twenty_thousand_crashes() -> None:
    assert sum(survive(seed, 40) for seed in range(600)) > 20_000


@pytest.mark.parametrize("seed", range(5))
def test_one_that_lost_the_lease_writes_nothing_and_launches_nothing(seed: int) -> None:
    """A controller that was only slow goes on after another one has taken over."""
    minutes = untroubled(seed)
    slow: Life = pickle.loads(minutes[3].before)  # noqa: S301 - written above
    world = slow.world
    world.move_to(3 * PERIOD_S)
    other = Life(world)
    other.begin()
    launched, lines = dict(world.launched), list(world.lines)
    with pytest.raises(Fenced):
        slow.controller.tick()
    assert world.launched == launched
    assert world.lines == lines
