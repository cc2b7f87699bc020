"""Current prices of AWS over those of a snapshot: a price that AWS does not give stays as the snapshot has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date

from mark.catalog.load import PriceSnapshot
from mark.catalog.schema import CreditsEntry, PriceEntry
from mark.domain.offerings.offering import BurstCredits, InstanceType

PERCENT = 100.0
_DECIMALS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotes:
    """Prices of types on a day in a region."""

    region: str
    day: date
    #: USD an hour by type.
    on_demand: Mapping[str, float]
    #: USD an hour by type.
    spot: Mapping[str, float]


def refresh(floor: PriceSnapshot, quotes: Quotes) -> PriceSnapshot:
    """The snapshot's types at what is quoted. A spot price above the list price counts as the list price.

    Quotes of another region than the snapshot's make a snapshot of that region; types that are not quoted there
    are not in it.
    """
    elsewhere = quotes.region != floor.region
    renewed = len([item for item in floor.types if item.name in quotes.on_demand or item.name in quotes.spot])
    types = tuple(
        _quoted(item, quotes, elsewhere=elsewhere)
        for item in floor.types
        if item.name in quotes.on_demand or not elsewhere
    )
    quoted = f"AWS's price list and spot prices of {quotes.day.isoformat()} for {renewed} of {len(types)} types"
    rest = f"the others: {floor.date}" if renewed < len(types) else f"all else: {floor.date}"
    return PriceSnapshot(
        region=quotes.region, date=quotes.day.isoformat(), source=f"{quoted}; {rest}: {floor.source}", types=types
    )


def age_days(prices: PriceSnapshot, today: date) -> int:
    """Days since the prices were those of the day; 0 where they are of a day to come."""
    return max(0, (today - date.fromisoformat(prices.date)).days)


def format_prices(prices: PriceSnapshot) -> str:
    """The text of a price file, one type a line."""
    head = {"format": "mark-prices/1", "region": prices.region, "date": prices.date}
    lines = ",\n   ".join(
        json.dumps(_entry(item).model_dump(mode="json", exclude_defaults=True)) for item in prices.types
    )
    head_lines = ",\n ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items())
    return f'{{{head_lines},\n "sources": {json.dumps({"all": prices.source})},\n "types": [\n   {lines}]}}\n'


def _quoted(item: InstanceType, quotes: Quotes, *, elsewhere: bool) -> InstanceType:
    price = quotes.on_demand.get(item.name, item.on_demand_usd_per_hour)
    spot = quotes.spot.get(item.name, None if elsewhere else item.spot_usd_per_hour)
    return replace(
        item,
        on_demand_usd_per_hour=round(price, _DECIMALS),
        spot_usd_per_hour=None if spot is None else round(min(spot, price), _DECIMALS),
    )


def _entry(item: InstanceType) -> PriceEntry:
    rate = item.spot_interruption_rate
    return PriceEntry.model_validate(
        {
            "instance_type": item.name,
            "vcpus": item.vcpus,
            "memory_gib": item.memory_gib,
            "architecture": item.architecture,
            "on_demand_usd_per_hour": item.on_demand_usd_per_hour,
            "spot_usd_per_hour": item.spot_usd_per_hour,
            "spot_interruption_percent_per_month": None if rate is None else round(rate * PERCENT, _DECIMALS),
            "accelerator": item.accelerator,
            "accelerator_count": item.accelerator_count,
            "accelerator_memory_gib": item.accelerator_memory_gib,
            "credits": None if item.credits is None else _credits(item.credits),
        }
    )


def _credits(known: BurstCredits) -> CreditsEntry:
    return CreditsEntry(
        earn_credits_per_hour=known.earn_per_hour,
        max_credits=known.max_balance,
        baseline_percent=round(known.baseline * PERCENT, _DECIMALS),
        launch_credits_per_vcpu=known.launch_credits / known.vcpus,
        keeps_when_stopped=known.keeps_when_stopped,
        unlimited=known.unlimited,
        surplus_usd_per_vcpu_hour=known.surplus_usd_per_vcpu_hour,
    )
