"""Prices of offerings that a service no longer has, by their names: those of the shipped snapshot."""

from __future__ import annotations

from functools import lru_cache

from mark.catalog.load import load_prices
from mark.domain.offerings.offering import InstanceType, Market


def listed_usd_per_hour(offering: str) -> float | None:
    """USD an hour of `type:market` or `type:market:zone`; None where the snapshot does not have it."""
    kind, _, rest = offering.partition(":")
    item = _types().get(kind)
    if item is None:
        return None
    spot = rest.partition(":")[0] == Market.SPOT.value
    return item.spot_usd_per_hour if spot else item.on_demand_usd_per_hour


@lru_cache(maxsize=1)
def _types() -> dict[str, InstanceType]:
    return {item.name: item for item in load_prices().types}
