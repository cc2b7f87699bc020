"""Commitments of the account on the bill of a live service. Pure.

They are the service's, not a model's: what all its models use is covered together, as one hour's usage of the
account. Rows of the ledger that hold a day or more count as spread evenly over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mark.accounting.hourly_totals import HOUR_S, totals_at
from mark.accounting.ledger import offered_usd_per_hour, usage_before
from mark.accounting.model_ledger import ModelLedger
from mark.catalog.billing import gateway_count
from mark.catalog.commitment_bill import HourlyUsage, bill_commitments, hours_between
from mark.domain.billing.costs import BillLine
from mark.domain.commitments.eligible import Compute


def commitment_lines(ledgers: Sequence[ModelLedger], at: float) -> tuple[BillLine, ...]:
    """Cost of commitments by `at` since the service began, and the part they cover; no line where it has none."""
    footprint = ledgers[0].footprint if ledgers else None
    if footprint is None or not footprint.commitments:
        return ()
    used, began_at = HourlyUsage(), min(ledger.began_at for ledger in ledgers)
    for ledger in ledgers:
        _add_model(used, ledger, at)
    gateways = gateway_count(footprint, sum(ledger.marks[-1].peak_rps for ledger in ledgers))
    used.add_footprint(footprint, began_at, at, gateways=gateways)
    return bill_commitments(footprint.commitments, used.hours(), began_at, at, goes_on=True)


def month_commitments(ledgers: Sequence[ModelLedger], since: float, until: float) -> dict[str, float]:
    """USD of commitments in `[since, until)` by line: used, unused and covered; empty where there are none."""
    before = {line.item: line.quantity for line in commitment_lines(ledgers, since)}
    return {line.item: line.quantity - before.get(line.item, 0.0) for line in commitment_lines(ledgers, until)}


def _add_model(used: HourlyUsage, ledger: ModelLedger, at: float) -> None:
    """Add a model's instances on demand, and the duration of its calls of Lambda."""
    usages = usage_before(ledger.record.transitions, at).usages  # `ledger.used` may have sums, which have no hours
    rollups = [row for row in ledger.record.rollups if row.since < at]
    prices = offered_usd_per_hour(ledger.served, ledger.usage(at).usages)
    used.add_instances(usages, prices)
    for row in rollups:
        for item in row.billed:
            price = prices.get(item.offering) if item.usd_per_hour is None else item.usd_per_hour
            if price is not None:
                count = item.billed_s / (row.until - row.since)
                used.add_running(item.offering, price, row.since, min(at, row.until), count=count)
    overflow = ledger.served.overflow
    if overflow is None:
        return
    edges = [ledger.began_at, *(min(at, (hour + 1) * HOUR_S) for hour, _ in hours_between(ledger.began_at, at))]
    totals = [totals_at(ledger.marks, edge).gib_s for edge in edges]
    for (since, until), (before, after) in zip(pairwise(edges), pairwise(totals), strict=True):
        if after > before:
            used.add(Compute.LAMBDA, (after - before) * overflow.usd_per_gib_s, since, until)
