"""Estimate of an agent's queue, kept at both ends of a connection by the same rules.

While both estimates agree the agent publishes no state: only requests and responses pass. Where requests have
sizes, what is in service counts in items and what waits in places (`dispatch/batcher.py`): requests, where each is
one item. An agent whose answers stream has slots (`dispatch/instance/slots.py`): each request takes one while any
is free.
"""

from __future__ import annotations

from mark.dispatch.batcher import places_after


class QueueEstimate:
    """Requests that an agent holds, by what passes on one connection. `slots`: 0 where it answers in batches."""

    __slots__ = ("free_at", "in_service", "max_batch", "slots", "waiting")

    def __init__(self) -> None:
        self.waiting = self.in_service = self.slots = 0
        self.free_at = 0.0
        self.max_batch = 1

    def sent(self, now: float, alone_s: float, size: int = 1) -> None:
        """Count a request on its way; an idle agent starts at once, and takes `alone_s`."""
        if self.slots:
            self._takes_slot(now, alone_s)
        elif not self.in_service and not self.waiting:
            self.in_service = size
            self.free_at = now + alone_s
        elif size == 1:
            self.waiting += 1
        else:
            self.waiting = places_after(self.waiting, size, self.max_batch)

    def answered(self, now: float, full_batch_s: float, size: int = 1) -> None:
        """Count a response to a request of `size`; after the last of a batch the agent takes what waits."""
        if self.slots:
            self._leaves_slot(now)
            return
        if self.in_service > size:
            self.in_service -= size
            return
        self.in_service = min(self.waiting, self.max_batch)
        self.waiting -= self.in_service
        self.free_at = now + full_batch_s if self.in_service else now

    def _takes_slot(self, now: float, alone_s: float) -> None:
        if self.in_service >= self.slots:
            self.waiting += 1
            return
        self.in_service += 1
        # one of so many ends next, were they spread evenly: the agent knows better, and says so
        self.free_at = now if self.in_service < self.slots else now + alone_s / self.slots

    def _leaves_slot(self, now: float) -> None:
        if self.waiting:
            self.waiting -= 1
        elif self.in_service:
            self.in_service -= 1
            self.free_at = now
