"""Requests of the async class: they wait for idle capacity, and become load when their deadline asks for it.

Until its load time (half of its deadline is left) such a request runs only where a server is idle, in a batch that
is over soon enough for an ordinary request that comes meanwhile. From then on it is load like any other, at the
slowest even pace at which all that wait are in time, earliest deadline first: so instances are rented for it only
where idle ones did not suffice.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")

IDLE_SHARE = 0.5
"""Share of the objective in which a batch of async requests, and then an ordinary one, are to be done."""
LOAD_SHARE = 0.5
"""Share of a request's deadline that is left when it becomes load: time for instances to be rented and to boot."""


class Waiting(NamedTuple, Generic[Item]):
    """One that waits. Instants are of one clock, in seconds."""

    due_at: float
    #: tells apart those of one due time, by their order of arrival
    number: int
    load_at: float
    #: in items
    size: int
    item: Item


_BY_DEADLINE = attrgetter("due_at", "number")


class Backlog(Generic[Item]):
    """All async requests that wait for one model at one gateway, the earliest deadline first."""

    def __init__(self) -> None:
        self._waiting: list[Waiting[Item]] = []
        self._number = 0
        self._paced_at = -math.inf
        self._owed = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, item: Item, *, size: int, due_at: float, load_at: float) -> None:
        """Let one wait; again where it was taken and found no server."""
        self._number += 1
        bisect.insort(self._waiting, Waiting(due_at, self._number, load_at, size, item), key=_BY_DEADLINE)

    def take_for_idle(self, room: int) -> list[Waiting[Item]]:
        """Take the first that fit together into `room` items of a server that is idle.

        Of those that are larger than that the others do not wait: they become load.
        """
        taken: list[Waiting[Item]] = []
        items = 0
        for one in self._waiting:
            if one.size > room:
                continue
            if items + one.size > room:
                break
            items += one.size
            taken.append(one)
        self._remove(taken)
        return taken

    def take_if(self, chosen: Callable[[Item], bool]) -> list[Waiting[Item]]:
        """Take those of which that is true."""
        taken = [one for one in self._waiting if chosen(one.item)]
        self._remove(taken)
        return taken

    def take_load(self, now: float, tail_s: float) -> list[Waiting[Item]]:
        """Take those that are to be sent now, as load: those of the time since the last call, so call it often.

        tail_s: seconds before its due time by which each is taken, whatever the pace.
        """
        load = [one for one in self._waiting if one.load_at <= now or one.due_at - tail_s <= now]
        pace = pace_rps(now, [one.due_at - tail_s for one in load])
        passed_s = now - self._paced_at if math.isfinite(self._paced_at) else 0.0
        self._paced_at = now
        if not load:
            self._owed = 0.0
            return []
        overdue = bisect.bisect_right(load, now, key=lambda one: one.due_at - tail_s)
        self._owed += 0.0 if math.isinf(pace) else pace * passed_s
        count = min(len(load), max(overdue, int(self._owed)))
        self._owed = max(0.0, self._owed - count)
        taken = load[:count]
        self._remove(taken)
        return taken

    def _remove(self, taken: list[Waiting[Item]]) -> None:
        if taken:
            gone = {one.number for one in taken}
            self._waiting = [one for one in self._waiting if one.number not in gone]


def pace_rps(now: float, last_times: Iterable[float]) -> float:
    """The least even rate, requests/s, by which each is sent before its last time; infinite where one is past.

    last_times: ascending. The rate of the busiest prefix, as in the feasibility test of earliest deadline first
    (Liu and Layland, 1973).
    """
    most = 0.0
    for count, last_at in enumerate(last_times, 1):
        if last_at <= now:
            return math.inf
        most = max(most, count / (last_at - now))
    return most


def idle_room(single_s: float, full_s: float, max_batch: int, objective_s: float) -> int:
    """Items of the largest batch that an idle server may take of the async class; 0 for a model too slow for any.

    single_s, full_s: seconds of a batch of one item and of `max_batch`, those between on a straight line.
    """
    spare_s = IDLE_SHARE * objective_s - single_s
    if spare_s < single_s:
        return 0
    each_s = (full_s - single_s) / max(1, max_batch - 1)
    return max_batch if full_s <= spare_s or each_s <= 0 else 1 + int((spare_s - single_s) / each_s)
