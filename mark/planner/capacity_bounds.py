"""A plan held within bounds of capacity, whichever planner made it: as autoscalers clamp a desired size.

What lacks is added, and what is too much is taken off, in whole instances: below a minimum the fleet carries at
least that much, above a maximum at most that much. What is added is what costs least for the requests/s that lack,
a launch counted as if it served for an hour (so that what is there goes before what would be launched, unless it
is dearer than that); what is taken off is first what is not launched yet, and the dearest first. A maximum that
whole instances cannot meet together with a minimum goes first.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from mark.domain.offerings.offering import Offering
from mark.domain.plan import Plan, PlannedCount, PlanRequest

EXACT = 1e-9
"""What rounding may take off a whole number of instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """One offering, as the plan or the catalogue counts it."""

    name: str
    usable_rps: float
    usd_per_hour: float
    launch_usd: float
    #: Instances that exist or are on their way.
    there: int
    #: Whether more may be launched.
    may_launch: bool


def within_bounds(plan: Plan, request: PlanRequest) -> Plan:
    """The plan with the request's bounds kept, as far as offerings allow; the same where they are."""
    bounds = request.bounds
    kinds = _kinds(plan, request)
    counts = Counter({item.offering: item.count for item in plan.counts})
    held = []
    if plan.capacity_rps < bounds.min_rps * (1.0 - EXACT):
        _add(counts, kinds, lacking_rps=bounds.min_rps - plan.capacity_rps, whole=True)
        held.append(f"at least {bounds.min_rps:g} requests/s by schedule")
    if bounds.max_rps is not None and _carried(counts, kinds) > bounds.max_rps * (1.0 + EXACT):
        _take_off(counts, kinds, bounds.max_rps)
        _add(counts, kinds, lacking_rps=bounds.max_rps - _carried(counts, kinds), whole=False)
        held.append(f"at most {bounds.max_rps:g} requests/s by schedule")
    limited = plan if bounds.max_rps is None else replace(plan, limit_rps=bounds.max_rps)
    return _with_counts(limited, counts, kinds, "; ".join((plan.reason, *held))) if held else limited


def _kinds(plan: Plan, request: PlanRequest) -> dict[str, _Kind]:
    """All that the fleet may consist of, by name; a plan knows best what an instance carries and costs."""
    there = dict(request.running)
    planned = {item.offering: item for item in plan.counts}
    refused = frozenset(request.refused)
    return {
        item.name: _Kind(
            name=item.name,
            usable_rps=planned[item.name].usable_rps if item.name in planned else item.capacity_rps,
            usd_per_hour=planned[item.name].usd_per_hour if item.name in planned else item.usd_per_hour,
            launch_usd=item.launch_usd,
            there=max(0, there.get(item.name, 0)),
            may_launch=item.name not in refused,
        )
        for item in _by_name(request)
    }


def _by_name(request: PlanRequest) -> list[Offering]:
    return sorted(request.offerings, key=lambda item: item.name)


def _carried(counts: Counter[str], kinds: dict[str, _Kind]) -> float:
    return sum(count * kinds[name].usable_rps for name, count in counts.items())


def _add(counts: Counter[str], kinds: dict[str, _Kind], *, lacking_rps: float, whole: bool) -> None:
    """Add what carries so much: at least that with `whole`, else at most that."""
    while lacking_rps > EXACT:
        offers = [offer for kind in kinds.values() if (offer := _offer(counts, kind, lacking_rps, whole=whole))]
        if not offers:
            return
        _, name, count = min(offers)
        counts[name] += count
        lacking_rps -= count * kinds[name].usable_rps


def _offer(counts: Counter[str], kind: _Kind, lacking_rps: float, *, whole: bool) -> tuple[float, str, int] | None:
    """Price of a request/s that lacks, USD, when this kind serves it, its name, and how many; None: it cannot."""
    needed = lacking_rps / kind.usable_rps
    wanted = math.ceil(needed - EXACT) if whole else math.floor(needed + EXACT)
    spare = max(0, kind.there - counts[kind.name])
    count = wanted if kind.may_launch else min(wanted, spare)
    if count <= 0:
        return None
    usd = count * kind.usd_per_hour + max(0, count - spare) * kind.launch_usd
    return usd / min(lacking_rps, count * kind.usable_rps), kind.name, count


def _take_off(counts: Counter[str], kinds: dict[str, _Kind], max_rps: float) -> None:
    """Take instances off until the fleet carries no more: first those to be launched, the dearest first."""
    dearest = sorted(counts, key=lambda name: (-kinds[name].usd_per_hour / kinds[name].usable_rps, name))
    for only_new in (True, False):
        for name in dearest:
            excess_rps = _carried(counts, kinds) - max_rps
            if excess_rps <= EXACT:
                return
            may_go = max(0, counts[name] - kinds[name].there) if only_new else counts[name]
            counts[name] -= min(may_go, math.ceil(excess_rps / kinds[name].usable_rps - EXACT))


def _with_counts(plan: Plan, counts: Counter[str], kinds: dict[str, _Kind], reason: str) -> Plan:
    before = {item.offering: item for item in plan.counts}
    fleet = tuple(
        _counted(before.get(name), kinds[name], count) for name, count in sorted(counts.items()) if count
    )
    capacity_rps = sum(item.count * item.usable_rps for item in fleet)
    more_rps = capacity_rps - plan.capacity_rps
    least_rps = plan.required_rps - capacity_rps if more_rps < 0 else 0.0
    return replace(
        plan,
        counts=fleet,
        capacity_rps=capacity_rps,
        shortfall_rps=max(0.0, plan.shortfall_rps - max(0.0, more_rps), least_rps),
        excuses=tuple(excuse for excuse in plan.excuses if not counts[excuse.offering]),
        reason=reason,
        standbys_awake=plan.standbys_awake if more_rps >= 0 else 0,
    )


def _counted(before: PlannedCount | None, kind: _Kind, count: int) -> PlannedCount:
    if before is not None and before.count == count:
        return before
    return PlannedCount(
        offering=kind.name,
        count=count,
        kept=min(count, kind.there),
        usable_rps=kind.usable_rps,
        usd_per_hour=kind.usd_per_hour,
        launch_usd=kind.launch_usd,
    )
