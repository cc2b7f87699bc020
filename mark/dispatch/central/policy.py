"""Policy of a central queue: which query goes to which instance once one is free."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mark.domain.errors import Misconfigured


class CentralRule(StrEnum):
    """Rules of a central queue. The oracle is no rule to run: it is the most that any could serve."""

    FCFS = "fcfs"
    DRS = "drs"
    CLOCKWORK = "clockwork"
    KAIROS = "kairos"
    #: Kairos with the costs of Eq. 8 as printed, to compare
    KAIROS_PUBLISHED = "kairos-published"
    ORACLE = "kairos-oracle"


class TooLate(StrEnum):
    """Treatment of a query that no instance of the pool can answer in time any more.

    HOLD serves it when an instance would idle otherwise, COMMIT as if it were in time, OVERFLOW hands it on (to
    Lambda; a pool by itself has none, and counts it as missed).
    """

    HOLD = "hold"
    COMMIT = "commit"
    OVERFLOW = "overflow"


class Feasible(StrEnum):
    """The instance that Clockwork's rule takes among those that finish a query in time.

    EARLIEST finishes it first, LATEST leaves the least slack, FIRST comes first in the pool.
    """

    EARLIEST = "earliest"
    LATEST = "latest"
    FIRST = "first"


@dataclass(frozen=True, slots=True, kw_only=True)
class CentralPolicy:
    """A rule of the central queue and its settings."""

    rule: CentralRule
    too_late: TooLate = TooLate.HOLD
    #: Clockwork's choice among instances in time
    feasible: Feasible = Feasible.EARLIEST
    #: share of the latency objective that a predicted finish may use (Kairos' xi)
    admission_factor: float = 0.98
    #: DeepRecSys' threshold: a larger query goes to the base type; None where hill climbing finds it
    threshold: int | None = None
    #: the name of a user's own rule, which replays run in `rule`'s place
    own: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.admission_factor <= 1:
            raise Misconfigured(f"admission_factor is in (0, 1], not {self.admission_factor:g}")
