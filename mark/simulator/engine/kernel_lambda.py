"""Lambda in virtual time: a pool of environments that start cold, stay warm for a while, and throttle."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mark.dispatch.overflow import note_in_flight
from mark.simulator.engine.kernel_tally import Floats, Ints, Record, RunTally, answer

WARM_FINISH, WARM_ARRIVED, COLD_FINISH, COLD_ARRIVED = range(4)
"""Rows of Pool.rings."""

POOL = np.dtype(
    [
        *((name, "i8") for name in ("idle_low", "idle", "warm_head", "warm", "cold_head", "cold")),
        *((name, "i8") for name in ("starts", "draws", "calls")),
    ]
)


class Pool(NamedTuple):
    """Lambda: idle environments as a stack (the last used is used first), calls in flight as rings by finish.

    A call is put in its place in its ring, from the end: those that take a constant time stay where they come.
    marks: one record of POOL; idle_until: shape (concurrency,); rings: shape (4, concurrency); started_at: shape
    (burst,); belief: what the sender believes (`dispatch/overflow.py`); noise: shape (draws,), factors on a
    call's time.
    """

    marks: Record
    idle_until: Floats
    rings: Floats
    started_at: Floats
    idle_life_s: Floats
    belief: Ints
    noise: Floats


def invoke(now: float, arrived_at: float, rules: Record, pool: Pool, tally: RunTally) -> bool:
    """Call Lambda; False when it throttles (concurrency, or too many new environments at once)."""
    marks = pool.marks
    if marks.warm + marks.cold >= rules.concurrency:
        tally.totals.throttled += 1
        return False
    call_s = rules.lambda_s * pool.noise[marks.calls & (pool.noise.size - 1)]
    if _take_idle(now, pool):
        _put(now + call_s, arrived_at, pool.rings, WARM_FINISH, marks.warm_head, marks.warm)
        marks.warm += 1
    elif not start_environment(now, arrived_at, rules.cold_s + call_s, rules, pool, tally):
        return False
    marks.calls += 1
    tally.totals.invocations += 1
    note_in_flight(pool.belief, now, marks.warm + marks.cold)
    return True


def start_environment(
    now: float, arrived_at: float, busy_s: float, rules: Record, pool: Pool, tally: RunTally
) -> bool:
    """Start a new environment, busy for `busy_s`; False when too many were started at once.

    `arrived_at` is NaN for a warm-up ping, which answers nobody.
    """
    marks = pool.marks
    oldest = marks.starts % rules.burst
    if marks.starts >= rules.burst and now - pool.started_at[oldest] < rules.burst_window_s:
        tally.totals.throttled += 1
        return False
    pool.started_at[oldest] = now
    marks.starts += 1
    _put(now + busy_s, arrived_at, pool.rings, COLD_FINISH, marks.cold_head, marks.cold)
    marks.cold += 1
    tally.totals.cold += 1
    if np.isnan(arrived_at):
        tally.totals.pings += 1
    return True


def _put(finish_at: float, arrived_at: float, rings: Floats, finish: int, head: int, held: int) -> None:
    """Put a call into a ring, which holds `held` from `head` on in the order of their end.

    finish: the ring's row of ends in `rings`; that of arrivals follows it.
    """
    room = rings.shape[1]
    slot = (head + held) % room
    while held > 0:
        before = (head + held - 1) % room
        if rings[finish, before] <= finish_at:
            break
        rings[finish, slot], rings[finish + 1, slot] = rings[finish, before], rings[finish + 1, before]
        slot, held = before, held - 1
    rings[finish, slot], rings[finish + 1, slot] = finish_at, arrived_at


def _take_idle(now: float, pool: Pool) -> bool:
    """Take the environment that was used last; those idle for too long are recycled first."""
    marks = pool.marks
    while marks.idle > 0 and pool.idle_until[marks.idle_low] <= now:
        marks.idle_low = (marks.idle_low + 1) % pool.idle_until.size
        marks.idle -= 1
    while marks.idle > 0:  # lives differ: the last used may be over before the first used
        marks.idle -= 1
        if pool.idle_until[(marks.idle_low + marks.idle) % pool.idle_until.size] > now:
            return True
    return False


def reap(now: float, rules: Record, pool: Pool, tally: RunTally) -> None:
    """Answer the calls that ended by `now`, in order of their end; their environments become idle."""
    marks = pool.marks
    room = pool.rings.shape[1]
    while True:
        warm_at = pool.rings[WARM_FINISH, marks.warm_head] if marks.warm > 0 else np.inf
        cold_at = pool.rings[COLD_FINISH, marks.cold_head] if marks.cold > 0 else np.inf
        finish_at = min(warm_at, cold_at)
        if finish_at > now:
            return
        if warm_at <= cold_at:
            arrived_at = pool.rings[WARM_ARRIVED, marks.warm_head]
            marks.warm_head = (marks.warm_head + 1) % room
            marks.warm -= 1
        else:
            arrived_at = pool.rings[COLD_ARRIVED, marks.cold_head]
            marks.cold_head = (marks.cold_head + 1) % room
            marks.cold -= 1
        if not np.isnan(arrived_at):
            tally.totals.lambda_ += 1
            answer(arrived_at, finish_at, rules, tally)
        _make_idle(finish_at, pool)


def _make_idle(now: float, pool: Pool) -> None:
    marks = pool.marks
    life_s = pool.idle_life_s[marks.draws % pool.idle_life_s.size]
    marks.draws += 1
    pool.idle_until[(marks.idle_low + marks.idle) % pool.idle_until.size] = now + life_s
    marks.idle += 1
