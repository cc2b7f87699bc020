"""A model's ledger: what its bill is made of. Days, hours, budgets and commitments are counted from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mark.accounting.compaction import rolled_up
from mark.accounting.hourly_totals import HourlyMark
from mark.accounting.ledger import joined, usage_before
from mark.domain.billing.costs import FleetUsage, LedgerRecord, Transition
from mark.domain.billing.footprint import Footprint
from mark.service_spec import ServedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLedger:
    """All that a model's bill is made of: its ledger, and the marks of its tallies, the first where it began.

    `used` counts what had been used before an instant; who asks again and again has a cheaper one.
    """

    served: ServedModel
    record: LedgerRecord
    marks: tuple[HourlyMark, ...]
    #: Of the service, which its models share.
    footprint: Footprint | None
    used: Callable[[tuple[Transition, ...], float], FleetUsage] = usage_before

    @property
    def began_at(self) -> float:
        """The first mark's instant, service time."""
        return self.marks[0].at

    def usage(self, at: float) -> FleetUsage:
        """Usage up to `at`, rollups included."""
        return joined(self.used(self.record.transitions, at), rolled_up(self.record.rollups, at))
