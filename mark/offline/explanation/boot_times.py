"""Times of launches and wakes by a journal, beside what plans assume of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, TypedDict

import numpy as np

from mark.controller.journal import Tick
from mark.controller.policy import ControllerPolicy
from mark.domain.fleet.instances import InstanceState
from mark.domain.fleet.orders import StartStandby

Way = Literal["launch", "wake"]


class BootTimesDocument(TypedDict):
    """Times of one offering until its instances serve, s: from the launch, or from the order to wake."""

    offering: str
    way: Way
    count: int
    median_s: float
    p95_s: float
    #: What plans assume: the median of launches, the mean of wakes; None where they know no such offering.
    assumed_s: float | None


@dataclass(slots=True)
class BootTimes:
    """Times of instances that became ready between two ticks, taken as halfway between them."""

    #: Seconds, by offering and way.
    found: dict[tuple[str, Way], list[float]] = field(default_factory=dict)
    _begun: dict[str, tuple[Way, float]] = field(default_factory=dict)
    _last_at: float | None = None

    def note(self, tick: Tick) -> None:
        """Take what a tick saw and ordered; ticks come in their order."""
        now = tick.seen.now
        ready_at = now if self._last_at is None else (self._last_at + now) / 2
        for one in tick.seen.fleet:
            if one.state is InstanceState.PENDING:
                self._begun.setdefault(one.id, ("launch", one.launched_at))
            elif one.state is InstanceState.READY and one.id in self._begun:
                way, began_at = self._begun.pop(one.id)
                self.found.setdefault((one.offering, way), []).append(ready_at - began_at)
        woken = (name for order in tick.orders if isinstance(order, StartStandby) for name in order.instances)
        self._begun.update(dict.fromkeys(woken, ("wake", now)))
        self._last_at = now

    def documents(self, policy: ControllerPolicy) -> list[BootTimesDocument]:
        """Measured times beside those that this policy's plans assume, by offering."""
        assumed: dict[tuple[str, Way], float] = {(one.name, "launch"): one.boot_s for one in policy.offerings}
        if policy.standby is not None:
            assumed[policy.standby.offering.name, "wake"] = policy.standby.wake_s
        return [
            {
                "offering": offering,
                "way": way,
                "count": len(found),
                "median_s": median(found),
                "p95_s": float(np.percentile(found, 95)),
                "assumed_s": assumed.get((offering, way)),
            }
            for (offering, way), found in sorted(self.found.items())
        ]


def boot_lines(documents: Sequence[BootTimesDocument]) -> Iterator[str]:
    """Each in words."""
    for one in documents:
        mean = " in the mean" if one["way"] == "wake" else ""
        assumed = "" if one["assumed_s"] is None else f"; plans assume {one['assumed_s']:.0f} s{mean}"
        times = f"{one['median_s']:.0f} s at the median, {one['p95_s']:.0f} s at the 95 % point of {one['count']}"
        yield f"{one['way']} of {one['offering']} until ready: {times}{assumed}"
