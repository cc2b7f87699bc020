"""The latency objective, how a window kept it, and a model's needs of a machine."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mark.domain.errors import Misconfigured
from mark.domain.load.sizes import SizeDistribution

CHANCE = 0.01
"""A probability below this is taken for no chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Satisfied when at least `target` of the requests answer within `latency_s`.

    `latency_s` is MArk's RT_max and `target` its SL_min (section 4.1). `mean_latency_s` is MArk's l, the mean
    latency that a plan may reach at most (section 4.3); half of what is judged when it is not given, which
    `mean_is_default` tells from a mean that was asked for and happens to be half.
    """

    latency_s: float
    target: float
    mean_latency_s: float = 0.0
    mean_is_default: bool = False
    #: For answers that stream and are judged by their first byte: seconds to it; the rest of `latency_s` is what
    #: the remaining answer usually takes, so that plans, deadlines and replays count in whole answers.
    first_byte_s: float | None = None

    @property
    def judged_s(self) -> float:
        """In time is no later than this: an answer, or its first byte."""
        return self.latency_s if self.first_byte_s is None else self.first_byte_s

    @property
    def rest_s(self) -> float:
        """Seconds of an answer that the objective does not judge: those after its first byte."""
        return self.latency_s - self.judged_s

    def can_tell(self, requests: int) -> bool:
        """True where so many requests show who keeps it: one late one alone is not a miss."""
        return self.target == 1 or round(requests * (1 - self.target), 9) >= 1

    def is_missed_surely(self, requests: int, missed: int) -> bool:
        """True where so many misses are no chance, if each request is missed as often as the target allows."""
        if missed == 0 or self.target == 1:
            return missed > 0
        late, kept = math.log(1 - self.target), math.log(self.target)
        ways = (
            math.lgamma(requests + 1) - math.lgamma(n + 1) - math.lgamma(requests - n + 1) for n in range(missed)
        )
        fewer = sum(math.exp(log + n * late + (requests - n) * kept) for n, log in enumerate(ways))
        return 1 - fewer < CHANCE

    def __post_init__(self) -> None:
        if not (math.isfinite(self.latency_s) and self.latency_s > 0):
            raise Misconfigured(f"objective latency must be above 0 s, not {self.latency_s}")
        if not 0 < self.target <= 1:
            raise Misconfigured(f"objective target must be in (0, 1], not {self.target}")
        if self.first_byte_s is not None and not 0 < self.first_byte_s <= self.latency_s:
            raise Misconfigured(
                f"the first byte's time must be in (0, {self.latency_s}] s, not {self.first_byte_s}"
            )
        usual_s = self.rest_s + self.judged_s / 2
        if self.mean_latency_s == 0.0:
            object.__setattr__(self, "mean_latency_s", usual_s)
            object.__setattr__(self, "mean_is_default", True)
        elif self.mean_latency_s != usual_s:
            object.__setattr__(self, "mean_is_default", False)  # a copy with another mean
        if not 0 < self.mean_latency_s <= self.latency_s:
            raise Misconfigured(f"mean latency must be in (0, {self.latency_s}] s, not {self.mean_latency_s}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SloWindow:
    """A full window of the SLO monitor: M requests, or fewer after a time (MArk section 4.4)."""

    #: When it was full, epoch seconds.
    closed_at: float
    #: Requests that were answered, shed or failed in it.
    requests: int
    #: Of these, requests that missed the objective.
    missed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model to serve and what it needs from a machine.

    `accelerators` names the accelerators it can use; `cpu` says whether it also runs without one.
    `payload_mib` is the size of one request with its answer; `redispatch` says whether a request that was in
    flight on a lost instance may run again elsewhere. `sizes` are those of its requests in items, None where
    each is one; `usual_sizes` names what they are where a load does not say. `rows_are_items`: a live request that
    does not give its size has as many items as the first input has rows.
    """

    name: str
    slo: Slo
    memory_gib: float = 0.5
    architectures: tuple[str, ...] = ("amd64",)
    accelerators: tuple[str, ...] = ()
    cpu: bool = True
    payload_mib: float = 0.2
    redispatch: bool = True
    rows_are_items: bool = False
    sizes: SizeDistribution | None = None
    usual_sizes: str | None = None
    source: str = ""
