"""A service's cap among its models: what each one claims, and its plan cut to what it gets.

A claim is the plan itself: its instances, the cheapest for their capacity first, each with
what it saves on the levels of load that it serves (`hedged.py`), until a launch of now serves and as long again.
One that is still to boot saves nothing until it serves, so an instance changes its model only where that pays.

Nothing is cut while all that is planned, and all that is there, fits the cap. Then a plan stays as it is. Where it
does not fit, a plan carries the limit that a schedule of capacity has, too (`Plan.limit_rps`): what is above it is
drained at once, for others wait for it. Models plan one after another, so who gains waits for who loses until
that one plans next; the guardrail at the cloud holds the cap meanwhile.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.figures import figure
from mark.domain.fleet.instances import FleetView
from mark.domain.offerings.offering import Offering
from mark.domain.plan import Plan, PlannedCount, PlanRequest
from mark.domain.plans.service_cap import NOTHING, ServiceCap, Takes, takes_of
from mark.planner.hedged import saved_usd_per_hour
from mark.planner.shared.cap_division import CapClaim, CapStep, divide_cap

EXACT = 1e-9
SHARED = ""
"""The claim of the instances that models share; no model has this name."""
Divide = Callable[[PlanRequest, Plan], Plan]
"""What becomes of a plan under the service's cap."""


def undivided(_request: PlanRequest, plan: Plan) -> Plan:
    """The plan of a service without a cap."""
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class CapInstance:
    """One instance of a plan as its model claims it."""

    offering: str
    step: CapStep


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a model, or what all share, wants of the cap, and what it holds."""

    claim: CapClaim
    there: Takes


class CapDivider:
    """The last claim of each model, and the division that follows from all of them.

    weights: of the models, by name; 1 where none is named. A model that has claimed nothing yet gets nothing.
    """

    def __init__(self, cap: ServiceCap, weights: Mapping[str, float]) -> None:
        self.cap = cap
        self._weights = weights
        self._wanted: dict[str, _Wanted] = {}
        self._got: Mapping[str, int] = {}

    def claim(self, model: str, request: PlanRequest, plan: Plan) -> tuple[CapInstance, ...]:
        """Note what a model wants; its instances in the order of the claim."""
        instances = cap_instances(request, plan)
        claim = CapClaim(
            model=model,
            steps=tuple(item.step for item in instances),
            weight=self.weight(model),
            floor=_floor(request, instances),
        )
        self._note(claim, _there(request))
        return instances

    def divide(self, model: str, request: PlanRequest, plan: Plan) -> Plan:
        """The model's plan within its part; the same plan while everything fits."""
        instances = self.claim(model, request, plan)
        return _cut(plan, instances, self._got[model]) if self._got else plan

    def divide_shared(self, steps: Sequence[CapStep], there: Takes) -> tuple[int, ...]:
        """Which of the instances that models would share there may be, by number. there: what runs of them."""

        def loss(number: int) -> float:
            share = self.cap.share(steps[number].takes)
            return (steps[number].saves - steps[number].costs) / share if share > 0.0 else math.inf

        order = sorted(range(len(steps)), key=lambda number: (-loss(number), number))
        self._note(CapClaim(model=SHARED, steps=tuple(steps[number] for number in order)), there)
        return tuple(sorted(order[: self._got.get(SHARED, len(order))]))

    def weight(self, model: str) -> float:
        """What a model's savings are multiplied by."""
        return self._weights.get(model, 1.0)

    @property
    def shared_count(self) -> float:
        """Shared instances that there may be; infinite while everything fits."""
        return self._got.get(SHARED, math.inf)

    def _note(self, claim: CapClaim, there: Takes) -> None:
        """Replace a claim, and divide anew where not everything fits."""
        self._wanted = {**self._wanted, claim.model: _Wanted(claim=claim, there=there)}
        wanted, total = [*self._wanted.values()], NOTHING
        for one in wanted:
            total = total.plus(one.claim.takes.largest(one.there))
        self._got = {} if self.cap.holds(total) else divide_cap([one.claim for one in wanted], self.cap)


def cap_instances(request: PlanRequest, plan: Plan) -> tuple[CapInstance, ...]:
    """The instances of a plan with what each saves, in the order in which they serve."""
    offerings = {item.name: item for item in request.offerings}
    counts = [item for item in plan.counts if item.offering in offerings]
    stacked = sorted(
        ((item, number >= item.kept) for item in counts for number in range(item.count)),
        key=lambda one: (one[0].usd_per_hour / one[0].usable_rps, one[0].offering, one[1]),
    )
    if not stacked:
        return ()
    window_s = request.forecast.unit_s * min(len(request.forecast), 2 * max(1, request.lead_units))
    tops = np.cumsum([item.usable_rps for item, _ in stacked])
    saved = np.diff(saved_usd_per_hour(request, tops.tolist(), window_s), prepend=0.0)
    found = []
    for (item, is_new), usd in zip(stacked, saved, strict=True):
        offering = offerings[item.offering]
        serves = max(0.0, 1.0 - offering.boot_s / window_s) if is_new else 1.0
        step = CapStep(takes=takes_of(offering), saves=serves * float(usd), costs=offering.usd_per_hour)
        found.append(CapInstance(offering=item.offering, step=step))
    return tuple(found)


def _there(request: PlanRequest) -> Takes:
    """What runs, boots or is asked for of the model's own."""
    offerings, total = {item.name: item for item in request.offerings}, NOTHING
    for name, count in request.running:
        if name in offerings:
            total = total.plus(takes_of(offerings[name], count))
    return total


def _floor(request: PlanRequest, instances: Sequence[CapInstance]) -> int:
    """First instances that the model keeps: those of its schedule's minimum; one where nothing else answers."""
    offerings = {item.name: item for item in request.offerings}
    alone = not math.isfinite(request.backup.lambda_usd) and request.backup.shared_rps is None
    count, rps = int(alone and len(instances) > 0), 0.0
    for number, item in enumerate(instances):
        if rps >= request.bounds.min_rps * (1.0 - EXACT):
            break
        rps += offerings[item.offering].capacity_rps
        count = max(count, number + 1)
    return count


def _cut(plan: Plan, instances: Sequence[CapInstance], count: int) -> Plan:
    """The plan with the first `count` of its instances, as the most that it may carry."""
    left = Counter(item.offering for item in instances[:count])
    counts = tuple(_counted(item, left[item.offering]) for item in plan.counts if left[item.offering])
    capacity_rps = sum(item.count * item.usable_rps for item in counts)
    if count == len(instances):
        return replace(plan, limit_rps=_lower(plan.limit_rps, plan.capacity_rps))
    return replace(
        plan,
        counts=counts,
        capacity_rps=capacity_rps,
        shortfall_rps=max(plan.shortfall_rps, plan.required_rps - capacity_rps),
        standbys_awake=0,
        limit_rps=_lower(plan.limit_rps, capacity_rps),
        reason=f"{plan.reason}; {len(instances) - count} of them are lacking, for the service's cap is worth more "
        f"elsewhere: {figure(capacity_rps)} requests/s are left",
    )


def _counted(item: PlannedCount, count: int) -> PlannedCount:
    parts = item.parts if count == item.count else None
    return replace(item, count=count, kept=min(item.kept, count), parts=parts)


def _lower(limit_rps: float | None, capacity_rps: float) -> float:
    return capacity_rps if limit_rps is None else min(limit_rps, capacity_rps)


def used_by(fleet: FleetView, offerings: Mapping[str, Offering]) -> Takes:
    """What a fleet takes of a cap: all that runs, boots or drains, at prices of now; no standby that sleeps.

    An offering that is not known any more is left out: the guardrail counts it.
    """
    prices, total = dict(fleet.spot_usd_per_hour), NOTHING
    for name, count in fleet.awake.items():
        item = offerings.get(name)
        if item is None:
            continue
        total = total.plus(takes_of(item.at_price(prices.get(name, item.usd_per_hour))), count)
    return total
