"""The device of an instance that several models share: whose batch runs next, and who may still join.

One batch runs at a time. The decisions are those of `dispatch/instance/device.py`, as in a replay; here they see
each queue of the instance through a row, and its deadlines through a ring that never turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from mark.dispatch.bouncer import deviating_finish_at
from mark.dispatch.instance.device import (
    ENDLESS,
    keeps_promises,
    next_tenant,
    shared_deviation_s,
    shared_finish_at,
)
from mark.dispatch.instance.measured import MeasuredTimes
from mark.dispatch.routing import NONE


class Dated(Protocol):
    """A request that waits."""

    @property
    def deadline_at(self) -> float:
        """When it is due, by the loop's clock."""
        ...


class Turns(Protocol):
    """A queue that takes turns (`agent/queue.py`)."""

    places: int
    in_service: int
    free_at: float
    max_batch: int

    @property
    def measured(self) -> MeasuredTimes:
        """Its batches' times."""
        ...

    @property
    def waiting(self) -> Sequence[Dated]:
        """Its requests, the oldest first."""
        ...

    @property
    def is_abandoned(self) -> bool:
        """True once nothing more of it runs."""
        ...

    @property
    def is_overdue(self) -> bool:
        """True while its batch takes longer than a neighbour has to wait for."""
        ...

    def begin_batch(self) -> None:
        """Begin a batch of what waits."""
        ...

    def publish_if_changed(self) -> None:
        """Publish the queue's state where a gateway's estimate is off."""
        ...


class Device:
    """Queues that take turns. A queue joins while its model is loaded, and leaves before that is unloaded."""

    def __init__(self) -> None:
        self._cores: list[Turns] = []
        self._rows: list[_Row] = []
        self._rings: list[_Deadlines] = []

    def join(self, core: Turns) -> None:
        """Let this queue take turns."""
        self._cores.append(core)
        self._rebuild()

    def leave(self, core: Turns) -> None:
        """It takes none any more, if it ever did; the next one may begin."""
        self._cores = [other for other in self._cores if other is not core]
        self._rebuild()
        self.start()

    def start(self) -> None:
        """Where no batch runs, begin that of the queue whose oldest request is due first."""
        while not self.is_busy:
            row = next_tenant(range(len(self._rows)), self._rows, self._rings)
            if row == NONE:
                return
            self._cores[row].begin_batch()
            self._cores[row].publish_if_changed()  # gateways took it for one that waits

    @property
    def is_busy(self) -> bool:
        """True while a batch runs that is not overdue: such a one runs beside the next."""
        return any(core.in_service and not core.is_overdue for core in self._cores)

    def finish_at(self, core: Turns, now: float, due_at: float, sigmas: float) -> tuple[float, float]:
        """Expected finish of a request that joins this queue now, and its finish so many deviations later."""
        row, rows = self._cores.index(core), range(len(self._rows))
        finish_at = shared_finish_at(now, row, due_at, rows, self._rows, self._rings)
        if sigmas == 0.0:
            return finish_at, finish_at
        deviation_s = shared_deviation_s(row, due_at, rows, self._rows, self._rings)
        return finish_at, deviating_finish_at(now, finish_at, deviation_s, sigmas)

    def harms_nobody(self, core: Turns, now: float, due_at: float, sigmas: float) -> bool:
        """True where a request that joins this queue now pushes nobody past a deadline that would be kept."""
        row, rows = self._cores.index(core), range(len(self._rows))
        return keeps_promises(now, row, due_at, rows, self._rows, self._rings, sigmas)

    def _rebuild(self) -> None:
        self._rows = [_Row(core) for core in self._cores]
        self._rings = [_Deadlines(core) for core in self._cores]


class _Row:
    """A queue as the rules read it. Its ring has deadlines and no arrivals, so the objective adds nothing."""

    __slots__ = ("_core",)
    head = 0
    objective_s = 0.0

    def __init__(self, core: Turns) -> None:
        self._core = core

    @property
    def waiting(self) -> int:
        return 0 if self._core.is_abandoned or self._core.is_overdue else self._core.places

    @property
    def in_service(self) -> int:
        return 0 if self._core.is_overdue else self._core.in_service

    @property
    def free_at(self) -> float:
        return self._core.free_at

    @property
    def max_batch(self) -> int:
        return self._core.max_batch

    @property
    def single_s(self) -> float:
        return self._core.measured.single_s

    @property
    def full_batch_s(self) -> float:
        return self._core.measured.full_batch_s

    @property
    def cv(self) -> float:
        return self._core.measured.cv


class _Deadlines:
    """Deadlines of a queue's requests by place, those in service first; places beyond the last are the last's."""

    __slots__ = ("_core",)

    def __init__(self, core: Turns) -> None:
        self._core = core

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, place: int) -> float:
        waiting = self._core.waiting
        if not waiting:
            return math.inf
        return waiting[min(place - self._core.in_service, len(waiting) - 1)].deadline_at
