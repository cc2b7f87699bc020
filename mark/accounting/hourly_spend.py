"""Spend by the hour: what the bill had come to at an hour's end, less what it had come to at its start. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mark.accounting.daily_costs import model_bill, shared_bill
from mark.accounting.model_ledger import ModelLedger
from mark.catalog.billing import cost_of
from mark.domain.billing.costs import CostUsd

HOUR_S = 3600.0
SHOWN_HOURS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class HourSpend:
    """Spending of one hour, USD."""

    #: When it began, epoch seconds of the service's clock.
    at: float
    #: Serving instances and standbys.
    instances: float = 0.0
    #: The Lambda functions.
    lambda_usd: float = 0.0
    #: What stands around the fleet.
    overhead: float = 0.0
    #: What commitments of the account cost, less what they cover; below 0 where they save.
    commitments: float = 0.0

    @property
    def total(self) -> float:
        """Cost of the hour."""
        return self.instances + self.lambda_usd + self.overhead + self.commitments

    @property
    def net(self) -> HourSpend:
        """The same, with what commitments save taken off what they may cover: instances, overhead, then Lambda."""
        saved = max(0.0, -self.commitments)
        left = []
        for usd in (self.instances, self.overhead, self.lambda_usd):
            taken = min(usd, saved)
            left.append(usd - taken)
            saved -= taken
        instances, overhead, lambda_usd = left
        return HourSpend(
            at=self.at,
            instances=instances,
            lambda_usd=lambda_usd,
            overhead=overhead,
            commitments=max(0.0, self.commitments),
        )


def hour_edges(began_at: float, now: float) -> tuple[float, ...]:
    """Ends of the last whole hours before `now`, the start of the first one in front; none before `began_at`."""
    last = math.floor(now / HOUR_S)
    return tuple(at * HOUR_S for at in range(last - SHOWN_HOURS, last + 1) if at * HOUR_S >= began_at - HOUR_S)


def bill_at(ledgers: Sequence[ModelLedger], at: float) -> CostUsd:
    """Cost of a service by an instant, overhead included."""
    lines = (line for ledger in ledgers for line in model_bill(ledger, at))
    return cost_of((*lines, *shared_bill(ledgers, at)))


def spend_by_hour(bills: Mapping[float, CostUsd]) -> tuple[HourSpend, ...]:
    """The spending between bills that are an hour apart, oldest first. bills: by the instant of each."""
    found = []
    for at in sorted(bills):
        before, after = bills[at], bills.get(at + HOUR_S)
        if after is None:
            continue
        # a gateway is billed by the peak of the whole life: a later peak makes earlier hours dearer than they were
        found.append(
            HourSpend(
                at=at,
                instances=max(0.0, after.instances + after.standby - before.instances - before.standby),
                lambda_usd=max(0.0, after.lambda_ - before.lambda_),
                overhead=max(0.0, after.overhead - before.overhead),
                commitments=after.commitments - before.commitments,
            )
        )
    return tuple(found)
