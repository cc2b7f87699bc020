"""The zones that launches go to, and those that drains begin with. Pure.

AWS bills what crosses between zones, in each direction. A gateway asks the instances of its own zone first
while these are in time, so what crosses is the load of a zone beyond what its instances carry. A launch goes
where rent and crossing together cost least; what spares most crossing is drained first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from mark.controller.policy import ControllerPolicy
from mark.controller.state import Observation, State, Tokens
from mark.domain.fleet.instances import FleetView, Instance, InstanceState
from mark.domain.fleet.orders import Launch, Order
from mark.domain.front import Front
from mark.domain.offerings.offering import ANY_ZONE, Offering

HOUR_S = 3600.0
SAME_USD = 1e-9
"""USD an hour below which two zones cost the same."""


def best_zone(prices: Mapping[str, float], front: Front, pulls: Mapping[str, float], pull: float) -> str:
    """The zone in which one more instance costs least, what crosses then included; the first of those alike.

    prices: USD an hour by zone. pulls: of what is there, by zone; pull: of the new instance.
    """
    costs = {zone: usd + front.crossing_usd_per_hour(_added(pulls, zone, pull)) for zone, usd in prices.items()}
    least = min(costs.values())
    return min(zone for zone, usd in costs.items() if usd <= least + SAME_USD)


def pool_prices(offering: Offering, zones: Iterable[str], fleet: FleetView) -> dict[str, float]:
    """USD an hour of an offering in each of these zones: its list price where none is observed."""
    seen = dict(fleet.spot_usd_per_hour)
    return {zone: seen.get(replace(offering, zone=zone).name, offering.usd_per_hour) for zone in zones}


def pulls_of(instances: Iterable[Instance], policy: ControllerPolicy) -> dict[str, float]:
    """What instances pull, by zone: USD an hour, if all that they can answer crossed."""
    found: dict[str, float] = {}
    for instance in instances:
        offering = policy.offering(instance.offering)
        if offering is not None and instance.zone:
            found = _added(found, instance.zone, _pull(offering, policy))
    return found


def in_zones(
    orders: Iterable[Order], state: State, seen: Observation, policy: ControllerPolicy, tokens: Tokens
) -> tuple[Order, ...]:
    """The orders, of which launches go to the zones where they cost least, each to one.

    As they are where crossing costs nothing, or nobody says where requests come in.
    """
    front = seen.front
    if front is None or not policy.zones or policy.crossing_usd <= 0.0:
        return tuple(orders)
    pulls = pulls_of((item for item in seen.fleet if item.stays), policy)
    found: list[Order] = []
    for order in orders:
        offering = policy.offering(order.offering) if isinstance(order, Launch) else None
        refused = {pool.zone for pool in state.pool_backoff if offering and pool.offering == offering.name}
        zones = [zone for zone in policy.zones if zone not in refused]
        if not isinstance(order, Launch) or offering is None or offering.zone != ANY_ZONE or not zones:
            found.append(order)
            continue
        prices, pull, counts = pool_prices(offering, zones, seen.fleet), _pull(offering, policy), Counter[str]()
        for _ in range(order.count):
            zone = best_zone(prices, front, pulls, pull)
            pulls, counts[zone] = _added(pulls, zone, pull), counts[zone] + 1
        for place, (zone, count) in enumerate(sorted(counts.items())):
            token = tokens.next() if place else order.token
            found.append(_in_zone(replace(order, token=token, count=count), zone, policy))
    return tuple(found)


def _in_zone(order: Launch, zone: str, policy: ControllerPolicy) -> Launch:
    elsewhere = tuple((name, other) for name in order.offerings for other in policy.zones if other != zone)
    return replace(order, without=elsewhere, reason=f"{order.reason}; in zone {zone}")


def drained_first(
    instances: Iterable[Instance], count: int, seen: Observation, policy: ControllerPolicy
) -> list[Instance]:
    """So many of these instances of an offering that are to be drained.

    Pending ones first, for they serve nobody yet. Then each time the one without which least crosses. Then the
    youngest: the old base stays.
    """
    left, front = list(instances), seen.front
    staying = {item.id: item for item in seen.fleet if item.stays}
    found: list[Instance] = []
    for _ in range(min(count, len(left))):
        pulls = pulls_of(staying.values(), policy)
        crossing = {item.id: _crossing_without(item, front, pulls, policy) for item in left}
        first = min(
            left,
            key=lambda i: (i.state is not InstanceState.PENDING, crossing[i.id], -i.launched_at, i.id),
        )
        left.remove(first)
        staying.pop(first.id, None)
        found.append(first)
    return found


def _crossing_without(
    item: Instance, front: Front | None, pulls: Mapping[str, float], policy: ControllerPolicy
) -> float:
    """The price of what crosses once it is gone, USD an hour; 0 where nobody says where requests come in."""
    offering = policy.offering(item.offering)
    if front is None or offering is None or policy.crossing_usd <= 0.0:
        return 0.0
    return front.crossing_usd_per_hour(_added(pulls, item.zone, -_pull(offering, policy)))


def _pull(offering: Offering, policy: ControllerPolicy) -> float:
    return offering.capacity_rps * HOUR_S * policy.crossing_usd


def _added(pulls: Mapping[str, float], zone: str, pull: float) -> dict[str, float]:
    return {**pulls, zone: pulls.get(zone, 0.0) + pull}
