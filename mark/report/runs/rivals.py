"""The rival that ours is measured by: the cheapest that keeps the objective, whichever it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from mark.catalog.billing import HOURS_PER_MONTH, SECONDS_PER_HOUR
from mark.simulator.results import RunResult

MONTH_S = HOURS_PER_MONTH * SECONDS_PER_HOUR
MILLION = 1e6
Rival = TypeVar("Rival")


def keeps_objective(result: RunResult) -> bool:
    """At least the target share of the requests was answered in time."""
    return result.attained >= result.slo.target


def best_of(
    rivals: Iterable[Rival],
    *,
    lacking: Callable[[Rival], float],
    usd: Callable[[Rival], float],
    name: Callable[[Rival], str],
) -> Rival | None:
    """The cheapest that keeps its objective, else the one that lacks least of it; ties by cost, then by name.

    lacking: the target less the share that was answered in time; nothing is lacking from 0 down. usd: what
    cheapness is measured by, the total or what serving costs.
    """
    return min(rivals, key=lambda one: (max(0.0, lacking(one)), usd(one), name(one)), default=None)


def usd_per_month(result: RunResult) -> float:
    """Total cost of a month (730 h) that is like the run."""
    return a_month(result.cost.total, result.duration_s)


def a_month(usd: float, duration_s: float) -> float:
    """A cost over a time as that of a month (730 h)."""
    return usd / duration_s * MONTH_S if duration_s > 0 else 0.0


def usd_per_million(result: RunResult) -> float | None:
    """Total cost of a million of the trace's requests; None where nobody asked."""
    asked = result.requests * result.speed
    return result.cost.total / asked * MILLION if asked > 0 else None
