"""The wall's time as a service keeps it: read once, then counted by a clock that is never set.

A service's clock is an anchor on the wall's time (`mark.domain.clock`). If that were the system's clock,
setting it back an hour would stop ticks for an hour, and setting it forward would bill one. So each host reads
its system clock once, when the first process of the service begins on it, and counts on from there by its
monotonic clock, which all processes of a host share and nobody sets. What was read lies in the store under the
host's boot (`mark.store.hosts`), so that processes which begin later count from the same instant.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyWall:
    """Epoch seconds that never jump. `wall` and `monotonic` are the two clocks it is made of."""

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self.offset_s = wall() - monotonic()

    def now(self) -> float:
        """Epoch seconds."""
        return self._monotonic() + self.offset_s

    def adopt(self, offset_s: float) -> None:
        """Count as another process of this host does: `offset_s` is what the monotonic clock lacks to the time."""
        self.offset_s = offset_s

    def reset(self) -> None:
        """Read the system's clock anew: a service begins."""
        self.offset_s = self._wall() - self._monotonic()

    def jumped_s(self) -> float:
        """Lead of the system's clock over this one, seconds: about 0 until it is set."""
        return self._wall() - self.now()


WALL = SteadyWall()
"""This process's: there is one, as there is one system clock."""


def steady_time() -> float:
    """Epoch seconds that never jump, in place of `time.time()` for whatever follows a service's clock."""
    return WALL.now()
