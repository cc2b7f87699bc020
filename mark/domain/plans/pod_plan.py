"""Pods of deployments that somebody else runs, as they are told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCount:
    """The answer for one offering."""

    offering: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlan:
    """The answers for all offerings, by name."""

    #: When they were decided, epoch seconds.
    at: float
    #: End of the demand that they go by, epoch seconds.
    demand_end_at: float
    pods: tuple[PodCount, ...]

    def of(self, offering: str) -> PodCount | None:
        """The answer for an offering; None where it has none."""
        return next((one for one in self.pods if one.offering == offering), None)
