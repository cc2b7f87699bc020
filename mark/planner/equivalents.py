"""Offerings that do as well as a planned one: what EC2 may choose from where the planned one is scarce. Pure.

An order that names several types is filled from the pools with most capacity to spare. Whatever comes must carry
what was planned: it is at least as fast by its profile, costs hardly more, starts from the same launch template
and takes no more of the same quota.
"""

from __future__ import annotations

from collections.abc import Iterable

from mark.domain.offerings.offering import Offering
from mark.domain.offerings.quota import quota_family


def equivalents(planned: Offering, offerings: Iterable[Offering], price_factor: float) -> tuple[Offering, ...]:
    """The offerings that do what the planned one does for at most so many times its price, the cheapest first."""
    able = (
        item
        for item in offerings
        if item.instance_type.name != planned.instance_type.name
        and item.usd_per_hour <= price_factor * planned.usd_per_hour
        and _fits(item, planned)
        and _is_as_fast(item, planned)
    )
    return tuple(sorted(able, key=lambda item: (item.usd_per_hour, item.name)))


def _fits(item: Offering, planned: Offering) -> bool:
    """True where it can be launched wherever the planned one can: the same template, market, zone and quota."""
    one, other = item.instance_type, planned.instance_type
    return (
        (item.market, item.zone, one.machine) == (planned.market, planned.zone, other.machine)
        and quota_family(one.name, item.market) == quota_family(other.name, planned.market)
        and one.vcpus <= other.vcpus
    )


def _is_as_fast(item: Offering, planned: Offering) -> bool:
    """True where it carries as much, and no batch of the planned one's takes longer on it."""
    most = planned.batch.max_batch
    return (
        item.capacity_rps >= planned.capacity_rps
        and item.profile.max_batch >= most
        and all(item.profile.latency_s(n) <= planned.profile.latency_s(n) for n in range(1, most + 1))
    )
