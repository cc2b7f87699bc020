"""Figures and times of a mail as people read them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from mark.domain.billing.costs import CostUsd
from mark.report.cost.cost_report import Baseline, CostReport, ModelReport

SMALL_USD = 1.0
"""A period that cost less than this is told with four digits: cents would hide it."""
DAY_S = 86400.0
SHORT_S = 120.0
"""A stretch that is shorter is told in seconds."""
INSTANT = "%-d %b %Y %H:%M"

Money = Callable[[float], str]


def money_of(cost: CostUsd) -> Money:
    """Format of money: to the cent, or with four digits where all of it is less than a dollar."""
    digits = 2 if cost.total >= SMALL_USD or cost.total == 0 else 4
    return lambda usd: f"{usd:,.{digits}f}"


def signed(usd: float, money: Money) -> str:
    """A difference, with its sign."""
    return f"{'-' if usd < 0 else '+'}{money(abs(usd))}"


def format_period(report: CostReport) -> str:
    """`14 Nov 2026 06:00 to 21 Nov 2026 06:00 UTC`; with seconds where it is of seconds."""
    form = f"{INSTANT}:%S" if report.until - report.since < SHORT_S else INSTANT
    return f"{format_instant(report.since, form)} to {format_instant(report.until, form)} UTC"


def format_instant(at: float, form: str = INSTANT) -> str:
    """`14 Nov 2026 06:00`."""
    return datetime.fromtimestamp(at, UTC).strftime(form)


def format_stretch(seconds: float) -> str:
    """`20 s`, `90 min`, `5.5 h`, `7 days`."""
    if seconds < SHORT_S:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1g} s"
    for size, unit in ((DAY_S, "days"), (3600.0, "h")):
        if seconds >= 2 * size or (unit == "h" and seconds >= size):
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{seconds / 60:.0f} min"


def format_replayed(baseline: Baseline) -> str:
    """`Replayed on the arrivals of 24 h, 20 Nov 2026 00:00 to 21 Nov 2026 00:00 UTC.` where it was one day."""
    span = f"{format_instant(baseline.since)} to {format_instant(baseline.until)} UTC"
    return f"Replayed on the arrivals of {format_stretch(baseline.replayed_s)}, {span}."


def format_burn(burn: float | None) -> str:
    """`34 %`; how much of the allowed misses was used."""
    if burn is None:
        return "none"
    return "all" if burn == float("inf") else f"{burn:,.0%}".replace("%", " %")


def format_own_policy(report: CostReport, model: ModelReport) -> str:
    """`hedged, measured`: the service itself beside what was replayed."""
    how = "planned" if report.observed else "measured"
    return f"{model.policy}, {how}" if model.policy else how
