"""Budgets of a day and a month, and the spending limit once one is reached. Pure.

Days and months are those of UTC on the service's clock. The limit is part of what a tick sees, so a
journal says when and folding it gives the same orders. It ends by itself when the next day, or month, begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from mark.accounting.daily_costs import DAY_S, model_bill, shared_bill
from mark.accounting.model_ledger import ModelLedger
from mark.domain.billing.spending import LimitCause, SpendingLimit

RECENT_DAYS = 7
"""A projection goes on as these went."""
LEAST_KNOWN_S = 3600.0
"""Less than this tells nothing of a month."""


class Reached(StrEnum):
    """The action that is taken when a budget is reached."""

    WARN = "warn"
    FLOOR = "floor"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits in USD by day and by month; None: as much as it takes."""

    daily_usd: float | None = None
    monthly_usd: float | None = None
    when_reached: Reached = Reached.WARN


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The spending limit and its cause."""

    spending_limit: SpendingLimit = SpendingLimit.NONE
    cause: LimitCause = LimitCause.NONE
    #: For people: a line for each budget that is reached, and one for a pause.
    reasons: tuple[str, ...] = ()


_LIMITS = {
    Reached.WARN: SpendingLimit.NONE,
    Reached.FLOOR: SpendingLimit.FLOOR,
    Reached.PAUSE: SpendingLimit.PAUSE,
}


def judge(budget: Budget, *, day_usd: float, month_usd: float) -> Verdict:
    """Compare what was spent today and this month with the budget."""
    pairs = (("day", budget.daily_usd, day_usd), ("month", budget.monthly_usd, month_usd))
    reasons = tuple(
        f"{spent:.2f} USD spent this {period}, the budget is {limit:g}"
        for period, limit, spent in pairs
        if limit is not None and spent >= limit
    )
    limit = _LIMITS[budget.when_reached] if reasons else SpendingLimit.NONE
    cause = LimitCause.NONE if limit is SpendingLimit.NONE else LimitCause.BUDGET
    return Verdict(spending_limit=limit, cause=cause, reasons=reasons)


def day_start(now: float) -> float:
    """Midnight UTC at or before `now`, epoch seconds."""
    return datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()


def month_start(now: float) -> float:
    """Midnight UTC of the first of the month of `now`, epoch seconds."""
    return datetime.fromtimestamp(day_start(now), UTC).replace(day=1).timestamp()


def spent_usd(ledgers: Sequence[ModelLedger], since: float, until: float) -> float:
    """USD that a service spent in `[since, until)`, overhead included, as its bill has it."""
    since = max(since, min((ledger.began_at for ledger in ledgers), default=until))
    return max(0.0, _usd_by(ledgers, until) - _usd_by(ledgers, since))


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthSpend:
    """Spending of the month so far, and where it leads."""

    #: Since the first of the month, USD.
    usd: float = 0.0
    #: By the month's end, at the mean of the last seven days; None while less than an hour is known of them.
    projected_usd: float | None = None


def month_spend(ledgers: Sequence[ModelLedger], now: float) -> MonthSpend:
    """The spending of the month of `now`.

    Seven days hold each weekday once: the mean of the month so far would take a month that begins with a weekend
    for a cheap one. The first of them begins at midnight, so that a budget that asks again counts from it again.
    """
    usd = spent_usd(ledgers, month_start(now), now)
    began_at = min((ledger.began_at for ledger in ledgers), default=now)
    since = max(began_at, day_start(now) - (RECENT_DAYS - 1) * DAY_S)
    if now - since < LEAST_KNOWN_S:
        return MonthSpend(usd=usd)
    rate = spent_usd(ledgers, since, now) / (now - since)
    return MonthSpend(usd=usd, projected_usd=usd + rate * (month_end(now) - now))


def month_end(now: float) -> float:
    """Midnight UTC of the first of the month after that of `now`, epoch seconds."""
    return month_start(month_start(now) + timedelta(days=32).total_seconds())


def _usd_by(ledgers: Sequence[ModelLedger], at: float) -> float:
    own = sum(line.usd for ledger in ledgers for line in model_bill(ledger, at))
    return own + sum(line.usd for line in shared_bill(ledgers, at))
