"""The service's clock: the wall's, or one that moves faster, or stands still until the load comes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockAnchor:
    """At `wall_at` (epoch seconds) the service's clock shows `service_at`.

    From then on it moves `speed` times as fast as the wall, 0 to stand still, until `until_wall`; afterwards as
    fast as the wall. The default anchor is the wall's own clock. Ticks, boots, notices, billing and forecasts
    follow it; service times, objectives and deadlines never do.
    """

    wall_at: float = 0.0
    service_at: float = 0.0
    speed: float = 1.0
    until_wall: float = math.inf

    def service_time(self, wall: float) -> float:
        """The reading of the service's clock at `wall`, service time."""
        fast_s = max(0.0, min(wall, self.until_wall) - self.wall_at)
        plain_s = max(0.0, wall - max(self.until_wall, self.wall_at))
        return self.service_at + fast_s * self.speed + plain_s

    def wall_time(self, service: float) -> float:
        """The wall time at which the service's clock shows `service`; infinite while it stands still."""
        ahead_s = service - self.service_at
        if ahead_s <= 0:
            return self.wall_at
        fast_s = max(0.0, self.until_wall - self.wall_at)
        if ahead_s <= fast_s * self.speed:
            return self.wall_at + ahead_s / self.speed
        if math.isinf(self.until_wall):
            return math.inf
        return self.wall_at + fast_s + (ahead_s - fast_s * self.speed)

    def speed_at(self, wall: float) -> float:
        """The speed at `wall`, service seconds a wall second."""
        return self.speed if wall < self.until_wall else 1.0

    def wall_between(self, start: float, end: float) -> float:
        """Wall seconds that it moved to get from one of its instants to another, neither before `service_at`."""
        fast_s = max(0.0, self.until_wall - self.wall_at)
        fast_until = self.service_at + (fast_s * self.speed if self.speed else 0.0)
        fast = max(0.0, min(end, fast_until) - start)
        return (fast / self.speed if fast else 0.0) + max(0.0, end - max(start, fast_until))


def mean_speed(anchors: Sequence[ClockAnchor], start: float, end: float) -> float:
    """The mean speed of a clock from `start` to `end`, as a multiple of the wall's; standing still is left out.

    anchors: all that it had, oldest first; before the first one it was the wall's. What came in between, counted
    so many times, is what came at real rates: also where the clock changed its speed on the way.
    """
    wall_s, left_until = 0.0, end
    for anchor in reversed(anchors):
        since = max(start, anchor.service_at)
        if since < left_until:
            wall_s += anchor.wall_between(since, left_until)
            left_until = since
    return (end - start) / (wall_s + left_until - start)
