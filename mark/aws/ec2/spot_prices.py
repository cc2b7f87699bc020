"""Spot prices of a model's types by availability zone, as AWS says them once an hour."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from mark.aws.ec2.observed import Ec2Row
from mark.aws.prices import spot_usd_per_hour_by_zone
from mark.aws.session import Aws
from mark.domain.errors import MarkError
from mark.domain.offerings.offering import Market, Offering, SpotPrice

READ_EVERY_S = 3600.0
"""Prices "adjust gradually" (EC2 user guide): in an hour they move by some tenths of a percent."""
READ_AGAIN_S = 300.0
"""After a failure."""
ANY_ZONE = "any"
"""The zone of an offering that may stand in each."""

_log = logging.getLogger(__name__)


class ObservedSpotPrices:
    """Price of each offering now. `zones`: those that instances may stand in, empty for all.

    Before the first answer, and where AWS gives none, a spot instance costs what its offering says.
    """

    def __init__(self, aws: Aws, offerings: Mapping[str, Offering], zones: Collection[str] = ()) -> None:
        self._aws = aws
        self._offerings = offerings
        self._zones = frozenset(zones)
        self._spot = {
            name: item.instance_type.name for name, item in offerings.items() if item.market is Market.SPOT
        }
        self._factors = {
            kind.name: kind.spot_price_factor for kind in (offerings[name].instance_type for name in self._spot)
        }
        self._prices: dict[str, dict[str, float]] = {}
        self._read_at = -math.inf

    def read(self, now: float) -> None:
        """Ask AWS where an hour has gone by; the last prices stay where it does not answer."""
        if not self._spot or now < self._read_at + READ_EVERY_S:
            return
        self._read_at = now
        try:
            found = spot_usd_per_hour_by_zone(self._aws, frozenset(self._factors), now)
        except MarkError as error:
            self._read_at += READ_AGAIN_S - READ_EVERY_S
            _log.warning("spot prices cannot be read; those that are known are used meanwhile: %s", error)
            return
        self._prices = {
            kind: {zone: usd * self._factors[kind] for zone, usd in zones.items()} for kind, zones in found.items()
        }

    def usd_per_hour(self, row: Ec2Row) -> float | None:
        """The price of an instance; None where its offering is not known."""
        if (item := self._offerings.get(row.offering)) is None:
            return None
        return self._prices.get(self._spot.get(row.offering, ""), {}).get(row.zone, item.usd_per_hour)

    def known(self) -> dict[str, SpotPrice]:
        """The price of each spot offering, by name; without those that AWS does not price where it may stand."""
        found: dict[str, SpotPrice] = {}
        for name, kind in self._spot.items():
            prices = self._prices.get(kind, {})
            fixed = self._offerings[name].zone
            own = frozenset((fixed,)) if fixed != ANY_ZONE else self._zones
            usable = [usd for zone, usd in prices.items() if not own or zone in own]
            if usable:
                found[name] = SpotPrice(by_zone=prices, dearest=max(usable))
        return found

    def lowest(self) -> tuple[tuple[str, float], ...]:
        """The price of each spot offering in its cheapest zone, by name, and in each zone by its name there.

        Without those that AWS does not price.
        """
        found: dict[str, float] = {}
        for name, kind in self._spot.items():
            prices = self._prices.get(kind, {})
            by_zone = {zone: usd for zone, usd in prices.items() if not self._zones or zone in self._zones}
            found |= {replace(self._offerings[name], zone=zone).name: usd for zone, usd in by_zone.items()}
            if by_zone:
                found[name] = min(by_zone.values())
        return tuple(sorted(found.items()))
