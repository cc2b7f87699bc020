"""How fast a model is on a machine: latency by batch size, and who says so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from mark.domain.errors import Misconfigured


class Evidence(StrEnum):
    """How a profile is known; reports tell the three apart."""

    MEASURED = "measured"
    PUBLISHED = "published"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a profile comes from. `formula` is required of an assumed one."""

    evidence: Evidence
    source: str
    date: str = ""
    machine: str = ""
    formula: str = ""

    def __post_init__(self) -> None:
        if not self.source:
            raise Misconfigured("a profile needs a source")
        if self.evidence is Evidence.ASSUMED and not self.formula:
            raise Misconfigured(f"an assumed profile needs its formula (source {self.source!r})")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPoint:
    """One measurement: a batch of `batch` items takes `latency_s`."""

    batch: int
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Latency by batch size of one model (and variant) on one instance type.

    Points are kept as they were measured; `latency_s` reads their running maximum. Between points the next
    larger measured batch counts, so a profile never promises what nobody measured.
    """

    model: str
    instance_type: str
    points: tuple[LatencyPoint, ...]
    provenance: Provenance
    variant: str = "base"

    def __post_init__(self) -> None:
        where = f"profile of {self.model} on {self.instance_type}"
        if not self.points:
            raise Misconfigured(f"{where} has no points")
        batches = [point.batch for point in self.points]
        if batches != sorted(set(batches)) or batches[0] < 1:
            raise Misconfigured(f"{where}: batch sizes must rise from 1 or more, got {batches}")
        if not all(math.isfinite(p.latency_s) and p.latency_s > 0 for p in self.points):
            raise Misconfigured(f"{where}: latencies must be above 0 s")

    @property
    def max_batch(self) -> int:
        """The largest batch that was profiled."""
        return self.points[-1].batch

    def latency_s(self, batch: int) -> float:
        """Seconds that a batch takes: the running maximum up to the smallest profiled batch >= `batch`."""
        if not 1 <= batch <= self.max_batch:
            raise Misconfigured(
                f"batch {batch} of {self.model} was not profiled on {self.instance_type}: "
                f"profiled up to {self.max_batch}"
            )
        worst = 0.0
        for point in self.points:
            worst = max(worst, point.latency_s)
            if point.batch >= batch:
                break
        return worst

    def dips(self, tolerance: float = 0.05) -> tuple[LatencyPoint, ...]:
        """Points more than `tolerance` below an earlier, smaller batch: a measurement to doubt."""
        found: list[LatencyPoint] = []
        worst = 0.0
        for point in self.points:
            if point.latency_s < worst * (1 - tolerance):
                found.append(point)
            worst = max(worst, point.latency_s)
        return tuple(found)
