"""Capacity of a cloud that refuses at times: one model for simulator and emulator. Standard library only.

A draw is a number in [0, 1) made of the seed and of what it is about, an offering or an instance and the minute,
and of nothing else. So all that is asked of one offering in one minute gets one answer, as capacity does not come
back within a second; every policy meets the same refusals, and asking more often changes no other answer. Minutes
count from the start of the world, and an instance is known by its number among those launched in its pool: so an
emulated AWS, on another clock and with other ids, refuses what a replay does.

A spot pool is an instance type in a zone. A spot launch goes to the cheapest zone that does not refuse it, and is
refused where all zones refuse; some refusals are of all zones at once (`World.refused_together`). EC2 Fleet does
so under its lowest-price allocation. Under price-capacity-optimised, which services ask for, it looks at spare
capacity first, which nobody publishes, and may take a dearer zone. Launches on demand and starts of stopped
instances are refused in all zones alike.

A spot pool is lost when half of its instances are under notice. From then on for a while, more of what is asked
of that zone on spot is refused, and of its instance type on demand and for stopped instances: what was taken away
is used elsewhere.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence

from mark.cloudmodel.spot_prices import SpotPrices
from mark.cloudmodel.world import World, pool_zone
from mark.domain.offerings.offering import InstanceType, Market

ANSWER_S = 60.0
"""Answers hold for so long."""
LOST_SHARE = 0.5
"""Share of a pool's instances under notice at which it counts as lost."""
NO_CAPACITY = "InsufficientInstanceCapacity"
"""EC2's code for a launch, or a start, that finds no place."""


def pool_name(offering: str, zone: str) -> str:
    """The name of a pool: its offering's, with the zone behind it where zones are told apart."""
    return f"{offering}:{zone}" if zone else offering


class Capacity:
    """The capacity that can be had now in a world; its minutes count from `start_at`."""

    def __init__(self, world: World, seed: int, *, start_at: float = 0.0) -> None:
        self.world = world
        self.prices = SpotPrices(world, seed, start_at=start_at)
        self._seed = seed
        self._start_at = start_at
        self._lost_at: dict[tuple[str, str], float] = {}
        self._launched: Counter[str] = Counter()

    def zone_of_launch(
        self,
        item: InstanceType,
        market: Market,
        now: float,
        *,
        without: Collection[str] = (),
        prewarmed: bool = False,
    ) -> str | None:
        """The zone that a launch goes to; None where it is refused.

        without: zones that it leaves out. prewarmed: it was made at a better time.
        """
        zones = self.world.zones
        if len(zones) > 1 and market is Market.SPOT:
            zones = self.prices.zones_by_price(item, now)
        open_to = (zone for zone in zones if zone not in without)
        return next((z for z in open_to if prewarmed or not self.refuses_launch(item, market, z, now)), None)

    def refuses_launch(self, item: InstanceType, market: Market, zone: str, now: float) -> bool:
        """True where no instance of the type can be launched in that market and zone."""
        usual = self.world.spot_refused if market is Market.SPOT else self.world.on_demand_refused
        what, zone = f"launch {item.name} {market.value}", pool_zone(market, zone)
        if not zone:
            return self._refuses(self._chance(usual, item, zone, now), what, now)
        together = self.world.refused_together * usual
        alone = (self._chance(usual, item, zone, now) - together) / (1.0 - together)
        return self._refuses(together, what, now) or self._refuses(alone, f"{what} {zone}", now)

    def number_launch(self, pool: str) -> str:
        """The name of an instance that is launched now, for `refuses_wake`: its pool and its number there."""
        self._launched[pool] += 1
        return f"{pool} {self._launched[pool]}"

    def refuses_wake(self, item: InstanceType, number: str, now: float) -> bool:
        """True where this stopped instance cannot be started. number: from `number_launch`."""
        return self._refuses(self._chance(self.world.wake_refused_of(item), item, "", now), f"wake {number}", now)

    def note_notices(self, item: InstanceType, zone: str, *, warned: int, there: int, now: float) -> None:
        """Take in that so many of a pool's instances are under notice, of those that are there."""
        if warned >= LOST_SHARE * there:
            self._lost_at[item.name, zone] = self._lost_at[item.name, ""] = now

    def pool_loss_s(self, number: int) -> float | None:
        """Seconds from the start of the world to its n-th loss of a whole pool; None where none is lost so."""
        every_s = self.world.pool_loss_every_s
        return None if every_s is None else (number + self._draw(f"loss {number}")) * every_s

    def lost_pool(self, number: int, pools: Sequence[str]) -> str:
        """The pool that the n-th loss takes, of those that are there."""
        return sorted(pools)[int(self._draw(f"lost pool {number}") * len(pools))]

    def _chance(self, usual: float, item: InstanceType, zone: str, now: float) -> float:
        """The chance of a refusal now; `zone` is empty for the type in any of them."""
        world = self.world
        lost = now - self._lost_at.get((item.name, zone), -world.after_loss_s) < world.after_loss_s
        return max(usual, world.refused_after_loss) if lost else usual

    def _refuses(self, chance: float, what: str, now: float) -> bool:
        minute = int((now - self._start_at) // ANSWER_S)
        return chance > 0.0 and self._draw(f"{what} {minute}") < chance

    def _draw(self, key: str) -> float:
        """Evenly in [0, 1)."""
        digest = hashlib.sha256(f"{self._seed} {key}".encode()).digest()
        return int.from_bytes(digest[:6], "little") / 2**48
