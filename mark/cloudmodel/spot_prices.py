"""Spot prices by zone that move: one model for simulator and emulator. Standard library only, pure.

The price of an instance type in a zone is the catalogue's times a factor: a level that the zone keeps, and a drift
that moves by the hour. Levels are lognormal about the middle zone, whose price is the catalogue's in the long run.
The drift is lognormal at each KNOT_S and goes straight from knot to knot, so that prices trend for hours, as EC2's
do since 2017. Both are hashes of the seed and of what they are about: every policy meets the same prices, and no
order of questions changes one. Hours count from the start of the world. No spot price is above the one on demand.

Where a figure comes from (none was tuned on a bill):

- Spread of levels, 10 %: of three zones of us-east-1 the cheapest is below the middle one by 8.2 % (geometric
  mean over 54 types; skypilot-org/skypilot-catalog 76b7d2d, a snapshot of late 2022) and by 8.5 % (343 types;
  ericpauley/aws-spot-price-history bff826c, 31 May 2022). Of three standard normal numbers the least is 0.846
  below the middle one on average. Half of the types spread less than 7 %, a tenth more than 22 %: one figure
  stands for all.
- Drift, 2.6 %: where a pool's price changed twice within six hours (181 pools, 31 May 2022, same source), the
  second was 4.6 h after the first and 0.7 % away (standard deviation of the logarithm; median 0.24 %). Prices keep
  their direction: so do all seven changes that the README of orf/spot-prices (3990003) lists of one type in three
  zones. A stretch from knot to knot moves by 0.7 % in 4.6 h where knots deviate by 2.6 %. Those are the
  pools that change most often, so this errs on the moving side.
- Slowness: "adjust gradually based on long-term trends in supply and demand" (EC2 user guide, "Spot Instance
  pricing history"). The change of November 2017 smoothed prices (George et al., IC2E 2019; Baughman et al.,
  ScienceCloud 2019): older traces are no model of today's market. Over weeks real prices drift further than here.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from statistics import NormalDist

from mark.cloudmodel.world import World
from mark.domain.offerings.offering import InstanceType, Offering

HOUR_S = 3600.0
KNOT_S = 24 * HOUR_S
_NORMAL = NormalDist()


class SpotPrices:
    """The spot prices of a world; its hours count from `start_at`."""

    def __init__(self, world: World, seed: int, *, start_at: float = 0.0) -> None:
        self.world = world
        self._seed = seed
        self._start_at = start_at
        self._normal = cache(self._drawn)
        #: The last answer of `cheapest`, its hour and its types: it is asked at each tick, of the same types.
        self._cheapest: tuple[int, Mapping[str, Offering], tuple[tuple[str, float], ...]] | None = None

    def usd_per_hour(self, item: InstanceType, zone: str, now: float) -> float:
        """The price of a type that has a spot market; the catalogue's where no zone is named."""
        return self._price(item, zone, math.floor((now - self._start_at) / HOUR_S))

    def mean_usd_per_hour(self, item: InstanceType, zone: str, start_at: float, end_at: float) -> float:
        """The mean of the prices over a time: EC2 bills each second at the price that holds then."""
        if end_at <= start_at:
            return self.usd_per_hour(item, zone, start_at)
        begin, end = ((at - self._start_at) / HOUR_S for at in (start_at, end_at))
        usd = sum(
            (min(end, hour + 1.0) - max(begin, hour)) * self._price(item, zone, hour)
            for hour in range(math.floor(begin), math.ceil(end))
        )
        return usd / (end - begin)

    def lowest_usd_per_hour(self, item: InstanceType, start_at: float, end_at: float) -> float:
        """The lowest price that any zone has within a time."""
        begin, end = ((at - self._start_at) / HOUR_S for at in (start_at, end_at))
        hours = range(math.floor(begin), max(math.ceil(end), math.floor(begin) + 1))
        return min(self._price(item, zone, hour) for zone in self.world.zones for hour in hours)

    def zones_by_price(self, item: InstanceType, now: float) -> tuple[str, ...]:
        """The world's zones, the cheapest first."""
        return tuple(sorted(self.world.zones, key=lambda zone: (self.usd_per_hour(item, zone, now), zone)))

    def cheapest(self, items: Mapping[str, Offering], now: float) -> tuple[tuple[str, float], ...]:
        """The price of each of these in its cheapest zone, by their names, and in each zone by its pool's.

        None where prices do not move.
        """
        if self.world.zones == ("",):
            return ()
        hour = math.floor((now - self._start_at) / HOUR_S)
        if self._cheapest is None or self._cheapest[0] != hour or self._cheapest[1] is not items:
            prices: dict[str, float] = {}
            for name, item in items.items():
                by_zone = {
                    zone: self._price(item.instance_type, zone, hour) for zone in self.world.pools_for(item)
                }
                prices |= {replace(item, zone=zone).name: usd for zone, usd in by_zone.items()}
                prices[name] = min(by_zone.values())
            self._cheapest = hour, items, tuple(sorted(prices.items()))
        return self._cheapest[2]

    def _price(self, item: InstanceType, zone: str, hour: int) -> float:
        assert item.spot_usd_per_hour is not None, f"{item.name} has no spot market"
        if not zone:
            return item.spot_usd_per_hour
        levels = [self._normal(f"level {item.name} {one}") for one in self.world.zones]
        level = self._normal(f"level {item.name} {zone}") - statistics.median(levels)
        knot, share = divmod(hour * HOUR_S / KNOT_S, 1.0)
        before, after = (self._normal(f"drift {item.name} {zone} {int(knot) + more}") for more in (0, 1))
        drift = before + share * (after - before)
        factor = math.exp(self.world.spot_zone_spread * level + self.world.spot_drift * drift)
        most = item.listed_usd_per_hour * item.spot_price_factor
        return min(most, item.spot_usd_per_hour * factor)

    def _drawn(self, key: str) -> float:
        """A standard normal number."""
        digest = hashlib.sha256(f"{self._seed} spot price {key}".encode()).digest()
        return _NORMAL.inv_cdf((int.from_bytes(digest[:6], "little") + 0.5) / 2**48)
