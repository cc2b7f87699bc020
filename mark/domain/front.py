"""Where requests come in: the zones of the gateways, and how their load is shared among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MEASURED = 100
"""Requests from which on their zones tell shares."""
STEPS = 10
"""Weights of addresses go from 0 to so many: fewer steps make fewer changes of a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Where requests come in, by availability zone.

    shares: of the requests, of each zone that has a gateway. is_steered: they come in where the instances are, so
    the shares follow what these pull: USD an hour, if all of their requests crossed to another zone. beside: what
    other models' instances pull.
    """

    shares: tuple[tuple[str, float], ...]
    is_steered: bool = False
    beside: tuple[tuple[str, float], ...] = ()

    def shares_with(self, pulls: Mapping[str, float]) -> dict[str, float]:
        """Shares by zone once the model's own instances pull that."""
        shares = dict(self.shares)
        if not self.is_steered:
            return shares
        beside = dict(self.beside)
        return steered_shares({zone: beside.get(zone, 0.0) + pulls.get(zone, 0.0) for zone in shares}, [*shares])

    def crossing_usd_per_hour(self, pulls: Mapping[str, float]) -> float:
        """The price of what crosses while the load takes all instances that pull so, each zone's own first."""
        total = sum(pulls.values())
        lacking = (share * total - pulls.get(zone, 0.0) for zone, share in self.shares_with(pulls).items())
        return sum(max(0.0, usd) for usd in lacking)


def steered_shares(pulls: Mapping[str, float], zones: Sequence[str]) -> dict[str, float]:
    """Shares of the requests by zone, of those with gateways: as the instances pull, evenly where none does."""
    total = sum(pulls.get(zone, 0.0) for zone in zones)
    return {zone: pulls.get(zone, 0.0) / total if total > 0.0 else 1.0 / len(zones) for zone in zones}


def entry_shares(gateways: Sequence[str], entered: Mapping[str, int]) -> dict[str, float]:
    """Shares of the requests by zone, of gateways that are up: as they came in lately, else even by gateway.

    gateways: the zone of each, one at least. entered: requests by zone.
    """
    came = {zone: entered.get(zone, 0) for zone in gateways}
    total = sum(came.values())
    if total < MEASURED:
        return {zone: gateways.count(zone) / len(gateways) for zone in came}
    return {zone: count / total for zone, count in came.items()}


def address_weights(zone_of: Mapping[str, str], shares: Mapping[str, float]) -> dict[str, int]:
    """How often clients are to get each address of a name, against each other; alike where all are to get them.

    zone_of: the zone of each address, empty where it is not known. shares: of the requests, by zone.
    """
    zones = [*zone_of.values()]
    parts = {address: shares.get(zone, 0.0) / zones.count(zone) for address, zone in zone_of.items()}
    most = max(parts.values(), default=0.0)
    if most <= 0.0 or "" in zones:
        return dict.fromkeys(zone_of, STEPS)
    return {address: round(STEPS * part / most) for address, part in parts.items()}
