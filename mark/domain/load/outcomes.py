"""Outcomes of requests: how many were finished, and how many of those missed the objective."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Requests that were answered, refused or failed, and those of them that missed the objective.

    Where more capacity is decided by them, what a model fails by itself is in neither count.
    """

    finished: int = 0
    missed: int = 0

    def since(self, before: Outcomes) -> Outcomes:
        """What came since an earlier count; none where a store that lost the latest has fewer."""
        finished = max(0, self.finished - before.finished)
        return Outcomes(finished=finished, missed=min(finished, max(0, self.missed - before.missed)))


NO_OUTCOMES = Outcomes()
