"""Capacity of a cloud that refuses at times: one model for simulator and emulator. Standard library only.

A draw is a number in [0, 1) made of the seed and of what it is about, an offering or an instance and the minute,
and of nothing else. So all that is asked of one offering in one minute gets one answer, as capacity does not come
back within a second; every policy meets the same refusals, and asking more often changes no other answer. Minutes
count from the start of the world, and an instance is known by its number among those launched in its pool: so an
emulated AWS, on another clock and with other ids, refuses what a replay does.

A spot pool is lost when half of its instances are under notice. From then on for a while, more of what is asked
of its instance type is refused, in either market and for stopped instances too: what was taken away is used
elsewhere.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from mark.cloudmodel.world import World
from mark.domain.offering import InstanceType, Market

ANSWER_S = 60.0
"""Answers hold for so long."""
LOST_SHARE = 0.5
"""Share of a pool's instances under notice at which it counts as lost."""
NO_CAPACITY = "InsufficientInstanceCapacity"
"""EC2's code for a launch, or a start, that finds no place."""


class Capacity:
    """The capacity that can be had now in a world; its minutes count from `start_at`."""

    def __init__(self, world: World, seed: int, *, start_at: float = 0.0) -> None:
        self.world = world
        self._seed = seed
        self._start_at = start_at
        self._lost_at: dict[str, float] = {}
        self._launched: Counter[str] = Counter()

    def refuses_launch(self, item: InstanceType, market: Market, now: float) -> bool:
        """True where no instance of the type can be launched in that market."""
        usual = self.world.spot_refused if market is Market.SPOT else self.world.on_demand_refused
        return self._refuses(usual, item, f"launch {item.name} {market.value}", now)

    def number_launch(self, pool: str) -> str:
        """The name of an instance that is launched now, for `refuses_wake`: its pool and its number there."""
        self._launched[pool] += 1
        return f"{pool} {self._launched[pool]}"

    def refuses_wake(self, item: InstanceType, number: str, now: float) -> bool:
        """True where this stopped instance cannot be started. number: from `number_launch`."""
        return self._refuses(self.world.wake_refused_of(item), item, f"wake {number}", now)

    def note_notices(self, item: InstanceType, *, warned: int, there: int, now: float) -> None:
        """Take in that so many of a pool's instances are under notice, of those that are there."""
        if warned >= LOST_SHARE * there:
            self._lost_at[item.name] = now

    def pool_loss_s(self, number: int) -> float | None:
        """Seconds from the start of the world to its n-th loss of a whole pool; None where none is lost so."""
        every_s = self.world.pool_loss_every_s
        return None if every_s is None else (number + self._draw(f"loss {number}")) * every_s

    def lost_pool(self, number: int, pools: Sequence[str]) -> str:
        """The pool that the n-th loss takes, of those that are there."""
        return sorted(pools)[int(self._draw(f"lost pool {number}") * len(pools))]

    def _refuses(self, usual: float, item: InstanceType, what: str, now: float) -> bool:
        world = self.world
        lost = now - self._lost_at.get(item.name, -world.after_loss_s) < world.after_loss_s
        chance = max(usual, world.refused_after_loss) if lost else usual
        return chance > 0.0 and self._draw(f"{what} {int((now - self._start_at) // ANSWER_S)}") < chance

    def _draw(self, key: str) -> float:
        """Evenly in [0, 1)."""
        digest = hashlib.sha256(f"{self._seed} {key}".encode()).digest()
        return int.from_bytes(digest[:6], "little") / 2**48
