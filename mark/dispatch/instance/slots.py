"""Slots of an instance that streams its answers: each stream keeps one from its start to its end.

A backend that batches streams by itself takes as many at once as its profile has batch sizes: the profile's time
of a batch of n is that of a stream among n. So `n / time of n` is the capacity, for plans as for batches, and only
when a request starts differs: with a slot that is free at once, else when the first of those that are taken ends.
"""

from __future__ import annotations

from collections.abc import Sequence


def stream_finish_at(
    now: float, free: int, ends_at: Sequence[float], waiting: int, alone_s: float, stream_s: float
) -> float:
    """The expected end of a stream that joins now, behind `waiting` that are queued for `free` slots.

    ends_at: expected ends of those that run, in any order; read where none is free for it. alone_s: seconds it
    takes among those that run, where a slot is free; stream_s: among as many as there are slots. There is at least
    one slot, free or not.
    """
    if waiting < free:
        return now + alone_s
    place = waiting - free
    # the free slots are those of the first that wait: several came at once, and none has begun yet
    ends = sorted([*(max(now, end) for end in ends_at), *[now + stream_s] * free])
    return ends[place % len(ends)] + (place // len(ends) + 1) * stream_s


def silent_after_s(stream_s: float, floor_s: float) -> float:
    """Seconds without a part after which a stream hangs: what a whole one should take, `floor_s` at least."""
    return max(floor_s, stream_s)
