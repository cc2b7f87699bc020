"""Back-off of what AWS refuses: left out for a while, twice as long each time in a row. Pure.

Where AWS lacks capacity in one of the policy's zones, that pool alone is left out, and the offering is had in the
others; any other refusal leaves the offering out everywhere. A standby starts only in its own zone, so a wake
that is refused says the same of its pool. A launch that is had ends the row, and so does time: what was refused
long ago says nothing of today. A refusal that is told again, as where an order is sent again after a crash,
counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from mark.controller.policy import ControllerPolicy
from mark.controller.state import Observation, PoolBackoff, RefusalStreak, State
from mark.domain.fleet.orders import Launch, LaunchRefused, Order, RefusalCause
from mark.domain.offerings.offering import ANY_ZONE

MOST_DOUBLINGS = 16
"""Of the back-off: a number without bound overflows."""
Pool = tuple[str, str]
"""An offering and a zone; an empty zone for all of them."""


def backoff_s(in_a_row: int, policy: ControllerPolicy) -> float:
    """Seconds that an offering is left out after so many refusals in a row."""
    grown = policy.unavailable_s * 2.0 ** min(max(0, in_a_row - 1), MOST_DOUBLINGS)
    return max(policy.unavailable_s, min(grown, policy.unavailable_longest_s))


def left_out(state: State, policy: ControllerPolicy) -> dict[str, float]:
    """Until when each offering is left out that was refused everywhere, or in each zone that it may go to."""
    found = dict(state.capacity_backoff)
    by_zone: dict[str, dict[str, float]] = {}
    for pool in state.pool_backoff:
        by_zone.setdefault(pool.offering, {})[pool.zone] = pool.until
    for name, until in by_zone.items():
        item = policy.offering(name)
        zones = policy.zones if item is None or item.zone == ANY_ZONE else (item.zone,)
        if zones and all(zone in until for zone in zones):
            found[name] = max(found.get(name, 0.0), min(until[zone] for zone in zones))
    return found


def without_refused_pools(orders: tuple[Order, ...], state: State) -> tuple[Order, ...]:
    """The orders, of which launches leave out the pools that were refused."""
    return tuple(
        replace(order, without=pools)
        if isinstance(order, Launch)
        and (pools := tuple((p.offering, p.zone) for p in state.pool_backoff if p.offering in order.offerings))
        else order
        for order in orders
    )


def count_refusals(state: State, seen: Observation, policy: ControllerPolicy) -> tuple[RefusalStreak, ...]:
    """The refusals in a row of each offering or pool, where the policy's back-off grows by them."""
    if policy.unavailable_longest_s <= policy.unavailable_s:
        return ()
    forget_at = seen.now - 2.0 * policy.unavailable_longest_s
    streaks = {(streak.offering, streak.zone): streak for streak in state.refusal_streaks if streak.at > forget_at}
    if streaks:
        there = Counter(instance.token for instance in seen.fleet)
        arrived = {item.token for item in state.requested if there[item.token] > item.seen}
        for instance in seen.fleet:
            if instance.token in arrived:
                streaks.pop((instance.offering, ""), None)
                streaks.pop((instance.offering, instance.zone), None)
    waited_for = {item.token for item in state.requested if item.refused == 0}
    refused = {_pool_of(fact, policy) for fact in _refused_launches(seen) if fact.token in waited_for}
    for pool in sorted(refused | _newly_scarce(state, seen, policy)):
        offering, zone = pool
        before = streaks[pool].count if pool in streaks else 0
        streaks[pool] = RefusalStreak(offering=offering, zone=zone, count=before + 1, at=seen.now)
    return tuple(streak for _, streak in sorted(streaks.items()))


def back_off(
    state: State, streaks: tuple[RefusalStreak, ...], seen: Observation, policy: ControllerPolicy
) -> tuple[tuple[tuple[str, float], ...], tuple[PoolBackoff, ...]]:
    """Offerings left out everywhere, and pools left out in one zone, after the refusals of a tick."""
    everywhere = {name: until for name, until in state.capacity_backoff if until > seen.now}
    pools = {(pool.offering, pool.zone): pool.until for pool in state.pool_backoff if pool.until > seen.now}
    in_a_row = {(streak.offering, streak.zone): streak.count for streak in streaks}
    refused = {_pool_of(fact, policy) for fact in _refused_launches(seen)}
    for pool in refused | _newly_scarce(state, seen, policy):
        until = seen.now + backoff_s(in_a_row.get(pool, 1), policy)
        if pool[1]:
            pools[pool] = until
        else:
            everywhere[pool[0]] = until
    left = (PoolBackoff(offering=name, zone=zone, until=until) for (name, zone), until in sorted(pools.items()))
    return tuple(sorted(everywhere.items())), tuple(left)


def _refused_launches(seen: Observation) -> Iterator[LaunchRefused]:
    """Launches that were refused for their offering's sake: no wakes, and none that a guardrail cut."""
    for fact in seen.facts:
        if isinstance(fact, LaunchRefused) and not fact.instances and fact.cause is not RefusalCause.GUARDRAIL:
            yield fact


def _pool_of(fact: LaunchRefused, policy: ControllerPolicy) -> Pool:
    """Scope of a refusal: only a lack of capacity is one of the zone that it names."""
    zone = fact.zone or ""
    return fact.offering, zone if fact.cause is RefusalCause.CAPACITY and zone in policy.zones else ""


def _newly_scarce(state: State, seen: Observation, policy: ControllerPolicy) -> set[Pool]:
    """The pools in which standbys could not be woken and that are not left out yet.

    Wakes are tried again meanwhile, for they cost nothing; each of them would lengthen the row.
    """
    known = {(pool.offering, pool.zone) for pool in state.pool_backoff if pool.until > seen.now}
    wakes = (fact for fact in seen.facts if isinstance(fact, LaunchRefused) and fact.instances)
    return {pool for fact in wakes if (pool := _pool_of(fact, policy))[1]} - known
