"""Replays of a day's arrivals under other policies, kept beside the service's state so that each is made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from mark.adapters import adapter_of
from mark.report.cost.archive_reader import ArchiveReader

KEEP_DAYS = 40
EDGE_S = 1.0
"""A replay is of whole seconds: its start may miss the period's by one."""
LATE_S = 180.0
"""It begins and ends with minutes that the journal holds, which are so far within the period at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedPolicy:
    """Replay of a policy on the arrivals: cost in USD, and the requests that missed the objective.

    `uses_truth`: its forecaster knew what would come.
    """

    serving_usd: float
    overhead_usd: float
    requests: int
    missed: int
    uses_truth: bool = False
    #: The model's part of what commitments of the account cost, less what they cover of this replay.
    commitments_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedDay:
    """One day of UTC, or the part `[since, until)` of it that was replayed. `unable`: policies that cannot run."""

    day: date
    since: float
    until: float
    policies: Mapping[str, ReplayedPolicy]
    unable: tuple[str, ...] = ()

    def lacks(self, policies: Sequence[str]) -> tuple[str, ...]:
        """Those that have not been tried on it yet."""
        return tuple(name for name in policies if name not in self.policies and name not in self.unable)

    def covers(self, span: tuple[float, float] | None) -> bool:
        """True for the same part of the day."""
        if span is None:
            return False
        return -EDGE_S <= self.since - span[0] <= LATE_S and -EDGE_S <= span[1] - self.until <= LATE_S

    def holds(self, span: tuple[float, float] | None) -> bool:
        """True where that part of the day, or more, is in it."""
        return span is not None and self.since <= span[0] + LATE_S and self.until >= span[1] - LATE_S


def replayed_days(store: ArchiveReader, model: str) -> tuple[ReplayedDay, ...]:
    """The days that were kept, oldest first."""
    document = store.status(_name(model))
    return () if document is None else adapter_of(tuple[ReplayedDay, ...]).validate_python(document["days"])


def keep_replayed_days(store: ArchiveReader, model: str, *days: ReplayedDay) -> None:
    """Keep these beside those that are there, the last KEEP_DAYS of them; of one day the one that comes last."""
    kept = {item.day: item for item in (*replayed_days(store, model), *days)}
    ordered = sorted(kept.values(), key=lambda item: item.day)[-KEEP_DAYS:]
    store.put_status(
        _name(model), {"days": adapter_of(tuple[ReplayedDay, ...]).dump_python(tuple(ordered), mode="json")}
    )


def _name(model: str) -> str:
    return f"replays:{model}"
