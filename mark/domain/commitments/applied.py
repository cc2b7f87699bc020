"""Commitments applied to the usage of one hour, in the order in which AWS applies them. Pure.

1. Reservations of a zone, to instances of their type there.
2. Reservations of a region: to any size of their family, smallest first, by normalised units (EC2 user guide, "How
   Reserved Instances are applied"); where a family has no size flexibility, to their type alone.
3. EC2 Instance Savings Plans, then Compute Savings Plans. Plans of a kind are applied together, to the usage that
   they make cheapest first; of equal discounts the lower rate comes first (Savings Plans user guide, "How Savings
   Plans apply to your AWS usage").

Instances in a capacity reservation, and what it keeps free, are usage on demand that the others cover, too (EC2
user guide, "Capacity Reservation pricing and billing"). What they leave of it is paid whether it is used or not: a
commitment without a discount. A launch goes to its zone first; one whose zone is not known counts as there.

What none covers is paid on demand, and what no usage takes of a commitment is paid all the same. Where the zone of
usage is not known, it counts as spread evenly over `Commitments.zones`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from mark.domain.commitments.eligible import Compute, Usage, family_of, units_of
from mark.domain.commitments.owned import (
    CapacityReservation,
    Commitments,
    PlanKind,
    ReservedInstances,
    SavingsPlan,
)

NOTHING = 1e-12
"""A share or an amount up to this is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """An hour of commitments. USD; `paid_usd` = `used_usd` + `unused_usd`."""

    #: Price of the commitments, used or not.
    paid_usd: float
    #: Of it, what usage took.
    used_usd: float
    #: Price on demand of what they cover.
    covered_usd: float
    #: Share of each usage that is left on demand, in the order of the usages.
    left_shares: tuple[float, ...]
    #: What no usage took.
    left: Commitments
    #: Of `unused_usd`, what capacity reservations cost that nothing ran in.
    free_capacity_usd: float = 0.0

    @property
    def unused_usd(self) -> float:
        """Paid for nothing."""
        return max(0.0, self.paid_usd - self.used_usd)


def apply(owned: Commitments, usages: Sequence[Usage]) -> Applied:
    """Cover the usage of one hour."""
    return _applied(owned, tuple(usages))


def left_for_each(owned: Commitments, hours: Mapping[str, Sequence[Usage]]) -> dict[str, Commitments]:
    """What each of these may count of the commitments: what those before it leave, in the order of `hours`.

    Two that looked at each other would both take the same hour, and both let go of it again.
    """
    found, left = {}, owned
    for name, usages in hours.items():
        found[name] = left
        left = apply(left, usages).left if left else left
    return found


@lru_cache(maxsize=20_000)
def _applied(owned: Commitments, usages: tuple[Usage, ...]) -> Applied:
    """`apply`: a bill asks for the same hours again and again."""
    if owned.capacity_reservations:
        return _with_capacity(owned, usages)
    hour = _Hour(owned, usages)
    for item in owned.reservations:
        if item.zone:
            hour.reserve_in_zone(item)
    for item in owned.reservations:
        if not item.zone:
            hour.reserve_in_region(item)
    for kind in (PlanKind.EC2_INSTANCE, PlanKind.COMPUTE):
        hour.spend([plan for plan in owned.plans if plan.kind is kind])
    return hour.result()


def beside_capacity(owned: Commitments) -> Commitments:
    """The other commitments, as far as capacity reservations leave them, which cover them used or not."""
    if not owned.capacity_reservations:
        return owned
    others = replace(owned, capacity_reservations=())
    return apply(others, [_usage(item, item.count) for item in owned.capacity_reservations]).left


def _usage(item: CapacityReservation, count: float) -> Usage:
    return Usage(
        compute=Compute.EC2,
        on_demand_usd=count * item.usd_per_hour,
        hours=count,
        instance_type=item.instance_type,
        zone=item.zone,
    )


def _with_capacity(owned: Commitments, usages: tuple[Usage, ...]) -> Applied:
    outside, free = [1.0] * len(usages), {item.name: item.count for item in owned.capacity_reservations}
    for item in owned.capacity_reservations:
        for i, usage in enumerate(usages):
            fits = usage.instance_type == item.instance_type and usage.zone in ("", item.zone)
            if fits and usage.compute is Compute.EC2 and usage.hours > 0:
                taken = min(outside[i], free[item.name] / usage.hours)
                outside[i] -= taken
                free[item.name] -= taken * usage.hours
    empty = tuple(
        _usage(item, free[item.name]) for item in owned.capacity_reservations if free[item.name] > NOTHING
    )
    others = replace(owned, capacity_reservations=())
    found = _applied(others, (*usages, *empty))
    lefts = found.left_shares[: len(usages)]
    inside = sum(
        usage.on_demand_usd * left * (1.0 - out) for usage, left, out in zip(usages, lefts, outside, strict=True)
    )
    unused = sum(
        one.on_demand_usd * left for one, left in zip(empty, found.left_shares[len(usages) :], strict=True)
    )
    left_shares = tuple(left * out for left, out in zip(lefts, outside, strict=True))
    kept = {name: count if count > NOTHING else 0.0 for name, count in free.items()}
    left = replace(_applied(others, usages).left, capacity_reservations=owned.capacity_reservations)
    counts = kept | {item.name: item.count for item in left.reservations}
    return Applied(
        paid_usd=found.paid_usd + inside + unused,
        used_usd=found.used_usd + inside,
        covered_usd=sum(
            usage.on_demand_usd * (1.0 - left) for usage, left in zip(usages, left_shares, strict=True)
        ),
        left_shares=left_shares,
        left=left.with_amounts({plan.name: plan.usd_per_hour for plan in left.plans}, counts),
        free_capacity_usd=unused,
    )


class _Hour:
    def __init__(self, owned: Commitments, usages: tuple[Usage, ...]) -> None:
        self._owned, self._usages = owned, usages
        self._open = [1.0] * len(usages)
        self._counts = {item.name: item.count for item in owned.reservations}
        self._usd = {plan.name: plan.usd_per_hour for plan in owned.plans}
        #: Share of a usage that may lie in a zone, by both.
        self._in_zone: dict[tuple[int, str], float] = {}
        self._instances = [i for i, usage in enumerate(usages) if usage.compute is Compute.EC2 and usage.hours > 0]

    def reserve_in_zone(self, item: ReservedInstances) -> None:
        """Cover instances of the type in the reservation's zone."""
        for i in self._instances:
            usage = self._usages[i]
            if usage.instance_type == item.instance_type and usage.zone in ("", item.zone):
                place = (i, item.zone)
                there = self._in_zone.setdefault(place, 1.0 if usage.zone else 1.0 / self._owned.zones)
                taken = min(self._open[i], there, self._counts[item.name] / usage.hours)
                self._open[i] -= taken
                self._in_zone[place] -= taken
                self._counts[item.name] -= taken * usage.hours

    def reserve_in_region(self, item: ReservedInstances) -> None:
        """Cover instances of the family, smallest first, or of the type where sizes are not flexible."""
        own_units = units_of(item.instance_type)

        def units(usage: Usage) -> float | None:
            """Reservations that one instance takes; None where it is not covered."""
            if own_units is None:
                return 1.0 if usage.instance_type == item.instance_type else None
            if usage.family != family_of(item.instance_type):
                return None
            its = units_of(usage.instance_type)
            return None if its is None else its / own_units

        fitting = [(takes, i) for i in self._instances if (takes := units(self._usages[i])) is not None]
        for takes, i in sorted(fitting):
            hours = takes * self._usages[i].hours
            taken = min(self._open[i], self._counts[item.name] / hours)
            self._open[i] -= taken
            self._counts[item.name] -= taken * hours

    def spend(self, plans: Sequence[SavingsPlan]) -> None:
        """Cover usage by plans of one kind, the highest discount first."""
        pairs = []
        for plan in plans:
            for i, usage in enumerate(self._usages):
                if usage.on_demand_usd > 0.0 and self._open[i] > NOTHING and plan.covers(usage):
                    usd = plan.usd_for(usage)
                    if usd < usage.on_demand_usd:  # a plan that saves nothing on it is left for what it does save
                        rate = usd / usage.hours if usage.hours else usd
                        pairs.append((usd / usage.on_demand_usd, rate, plan.name, i, usd))
        for _, _, name, i, usd in sorted(pairs):
            taken = self._open[i] if usd * self._open[i] <= self._usd[name] else self._usd[name] / usd
            self._open[i] = max(0.0, self._open[i] - taken)
            self._usd[name] = max(0.0, self._usd[name] - taken * usd)

    def result(self) -> Applied:
        """The hour's figures."""
        owned = self._owned
        counts = {name: count if count > NOTHING else 0.0 for name, count in self._counts.items()}
        used = sum(plan.usd_per_hour - self._usd[plan.name] for plan in owned.plans)
        used += sum((item.count - counts[item.name]) * item.usd_per_hour for item in owned.reservations)
        covered = sum(
            usage.on_demand_usd * (1.0 - left) for usage, left in zip(self._usages, self._open, strict=True)
        )
        return Applied(
            paid_usd=owned.usd_per_hour,
            used_usd=min(used, owned.usd_per_hour),
            covered_usd=covered,
            left_shares=tuple(self._open),
            left=owned.with_amounts(self._usd, counts),
        )
