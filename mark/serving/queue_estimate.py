"""Estimate of an agent's queue, kept at both ends of a connection by the same rules.

While both estimates agree the agent publishes no state: only requests and responses pass. Where requests have
sizes, what is in service counts in items and what waits in places (`dispatch/batcher.py`): requests, where each is
one item.
"""

from __future__ import annotations

from mark.dispatch.batcher import places_after


class QueueEstimate:
    """What an agent holds, estimated from what passes on one connection."""

    __slots__ = ("free_at", "in_service", "max_batch", "waiting")

    def __init__(self) -> None:
        self.waiting = self.in_service = 0
        self.free_at = 0.0
        self.max_batch = 1

    def sent(self, now: float, alone_s: float, size: int = 1) -> None:
        """Count a request on its way; an idle agent starts at once, and takes `alone_s`."""
        if not self.in_service and not self.waiting:
            self.in_service = size
            self.free_at = now + alone_s
        elif size == 1:
            self.waiting += 1
        else:
            self.waiting = places_after(self.waiting, size, self.max_batch)

    def answered(self, now: float, full_batch_s: float, size: int = 1) -> None:
        """Count a response to a request of `size`; after the last of a batch the agent takes what waits."""
        if self.in_service > size:
            self.in_service -= size
            return
        self.in_service = min(self.waiting, self.max_batch)
        self.waiting -= self.in_service
        self.free_at = now + full_batch_s if self.in_service else now
