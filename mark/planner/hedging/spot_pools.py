"""Diversification over spot pools: the loss of one (a bulk interruption) must not take the fleet with it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mark.domain.offerings.offering import Market, Offering

MOST_IN_ONE_POOL = 0.9
"""Share of the capacity that one spot pool may carry where another can be had."""
MOST_PREMIUM = 0.05
"""Share of the fleet's rent that it may cost: backup capacity covers the loss of a small fleet for less."""


def diversify_spot(
    counts: Mapping[str, int], offerings: Mapping[str, Offering], refused: frozenset[str]
) -> dict[str, int]:
    """Move what one spot pool carries too much of to the cheapest other one (or on demand).

    counts: instances by offering. No capacity is lost; where it would cost too much, or the largest share would be
    no smaller, the fleet stays as it is.
    """
    rps = {name: count * offerings[name].capacity_rps for name, count in counts.items()}
    largest = max(rps, key=lambda name: (rps[name], name), default=None)
    if largest is None or offerings[largest].market is not Market.SPOT:
        return dict(counts)
    pool = offerings[largest]
    excess_rps = rps[largest] - MOST_IN_ONE_POOL * sum(rps.values())
    moved = math.ceil(excess_rps / pool.capacity_rps - 1e-9)
    if moved <= 0:
        return dict(counts)
    others = [
        (needed * item.usd_per_hour - moved * pool.usd_per_hour, name, needed)
        for name, item in offerings.items()
        if name != largest and name not in refused
        for needed in (math.ceil(moved * pool.capacity_rps / item.capacity_rps - 1e-9),)
    ]
    premium, other, needed = min(others, default=(math.inf, "", 0))
    if premium > MOST_PREMIUM * sum(count * offerings[name].usd_per_hour for name, count in counts.items()):
        return dict(counts)
    found = {**counts, largest: counts[largest] - moved, other: counts.get(other, 0) + needed}
    if _largest_share(found, offerings) >= rps[largest] / sum(rps.values()):
        return dict(counts)
    return {name: count for name, count in found.items() if count}


def _largest_share(counts: Mapping[str, int], offerings: Mapping[str, Offering]) -> float:
    rps = [count * offerings[name].capacity_rps for name, count in counts.items()]
    return max(rps) / sum(rps)
