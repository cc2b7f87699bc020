"""Meter of the emulated account: what ran in it, and what AWS takes for it. It knows no service's own ledger.

It sees instances and calls as they happen. Instances are billed by the second while they run, for 60 s at least
each time they start (EC2 pricing); a spot instance at the price of each hour, and not at all if EC2 takes it back
within an hour of its launch. Lambda bills each call and its billed duration. Nothing else is metered: no disks,
addresses or bytes, and no free tier.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from mark.emulator.ec2.machine import Machine
from mark.emulator.ec2.machines import SPOT_TERMINATION

EC2, LAMBDA = "Amazon Elastic Compute Cloud - Compute", "AWS Lambda"
"""Services as Cost Explorer names them."""
REQUEST, DURATION = "Request", "Lambda-GB-Second"
"""Usage types of Lambda on x86 in us-east-1, whose usage types bear no region."""
LEAST_S, FREE_IF_TAKEN_S = 60, 3600.0
ROUNDING_S = 1e-6
"""Float noise in a duration, which is no second more."""
USD_PER_CALL, USD_PER_GIB_S = 0.20e-6, 0.0000166667
"""Lambda pricing, x86, us-east-1."""
DAY_S, HOUR_S, MIB_PER_GIB = 86_400.0, 3600.0, 1024.0

MeanPrice = Callable[[Machine, float, float], float]
"""An instance's mean price of an hour within a time, USD."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Use of one thing within a day. Instants are service time; `quantity` in hours, calls or GiB seconds."""

    service: str
    usage_type: str
    since: float
    until: float
    quantity: float
    usd: float
    tags: Mapping[str, str]


@dataclass(slots=True)
class Stretch:
    """The time from one start of an instance to its stop; no `until` while it runs."""

    machine: Machine
    since: float
    until: float | None = None
    is_free: bool = False

    def billed_s(self, now: float) -> int:
        """Whole seconds until now, 60 at least."""
        until = now if self.until is None else min(now, self.until)
        return max(LEAST_S, math.ceil(until - self.since - ROUNDING_S))


class Meter:
    """All that the account used. Calls are made on the event loop's thread."""

    def __init__(self, price: MeanPrice) -> None:
        self._price = price
        #: Of instances, those that run under their ids, and all in the order in which they began.
        self._running: dict[str, Stretch] = {}
        self.stretches: list[Stretch] = []
        self._calls: Counter[tuple[float, tuple[tuple[str, str], ...]]] = Counter()
        self._gib_s: Counter[tuple[float, tuple[tuple[str, str], ...]]] = Counter()

    def note_state(self, machine: Machine, at: float) -> None:
        """Begin or end to bill an instance whose state is another one since `at`."""
        if machine.life.billed_since is not None:
            if machine.id not in self._running:
                self.stretches.append(Stretch(machine, at))
                self._running[machine.id] = self.stretches[-1]
        elif machine.id in self._running:
            ended = self._running.pop(machine.id)
            ended.until = at
            is_taken = machine.reason_code == SPOT_TERMINATION[0]
            ended.is_free = is_taken and at < machine.launched_at + FREE_IF_TAKEN_S

    def note_call(self, tags: Mapping[str, str], memory_mb: int, billed_ms: int, at: float) -> None:
        """Count a call of a function with these tags, hour by hour."""
        key = math.floor(at / HOUR_S) * HOUR_S, tuple(sorted(tags.items()))
        self._calls[key] += 1
        self._gib_s[key] += memory_mb / MIB_PER_GIB * billed_ms / 1000  # type: ignore[assignment] # a Counter adds floats as well

    def uses(self, now: float, cuts: Iterable[float] = ()) -> Iterator[Use]:
        """All use until now, each within one day and on one side of each cut."""
        for one in self.stretches:
            until = now if one.until is None else one.since + one.billed_s(now)
            for begin, end in () if one.is_free else pairwise(_edges(one.since, until, cuts)):
                yield self._of_instance(one.machine, begin, end)
        for (hour, tags), count in self._calls.items():
            within = {"since": hour, "until": hour + HOUR_S, "service": LAMBDA, "tags": dict(tags)}
            gib_s = float(self._gib_s[hour, tags])
            yield Use(usage_type=REQUEST, quantity=count, usd=count * USD_PER_CALL, **within)  # type: ignore[arg-type]
            yield Use(usage_type=DURATION, quantity=gib_s, usd=gib_s * USD_PER_GIB_S, **within)  # type: ignore[arg-type]

    def _of_instance(self, machine: Machine, since: float, until: float) -> Use:
        hours = (until - since) / HOUR_S
        return Use(
            service=EC2,
            usage_type=f"{'Spot' if machine.is_spot else 'Box'}Usage:{machine.spec.instance_type.name}",
            since=since,
            until=until,
            quantity=hours,
            usd=hours * self._price(machine, since, until),
            tags=machine.tags,
        )


def day_of(at: float) -> str:
    """The day of an instant, UTC, as Cost Explorer writes it."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _edges(since: float, until: float, cuts: Iterable[float]) -> list[float]:
    """The ends of a time, and within it each midnight and each cut."""
    midnights = range(math.floor(since / DAY_S) + 1, math.ceil(until / DAY_S))
    within = {*(day * DAY_S for day in midnights), *(cut for cut in cuts if since < cut < until)}
    return [since, *sorted(within), until]
