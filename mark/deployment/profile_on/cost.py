"""Cost of `mark profile --on`: an estimate before, and a meter while it works. Pure; instants are given."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

SECONDS_PER_HOUR = 3600.0
BOOT_S = 300.0
"""From launch to serving at the slow end (MArk's launch times: median 150 s, p95 270 s)."""
LEAST_S = 60.0
"""EC2 bills a minute at least."""
LAMBDA_CALLS_PER_S = 10.0
"""Calls that an estimate reckons with, one after another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Price of a type while it is measured, USD an hour; an instance also while it boots."""

    name: str
    usd_per_hour: float
    boots: bool = True

    def usd_for(self, seconds: float) -> float:
        """Bill for so many seconds."""
        billed_s = max(LEAST_S, math.ceil(seconds)) if self.boots else seconds
        return billed_s / SECONDS_PER_HOUR * self.usd_per_hour

    def estimate_usd(self, measure_s: float) -> float:
        """Estimated cost of measuring for so long, a slow boot included."""
        return self.usd_for(measure_s + (BOOT_S if self.boots else 0.0))


@dataclass(slots=True)
class Meter:
    """Spend against `max_usd`. One type is measured at a time."""

    max_usd: float
    done: dict[str, float] = field(default_factory=dict)
    _running: tuple[Price, float] | None = None

    def start(self, price: Price, at: float) -> None:
        """Begin to pay for it."""
        self._running = (price, at)

    def stop(self, at: float) -> float:
        """End paying for it; USD that it cost."""
        assert self._running is not None
        price, since = self._running
        self.done[price.name] = price.usd_for(at - since)
        self._running = None
        return self.done[price.name]

    def spent_usd(self, at: float) -> float:
        """All of it until `at`."""
        usd = sum(self.done.values())
        if self._running is None:
            return usd
        price, since = self._running
        return usd + price.usd_for(at - since)

    def affords(self, price: Price, measure_s: float) -> bool:
        """True where another type can be measured within the limit."""
        return sum(self.done.values()) + price.estimate_usd(measure_s) <= self.max_usd

    def lasts_s(self, price: Price) -> float:
        """Seconds that this type can run before the limit is reached."""
        return max(0.0, self.max_usd - sum(self.done.values())) / price.usd_per_hour * SECONDS_PER_HOUR
