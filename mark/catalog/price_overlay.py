"""Prices that an account pays for instance types where they are not AWS's list prices. Pure.

As Karpenter's NodeOverlay: an overlay names types and markets, and sets or adjusts their price. Where several
match, the one of the greatest weight holds alone; they do not add up. Two of one weight must not match the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from mark.catalog.load import PriceSnapshot
from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import InstanceType, Market

_DECIMALS = 8
MOST = 10.0
"""Times the list price that an own price may be: beyond it a number was meant otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceOverlay:
    """Own price: the list price times `factor` plus `plus_usd_per_hour`, or `usd_per_hour` whatever is listed."""

    #: Where the settings have it.
    name: str
    #: Families (`c5`) or patterns of types (`c5.*large`).
    types: tuple[str, ...]
    markets: tuple[Market, ...] = (Market.ON_DEMAND,)
    factor: float = 1.0
    plus_usd_per_hour: float = 0.0
    usd_per_hour: float | None = None
    weight: int = 0

    def matches(self, instance_type: str, market: Market) -> bool:
        """True where it is about that type on that market."""
        return market in self.markets and any(_is_of(instance_type, one) for one in self.types)

    def price_of(self, listed_usd_per_hour: float) -> float:
        """Own price for a list price, USD an hour."""
        if self.usd_per_hour is not None:
            return self.usd_per_hour
        return listed_usd_per_hour * self.factor + self.plus_usd_per_hour


def overlay_prices(prices: PriceSnapshot, overlays: Sequence[PriceOverlay]) -> PriceSnapshot:
    """The snapshot at own prices. Misconfigured for a price that is not above 0, and for overlays that clash."""
    if not overlays:
        return prices
    return replace(
        prices,
        source=f"{prices.source}; price overlays of the settings",
        types=tuple(_overlaid(item, overlays) for item in prices.types),
    )


def match_each(overlays: Iterable[PriceOverlay], types: Sequence[str]) -> frozenset[str]:
    """The first type that each family or pattern matches. Misconfigured where one matches none."""
    found = set()
    for overlay in overlays:
        for pattern in overlay.types:
            first = next((name for name in types if _is_of(name, pattern)), None)
            if first is None:
                raise Misconfigured(f"{overlay.name}: {pattern} matches no instance type that has a price")
            found.add(first)
    return frozenset(found)


def _is_of(instance_type: str, pattern: str) -> bool:
    """True where a pattern is of the type; a name without a dot is a family."""
    return fnmatchcase(instance_type, pattern if set(pattern) & set(".*?[") else f"{pattern}.*")


def _overlaid(item: InstanceType, overlays: Sequence[PriceOverlay]) -> InstanceType:
    on_demand, spot = (_overlay_of(item, overlays, market) for market in (Market.ON_DEMAND, Market.SPOT))
    if on_demand is not None:
        listed = item.on_demand_usd_per_hour
        item = replace(item, on_demand_usd_per_hour=_own(item, on_demand, listed), list_usd_per_hour=listed)
    if spot is not None and item.spot_usd_per_hour is not None:
        item = replace(
            item, spot_usd_per_hour=_own(item, spot, item.spot_usd_per_hour), spot_price_factor=spot.factor
        )
    return item


def _overlay_of(item: InstanceType, overlays: Sequence[PriceOverlay], market: Market) -> PriceOverlay | None:
    """The overlay that holds for a type. Misconfigured where two of the greatest weight do."""
    fitting = [one for one in overlays if one.matches(item.name, market)]
    most = max((one.weight for one in fitting), default=0)
    held = [one for one in fitting if one.weight == most]
    if len(held) > 1:
        raise Misconfigured(
            f"{held[0].name} and {held[1].name} both set the {market.value} price of {item.name}: "
            "give one of them a greater weight"
        )
    return held[0] if held else None


def _own(item: InstanceType, overlay: PriceOverlay, listed: float) -> float:
    usd = round(overlay.price_of(listed), _DECIMALS)
    if usd <= 0.0:
        raise Misconfigured(
            f"{overlay.name}: {item.name} would cost {usd:g} USD/h (list price {listed:g}); a price is above 0"
        )
    if usd > MOST * listed:
        raise Misconfigured(
            f"{overlay.name}: {item.name} would cost {usd:g} USD/h, more than {MOST:g} times the list price of "
            f'{listed:g}; a percentage ends with %, such as "+5%"'
        )
    return usd
