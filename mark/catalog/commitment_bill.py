"""Commitments on the bill: what of them was used and unused, and what they cover of the rest of it. Pure.

The other lines of a bill are at the prices of on demand. Here stand, hour by hour as AWS applies them, what the
commitments cost, used or not, and as an amount that is taken off the price on demand of what they cover. What an
hour leaves unused stands on the bill when the hour is over.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from mark.catalog.billing import SECONDS_PER_HOUR, gateway_count
from mark.domain.billing.costs import BillLine, InstanceUsage
from mark.domain.billing.footprint import Footprint
from mark.domain.billing.service_prices import ServiceItem
from mark.domain.commitments.applied import apply
from mark.domain.commitments.eligible import Compute, Usage
from mark.domain.commitments.owned import Commitments
from mark.domain.offerings.offering import Market

COMPONENT = "commitments"
USED, UNUSED, COVERED = "used", "unused", "on demand that they cover"
FREE_CAPACITY = "capacity reservations that nothing ran in"
"""The lines of a bill."""

ROUNDING = 1e-9
"""Of a length of time."""
ROUNDING_USD = 1e-7
"""Of the sums of many hours: less is nothing."""
Hours = dict[int, list[Usage]]
"""Usage by hours since the epoch."""


class HourlyUsage:
    """Usage by the hour, of what commitments may cover."""

    def __init__(self) -> None:
        self._instances: defaultdict[tuple[int, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._other: defaultdict[tuple[int, Compute], float] = defaultdict(float)

    def add_instances(self, usages: Iterable[InstanceUsage], usd_per_hour: Mapping[str, float]) -> None:
        """Add stretches of instances on demand, at the price that each bears, else its offering's."""
        for usage in usages:
            price = usd_per_hour.get(usage.offering) if usage.usd_per_hour is None else usage.usd_per_hour
            if price is not None:
                self.add_running(usage.offering, price, usage.started_at, usage.ended_at)

    def add_running(
        self, offering: str, usd_per_hour: float, since: float, until: float, *, count: float = 1.0
    ) -> None:
        """Add `count` instances of an offering that ran so long; spot is nobody's to cover."""
        kind, _, rest = offering.partition(":")
        market, _, zone = rest.partition(":")
        if market != Market.ON_DEMAND.value:
            return
        for hour, hours in hours_between(since, until):
            entry = self._instances[hour, kind, zone]
            entry[0] += count * hours
            entry[1] += count * hours * usd_per_hour

    def add(self, compute: Compute, usd: float, since: float, until: float) -> None:
        """Add what was used evenly in that time, USD on demand."""
        for hour, hours in hours_between(since, until):
            self._other[hour, compute] += usd * hours * SECONDS_PER_HOUR / (until - since)

    def add_footprint(self, footprint: Footprint, since: float, until: float, *, gateways: int) -> None:
        """Add what stands around a fleet: gateways, and the controllers' tasks."""
        one = footprint.gateways
        offering = f"{one.instance_type}:{Market.ON_DEMAND.value}"
        self.add_running(offering, one.usd_per_hour, since, until, count=gateways)
        if footprint.controllers is not None and until > since:
            hours = (until - since) / SECONDS_PER_HOUR
            self.add(Compute.FARGATE, hours * _fargate_usd_per_hour(footprint), since, until)

    def hours(self) -> Hours:
        """Usage by the hour, in a fixed order."""
        found: Hours = defaultdict(list)
        for (hour, kind, zone), (hours, usd) in sorted(self._instances.items()):
            found[hour].append(
                Usage(
                    compute=Compute.EC2,
                    on_demand_usd=round(usd, 12),
                    hours=round(hours, 12),
                    instance_type=kind,
                    zone=zone,
                )
            )
        for (hour, compute), usd in sorted(self._other.items()):
            found[hour].append(Usage(compute=compute, on_demand_usd=round(usd, 12)))
        return dict(found)


def hours_between(since: float, until: float) -> Iterable[tuple[int, float]]:
    """Hours since the epoch that a time touches, and how much of each, in hours."""
    hour = math.floor(since / SECONDS_PER_HOUR)
    while hour * SECONDS_PER_HOUR < until:
        begin, end = hour * SECONDS_PER_HOUR, (hour + 1) * SECONDS_PER_HOUR
        length_s = min(until, end) - max(since, begin)
        if length_s > 0:
            yield hour, length_s / SECONDS_PER_HOUR
        hour += 1


def bill_commitments(
    owned: Commitments, used: Hours, since: float, until: float, *, goes_on: bool = False
) -> tuple[BillLine, ...]:
    """The lines of commitments from `since` to `until`, epoch seconds; none where there are no commitments.

    goes_on: `until` is now, and the last hour may still use all that it has.
    """
    if not owned:
        return ()
    taken, unused, covered, free = 0.0, 0.0, 0.0, 0.0
    for hour, length in hours_between(since, until):
        there = owned.active_at(hour * SECONDS_PER_HOUR)
        to_its_end = hour + 1 - max(since, hour * SECONDS_PER_HOUR) / SECONDS_PER_HOUR
        part = min(1.0, to_its_end if goes_on else length)
        found = apply(there if part >= 1.0 else there.share(part), used.get(hour, ()))
        taken += found.used_usd
        covered += found.covered_usd
        if length >= part * (1.0 - ROUNDING):
            unused += found.unused_usd - found.free_capacity_usd
            free += found.free_capacity_usd
    taken, unused, covered, free = (
        usd if abs(usd) >= ROUNDING_USD else 0.0 for usd in (taken, unused, covered, free)
    )
    lines = (_line(USED, taken, taken), _line(UNUSED, unused, unused), _line(COVERED, covered, 0.0 - covered))
    return (*lines, _line(FREE_CAPACITY, free, free)) if free else lines


def commitment_words(lines: Iterable[BillLine]) -> str:
    """The lines of commitments as a sentence; empty where there is none."""
    usd = {line.item: abs(line.usd) for line in lines if line.component == COMPONENT}
    if not usd:
        return ""
    used, unused = usd.get(USED, 0.0), usd.get(UNUSED, 0.0) + usd.get(FREE_CAPACITY, 0.0)
    return (
        f"commitments: {used + unused:.2f} USD paid, {used:.2f} of it used and {unused:.2f} unused; they cover "
        f"{usd.get(COVERED, 0.0):.2f} USD on demand"
    )


def left_by_standing(owned: Commitments, footprint: Footprint) -> Commitments:
    """The commitments that are left by an hour of all that stands around a fleet."""
    if not owned:
        return owned
    standing = HourlyUsage()
    standing.add_footprint(footprint, 0.0, SECONDS_PER_HOUR, gateways=gateway_count(footprint, 0.0))
    return apply(owned, standing.hours()[0]).left


def _fargate_usd_per_hour(footprint: Footprint) -> float:
    tasks, price = footprint.controllers, footprint.prices.price
    if tasks is None:
        return 0.0
    cpus = tasks.vcpus * price(ServiceItem.FARGATE_VCPU, tasks.architecture)
    return tasks.count * (cpus + tasks.memory_gib * price(ServiceItem.FARGATE_MEMORY, tasks.architecture))


def _line(item: str, quantity: float, usd: float) -> BillLine:
    return BillLine(component=COMPONENT, item=item, quantity=quantity, unit="USD", usd=usd)
