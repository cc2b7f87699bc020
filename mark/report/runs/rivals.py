"""The rival that ours is measured by: the cheapest that keeps the objective, whichever it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mark.catalog.billing import HOURS_PER_MONTH, SECONDS_PER_HOUR
from mark.policies.overrides import OWN_POLICIES
from mark.simulator.results import RunResult

MONTH_S = HOURS_PER_MONTH * SECONDS_PER_HOUR
MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class BestRival:
    """A rival's run; where it does not keep the objective, no rival does."""

    result: RunResult
    keeps_objective: bool


def keeps_objective(result: RunResult) -> bool:
    """At least the target share of the requests was answered in time."""
    return result.attained >= result.slo.target


def best_rival(results: Sequence[RunResult], lead: RunResult) -> BestRival | None:
    """Of the rivals on the same load the cheapest that keeps the objective, else the one that attains most.

    Policies of ours are no rivals, nor is one that knew the load to come. Ties by name; None without any rival.
    """
    same = (lead.model, lead.trace)
    rivals = [
        result
        for result in results
        if result is not lead
        and result.policy not in OWN_POLICIES
        and not result.uses_truth
        and (result.model, result.trace) == same
    ]
    keeping = [result for result in rivals if keeps_objective(result)]
    if keeping:
        return BestRival(result=min(keeping, key=_by_cost), keeps_objective=True)
    if not rivals:
        return None
    nearest = min(rivals, key=lambda result: (-result.attained, *_by_cost(result)))
    return BestRival(result=nearest, keeps_objective=False)


def usd_per_month(result: RunResult) -> float:
    """Total cost of a month (730 h) that is like the run."""
    return result.cost.total / result.duration_s * MONTH_S if result.duration_s > 0 else 0.0


def usd_per_million(result: RunResult) -> float | None:
    """Total cost of a million of the trace's requests; None where nobody asked."""
    asked = result.requests * result.speed
    return result.cost.total / asked * MILLION if asked > 0 else None


def _by_cost(result: RunResult) -> tuple[float, str]:
    return result.cost.total, result.policy
