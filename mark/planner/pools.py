"""Spot pools are spread: one that is lost must not take the fleet with it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mark.domain.offering import Market, Offering

MOST_IN_ONE_POOL = 0.9
"""Share of the capacity that one spot pool may carry where another can be had."""
FEWEST_INSTANCES = 3
"""A smaller fleet is not split: one instance is one pool."""


def spread(
    counts: Mapping[str, int], offerings: Mapping[str, Offering], refused: frozenset[str]
) -> dict[str, int]:
    """The fleet with what one spot pool carries too much of moved to the cheapest other one (or on demand).

    counts: instances by offering. No capacity is lost; where nothing else can be launched the fleet stays.
    """
    found = dict(counts)
    total = sum(count * offerings[name].capacity_rps for name, count in found.items())
    largest = max(found, key=lambda name: (found[name] * offerings[name].capacity_rps, name), default=None)
    if largest is None or sum(found.values()) < FEWEST_INSTANCES or offerings[largest].market is not Market.SPOT:
        return found
    pool = offerings[largest]
    excess_rps = found[largest] * pool.capacity_rps - MOST_IN_ONE_POOL * total
    others = [item for name, item in offerings.items() if name != largest and name not in refused]
    if excess_rps <= 0 or not others:
        return found
    other = min(others, key=lambda item: (item.usd_per_hour / item.capacity_rps, item.name))
    moved = math.ceil(excess_rps / pool.capacity_rps)
    needed = math.ceil(moved * pool.capacity_rps / other.capacity_rps - 1e-9)
    found[largest] -= moved
    found[other.name] = found.get(other.name, 0) + needed
    return {name: count for name, count in found.items() if count}
