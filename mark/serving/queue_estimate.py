"""Estimate of an agent's queue, kept at both ends of a connection by the same rules.

While both estimates agree the agent publishes no state: only requests and responses pass.
"""

from __future__ import annotations


class QueueEstimate:
    """Requests that an agent holds, estimated from what passes on one connection."""

    __slots__ = ("free_at", "in_service", "max_batch", "waiting")

    def __init__(self) -> None:
        self.waiting = self.in_service = 0
        self.free_at = 0.0
        self.max_batch = 1

    def sent(self, now: float, single_s: float) -> None:
        """Count a request on its way; an idle agent starts at once."""
        if self.in_service or self.waiting:
            self.waiting += 1
        else:
            self.in_service = 1
            self.free_at = now + single_s

    def answered(self, now: float, full_batch_s: float) -> None:
        """Count a response; after the last of a batch the agent takes what waits."""
        if self.in_service > 1:
            self.in_service -= 1
            return
        self.in_service = min(self.waiting, self.max_batch)
        self.waiting -= self.in_service
        self.free_at = now + full_batch_s if self.in_service else now
