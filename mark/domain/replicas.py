"""Replicas of deployments that somebody else runs, as they are told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The answer for one offering."""

    offering: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlan:
    """The answers for all offerings, by name."""

    #: When they were decided, epoch seconds.
    at: float
    #: End of the demand that they go by, epoch seconds.
    demand_end_at: float
    replicas: tuple[Replicas, ...]

    def of(self, offering: str) -> Replicas | None:
        """The answer for an offering; None where it has none."""
        return next((one for one in self.replicas if one.offering == offering), None)
