"""Capacity that is paid for already: sunk cost, which planners take before they rent.

What Reserved Instances and Savings Plans cover costs a fleet nothing more, whether it runs or not. So each planner
that weighs prices is shown, beside an offering, a *twin* of it: as many instances as are covered, at the part of
the price that is still paid for them (0 where all is covered), as if they were there. What is beyond costs what it
always does. The plan's counts are those of both together.

Which types a plan covers is for the fleet to choose: commitments go to the type that serves most for them, as far
as whole instances go, and to others after it. Reservations come first, as in a bill.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from mark.domain.commitments.applied import Applied, apply, beside_capacity
from mark.domain.commitments.eligible import Compute, Usage
from mark.domain.commitments.owned import Commitments, ReservedInstances
from mark.domain.offerings.offering import Market, Offering
from mark.domain.plan import CostParts, OwnedCapacity, Plan, PlannedCount, PlanRequest

MOST_HOURS = 10_000.0
"""Instances of one type that are looked at, at most."""
ALMOST_NOTHING = 1e-6
"""Share of its price that a covered instance costs: of what is paid for already the cheaper is taken first."""
LEAST_COVERED = 0.01
"""Of an instance; less is no reason for another type."""
EXACT = 1e-9


def owned_capacity(
    owned: Commitments,
    offerings: Iterable[Offering],
    *,
    running: Mapping[str, int],
    refused: Collection[str],
) -> tuple[OwnedCapacity, ...]:
    """Capacity that commitments cover of these offerings; of a refused one no more than runs."""
    if not owned:
        return ()
    able = [item for item in offerings if item.market is Market.ON_DEMAND]
    able = sorted({item.name: item for item in able if item.zone == "any"}.values(), key=lambda item: item.name)
    most = {item.name: running.get(item.name, 0) if item.name in refused else MOST_HOURS for item in able}
    left = dict(running)
    found: list[OwnedCapacity] = []
    for item, count, price_share in _tranches(owned, able, most):
        here = min(count, max(0, left.get(item.name, 0)))
        left[item.name] = left.get(item.name, 0) - here
        twin = item.at_price(item.usd_per_hour * max(ALMOST_NOTHING, price_share))
        found.append(
            OwnedCapacity(
                offering=replace(twin, zone=f"owned-{len(found) + 1}"), of=item, count=count, running=here
            )
        )
    return tuple(found)


def _tranches(
    owned: Commitments, able: Sequence[Offering], most: dict[str, float]
) -> Iterator[tuple[Offering, int, float]]:
    """Instances that are covered, each time with the share of their price that is still paid.

    A capacity reservation is there also where its type is refused.
    """
    for kept in owned.capacity_reservations:
        for offering in able:
            count = int(kept.count + EXACT)
            if offering.instance_type.name == kept.instance_type and count:
                most[offering.name] = max(0.0, most[offering.name] - count)
                yield offering, count, 0.0
    owned = beside_capacity(owned)
    zonal = tuple(item for item in owned.reservations if item.zone)
    for item in zonal if owned.zones > 1 else ():  # the others of the zones are paid
        yield from _in_other_zones(item, owned.zones, able, most)
    regional = tuple(item for item in owned.reservations if owned.zones == 1 or not item.zone)
    for part in (
        Commitments(reservations=regional),
        Commitments(plans=owned.plans),
    ):
        yield from _spend(part, able, most)


def _in_other_zones(
    item: ReservedInstances, zones: int, able: Sequence[Offering], most: dict[str, float]
) -> Iterator[tuple[Offering, int, float]]:
    """A fleet that is spread over zones uses what is reserved in one of them with every so manieth instance."""
    for offering in able:
        if offering.instance_type.name == item.instance_type:
            count = int(min(item.count * zones, most[offering.name]) + EXACT)
            most[offering.name] -= count
            if count:
                yield offering, count, 1.0 - 1.0 / zones


def _spend(
    owned: Commitments, able: Sequence[Offering], most: dict[str, float]
) -> Iterator[tuple[Offering, int, float]]:
    """Whole instances of the type that serves most for the commitment, then of others; at last parts of one."""

    def worth(item: Offering) -> float:
        """Requests/s for a USD that is committed."""
        found = _covering(owned, item, most[item.name])
        return item.capacity_rps * _hours(found, most[item.name]) / found.used_usd if found.used_usd > 0 else 0.0

    ordered = sorted(able, key=lambda item: (-worth(item), item.name)) if owned else ()
    for item in ordered:
        count = int(_hours(_covering(owned, item, most[item.name]), most[item.name]) + EXACT)
        if count:
            owned = _covering(owned, item, float(count)).left
            most[item.name] -= count
            yield item, count, 0.0
    for item in ordered:
        if most[item.name] >= 1.0 and owned:
            found = _covering(owned, item, 1.0)
            owned = found.left
            if 1.0 - found.left_shares[0] >= LEAST_COVERED:
                yield item, 1, found.left_shares[0]


def _covering(owned: Commitments, item: Offering, hours: float) -> Applied:
    usage = Usage(
        compute=Compute.EC2,
        on_demand_usd=hours * item.usd_per_hour,
        hours=hours,
        instance_type=item.instance_type.name,
    )
    return apply(owned, (usage,))


def _hours(found: Applied, hours: float) -> float:
    """Instance-hours that were covered of those."""
    return hours * (1.0 - found.left_shares[0])


def planned_with_owned(planner: Callable[[PlanRequest], Plan], request: PlanRequest) -> Plan:
    """The plan of a planner that weighs prices, which takes what is owned before it rents."""
    return without_twins(planner(with_twins(request)), request) if request.owned else planner(request)


def with_twins(request: PlanRequest) -> PlanRequest:
    """The request with what is owned as offerings of its own: there, and no more of them to be had."""
    running = dict(request.running)
    for item in request.owned:
        if item.running:
            running[item.of.name] -= item.running
        running[item.offering.name] = item.count
    return replace(
        request,
        offerings=(*request.offerings, *(item.offering for item in request.owned)),
        running=tuple(sorted((name, count) for name, count in running.items() if count)),
        refused=tuple(sorted((*request.refused, *(item.offering.name for item in request.owned)))),
    )


def with_bases(request: PlanRequest) -> PlanRequest:
    """The request with the offerings that are owned beside its own, for what looks at a plan without twins."""
    known = {item.name for item in request.offerings}
    bases = {item.of.name: item.of for item in request.owned if item.of.name not in known}
    return replace(
        request,
        offerings=(*request.offerings, *bases.values()),
        refused=tuple(sorted({*request.refused, *bases})),
    )


def without_twins(plan: Plan, request: PlanRequest) -> Plan:
    """The plan with each twin counted as what it is one of. request: the one without twins."""
    base_of = {item.offering.name: item.of.name for item in request.owned}
    by_name: dict[str, list[PlannedCount]] = {}
    for item in plan.counts:
        by_name.setdefault(base_of.get(item.offering, item.offering), []).append(item)
    running = dict(request.running)
    return replace(
        plan,
        counts=tuple(
            _joined(name, items, max(0, running.get(name, 0))) for name, items in sorted(by_name.items())
        ),
        excuses=tuple(one for one in plan.excuses if one.offering not in base_of and one.offering not in by_name),
        reason=_with_owned(plan, base_of),
    )


def _with_owned(plan: Plan, base_of: Mapping[str, str]) -> str:
    """The plan's sentence, and how many of the fleet are covered."""
    covered = sum(item.count for item in plan.counts if item.offering in base_of)
    return f"{plan.reason}; {covered} of them covered by commitments" if covered else plan.reason


def _joined(name: str, items: Sequence[PlannedCount], running: int) -> PlannedCount:
    """Instances of one offering at what each costs on average."""
    if [item.offering for item in items] == [name]:
        return items[0]
    count = sum(item.count for item in items)
    parts = [item.parts for item in items if item.parts is not None]
    return PlannedCount(
        offering=name,
        count=count,
        kept=min(count, running),
        usable_rps=sum(item.count * item.usable_rps for item in items) / count,
        usd_per_hour=sum(item.count * item.usd_per_hour for item in items) / count,
        launch_usd=sum(item.count * item.launch_usd for item in items) / count,
        parts=_sum_of(parts) if len(parts) == len(items) else None,
    )


def _sum_of(parts: Sequence[CostParts]) -> CostParts:
    return CostParts(
        rent_usd_per_hour=sum(part.rent_usd_per_hour for part in parts),
        risk_usd_per_hour=sum(part.risk_usd_per_hour for part in parts),
        launch_usd=sum(part.launch_usd for part in parts),
        saved_usd_per_hour=sum(part.saved_usd_per_hour for part in parts),
    )
