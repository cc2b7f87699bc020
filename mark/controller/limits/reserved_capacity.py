"""Capacity that the account has reserved: a launch into it has its place, whatever was refused lately. Pure.

Such a launch is an order of its own, in the reservation's zone. What is beyond it goes the way of all launches.
One that is refused says that its place is gone, to another of the account or with the reservation: it is taken for
gone until a back-off is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from mark.controller.policy import ControllerPolicy
from mark.controller.state import Observation, PoolBackoff, State, Tokens
from mark.domain.fleet.instances import InstanceState
from mark.domain.fleet.orders import Launch, LaunchRefused, Order
from mark.domain.offerings.offering import ANY_ZONE, Market

Room = dict[tuple[str, str], int]
"""Launches that reserved capacity has a place for, by offering and zone."""


def reserved_room(state: State, seen: Observation, policy: ControllerPolicy) -> Room:
    """The places that neither instances nor launches on their way take."""
    owned = policy.commitments if state.commitments is None else state.commitments
    kept = owned.active_at(policy.clock_at + seen.now).capacity_reservations if owned else ()
    if not kept:
        return {}
    found: Room = {}
    gone = {(pool.offering, pool.zone) for pool in state.reserved_backoff if pool.until > seen.now}
    for offering in {item.name: item for item in policy.known_offerings}.values():
        places = Counter[str]()
        for item in kept:
            zone = next((zone for zone in policy.zones if item.is_in(zone)), item.zone)
            same = item.instance_type == offering.instance_type.name and offering.market is Market.ON_DEMAND
            if same and offering.zone in (ANY_ZONE, zone):
                places[zone] += int(item.count)
        taken = Counter(
            next((zone for zone in places if zone.endswith(one.zone)), "")
            for one in seen.fleet
            if one.offering.startswith(offering.anywhere) and one.state is not InstanceState.STOPPED
        )
        coming = sum(item.count for item in state.requested if item.offering.startswith(offering.anywhere))
        for zone, count in sorted(places.items()):
            left = max(0, count - taken[zone])
            ahead = min(left, coming)
            coming -= ahead
            if left > ahead and (offering.name, zone) not in gone:
                found[offering.name, zone] = left - ahead
    return found


def reserved_backoff(state: State, seen: Observation, policy: ControllerPolicy) -> tuple[PoolBackoff, ...]:
    """Reserved capacity that is taken for gone, after the refusals of a tick."""
    found = {(pool.offering, pool.zone): pool for pool in state.reserved_backoff if pool.until > seen.now}
    meant_for = {item.token: item.reserved_in for item in state.requested}
    for fact in seen.facts:
        if isinstance(fact, LaunchRefused) and (zone := meant_for.get(fact.token)):
            until = seen.now + policy.unavailable_s
            found[fact.offering, zone] = PoolBackoff(offering=fact.offering, zone=zone, until=until)
    return tuple(pool for _, pool in sorted(found.items()))


def room_by_offering(room: Room) -> Counter[str]:
    """Places of each offering in all zones."""
    found = Counter[str]()
    for (name, _), count in room.items():
        found[name] += count
    return found


def into_reserved(
    orders: Iterable[Order], room: Room, policy: ControllerPolicy, tokens: Tokens
) -> tuple[tuple[Launch, ...], tuple[Order, ...]]:
    """Launches into reserved capacity, each in its zone, and the orders without them."""
    left, kept, others = dict(room), list[Launch](), list[Order]()
    for order in orders:
        if isinstance(order, Launch):
            for (name, zone), places in sorted(left.items()):
                count = min(places, order.count) if name == order.offering else 0
                if not count:
                    continue
                left[name, zone] -= count
                elsewhere = tuple((name, other) for other in policy.zones if other != zone)
                kept.append(
                    replace(
                        order,
                        token=order.token if count == order.count else tokens.next(),
                        count=count,
                        equivalents=(),
                        without=elsewhere,
                        reserved_in=zone,
                        reason=f"{order.reason}; in reserved capacity of {zone}",
                    )
                )
                order = replace(order, count=order.count - count)  # noqa: PLW2901 - what is left of it
        if not isinstance(order, Launch) or order.count:
            others.append(order)
    return tuple(kept), tuple(others)
