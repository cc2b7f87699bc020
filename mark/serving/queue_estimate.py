"""How many requests an agent holds, reckoned at both ends of a connection by the same rules.

As long as both reckon alike, the agent need not say anything: a request and its answer are all that passes.
"""

from __future__ import annotations

OVERDUE_S = 0.001
"""A batch that takes longer than reckoned is taken to end this soon."""


class QueueEstimate:
    """How many requests an agent holds, reckoned from what passes on one connection. Both ends keep one."""

    __slots__ = ("free_at", "in_service", "max_batch", "waiting")

    def __init__(self) -> None:
        self.waiting = self.in_service = 0
        self.free_at = 0.0
        self.max_batch = 1

    def sent(self, now: float, single_s: float) -> None:
        """A request goes there: an idle agent starts at once."""
        if self.in_service or self.waiting:
            self.waiting += 1
        else:
            self.in_service = 1
            self.free_at = now + single_s

    def answered(self, now: float, full_batch_s: float) -> None:
        """One came back; after the last of a batch the agent takes what waits."""
        if self.in_service > 1:
            self.in_service -= 1
            return
        self.in_service = min(self.waiting, self.max_batch)
        self.waiting -= self.in_service
        self.free_at = now + full_batch_s if self.in_service else now
