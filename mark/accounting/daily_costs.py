"""The ledger by day: what the bill had come to at a day's end, less what it had come to at its start. Pure.

Every line of a bill only grows, so the days' parts are never negative and add up to the bill, minimum charges and
rounding included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from mark.accounting.commitments import commitment_lines
from mark.accounting.hourly_totals import totals_at
from mark.accounting.ledger import crossed_requests, live_bill
from mark.accounting.model_ledger import ModelLedger
from mark.catalog.billing import bill_shared
from mark.domain.billing.costs import BillLine
from mark.domain.billing.footprint import Footprint
from mark.domain.load.traffic import ModelTraffic

DAY_S = 86400.0
ROUNDING = 1e-12
"""Share of a line's quantity: less is what a difference of large sums leaves by rounding."""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCost:
    """One line of the bill of one day of UTC."""

    day: date
    line: BillLine


def days_between(since: float, until: float) -> tuple[tuple[date, float, float], ...]:
    """Days of UTC in `[since, until)`, each with where its part of the period starts and ends."""
    found = []
    start = since
    while start < until:
        end = min(until, (start // DAY_S + 1) * DAY_S)
        found.append((datetime.fromtimestamp(start, UTC).date(), start, end))
        start = end
    return tuple(found)


def model_bill(ledger: ModelLedger, at: float) -> tuple[BillLine, ...]:
    """The bill of a model up to `at`, as `live_bill` has it, without the overhead that models share.

    What begins right then is not charged its first minute yet.
    """
    served, totals = ledger.served, totals_at(ledger.marks, at)
    traffic = ModelTraffic(model=served.name, billed=totals.billed, gib_s=totals.gib_s)
    usage = ledger.usage(at)
    life_s = max(0.0, at - ledger.began_at)
    lines = live_bill(
        usage,
        traffic,
        served,
        ledger.footprint,
        requests=round(totals.requests),
        peak_rps=0.0,
        duration_s=life_s,
        crossed=crossed_requests(totals.requests, totals, ledger.footprint),
    )
    return own_lines(lines, ledger.footprint, life_s)


def own_lines(lines: Iterable[BillLine], footprint: Footprint | None, life_s: float) -> tuple[BillLine, ...]:
    """The lines of a model's bill without the overhead that the service's models share."""
    shared = {line.item for line in standing_lines(footprint, 0.0, life_s)}
    return tuple(line for line in lines if line.component != "overhead" or line.item not in shared)


def shared_bill(ledgers: Sequence[ModelLedger], at: float) -> tuple[BillLine, ...]:
    """Costs that models share up to `at`: gateways for their peaks together, their surroundings, and commitments.

    Gateways are billed for the peak of the whole life, as in `live_bill`.
    """
    if not ledgers:
        return ()
    peak_rps = sum(ledger.marks[-1].peak_rps for ledger in ledgers)
    life_s = max(0.0, at - min(ledger.began_at for ledger in ledgers))
    return (*standing_lines(ledgers[0].footprint, peak_rps, life_s), *commitment_lines(ledgers, at))


def model_days(ledger: ModelLedger, since: float, until: float) -> tuple[DayCost, ...]:
    """A model's own lines, day by day."""
    bills = [_by_key(model_bill(ledger, at)) for at in _edges(since, until)]
    return _between(bills, since, until)


def shared_days(ledgers: Sequence[ModelLedger], since: float, until: float) -> tuple[DayCost, ...]:
    """The shared lines, day by day."""
    bills = [_by_key(shared_bill(ledgers, at)) for at in _edges(since, until)]
    return _between(bills, since, until)


def standing_lines(footprint: Footprint | None, peak_rps: float, life_s: float) -> tuple[BillLine, ...]:
    """The overhead that models share: gateways for their peaks together, and all that stands around them."""
    return () if footprint is None else bill_shared(footprint, peak_rps, life_s)


def _edges(since: float, until: float) -> list[float]:
    return [since, *(end for _, _, end in days_between(since, until))]


def _by_key(lines: Iterable[BillLine]) -> dict[Key, BillLine]:
    return {(line.component, line.item): line for line in lines}


def _between(bills: Sequence[dict[Key, BillLine]], since: float, until: float) -> tuple[DayCost, ...]:
    """The lines that each day added; lines without a quantity are left out, and what only rounding adds."""
    found = []
    for (day, _, _), before, after in zip(days_between(since, until), bills, bills[1:], strict=False):
        for key, line in after.items():
            old = before.get(key)
            added = line if old is None else _less(line, old)
            if added.quantity > ROUNDING * line.quantity:
                found.append(DayCost(day=day, line=added))
    return tuple(found)


def _less(line: BillLine, old: BillLine) -> BillLine:
    return replace(line, quantity=line.quantity - old.quantity, usd=line.usd - old.usd)
