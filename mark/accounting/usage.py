"""Incremental usage of a fleet whose ledger grows: what is over is not counted anew.

Instances that have ended for good are kept as sums, so an answer costs what is still there. The answers are those
of `usage_before`, but for the stretches that are over: they stand as one for each role, offering, price and
version, which is billed like all of them together, minimum charges and rounding included.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence

from mark.accounting.ledger import BilledAs, fleet_usage, joined, usage_before, usages_of
from mark.catalog.billing import billed_s
from mark.domain.billing.costs import FleetUsage, Transition

KEEP_PAST = 8
"""Instants whose usage is kept: the starts of days and months that a budget counts from."""


class IncrementalUsage:
    """One model's. Transitions come sorted by time, each time all of them."""

    def __init__(self) -> None:
        self._past: dict[float, tuple[int, FleetUsage]] = {}
        self._begin()

    def before(self, transitions: Sequence[Transition], at: float) -> FleetUsage:
        """Usage before `at`, the latest instant that is asked for."""
        self._learn(transitions)
        self._settle(at)
        if self._sums.last_at >= at:  # somebody asked for a later instant before
            return usage_before(transitions, at)
        there = (one for name in self._open for one in self._by_instance[name] if one.at < at)
        return joined(fleet_usage(there, at), self._sums.usage())

    def before_past(self, transitions: Sequence[Transition], at: float) -> FleetUsage:
        """Usage before an instant that is asked for again and again: only late transitions change it."""
        count = bisect_left(transitions, at, key=lambda transition: transition.at)
        if at not in self._past or self._past[at][0] != count:
            sums, usage = _Sums(), usage_before(transitions[:count], at)
            over = [item for item in usage.usages if item.ended_at < at]
            sums.add(FleetUsage(usages=tuple(over), asleep_s=0.0, running_s=0.0), last_at=at)
            there = tuple(item for item in usage.usages if item.ended_at >= at)
            found = FleetUsage(
                usages=(*sums.usage().usages, *there), asleep_s=usage.asleep_s, running_s=usage.running_s
            )
            self._past[at] = (count, found)
            while len(self._past) > KEEP_PAST:
                del self._past[next(iter(self._past))]
        return self._past[at][1]

    def _begin(self) -> None:
        self._known: tuple[Transition, ...] = ()
        self._by_instance: defaultdict[str, list[Transition]] = defaultdict(list)
        self._open: dict[str, None] = {}
        self._sums = _Sums()

    def _learn(self, transitions: Sequence[Transition]) -> None:
        """Note what is new; all of it again after a late transition of an instance that is over."""
        if transitions is self._known:
            return
        known = tuple(transitions)
        new = known[len(self._known) :]
        if known[: len(self._known)] != self._known or any(
            one.instance in self._by_instance and one.instance not in self._open for one in new
        ):
            self._begin()
            new = known
        for one in new:
            self._by_instance[one.instance].append(one)
            self._open[one.instance] = None
        self._known = known

    def _settle(self, at: float) -> None:
        """Keep as sums what is over before `at`."""
        for name in [name for name in self._open if self._is_over(name, at)]:
            history = self._by_instance[name]
            self._sums.add(fleet_usage(history, history[-1].at), last_at=history[-1].at)
            history.clear()
            del self._open[name]

    def _is_over(self, name: str, at: float) -> bool:
        last = self._by_instance[name][-1]
        return last.state == "terminated" and last.at < at


class _Sums:
    """Usage of instances that are over: billed seconds and surplus by what is billed alike, and disks."""

    def __init__(self) -> None:
        self.last_at = float("-inf")
        self._billed_s: Counter[BilledAs] = Counter()
        self._surplus_vcpu_s: defaultdict[BilledAs, float] = defaultdict(float)
        self._asleep_s = self._running_s = 0.0

    def add(self, usage: FleetUsage, *, last_at: float) -> None:
        """These are over, by `last_at`."""
        self.last_at = max(self.last_at, last_at)
        self._asleep_s += usage.asleep_s
        self._running_s += usage.running_s
        for item in usage.usages:
            billed_as = (item.role, item.offering, item.usd_per_hour, item.version)
            self._billed_s[billed_as] += billed_s(item)
            self._surplus_vcpu_s[billed_as] += item.surplus_vcpu_s

    def usage(self) -> FleetUsage:
        """All of them."""
        usages = usages_of(self._billed_s, self._surplus_vcpu_s)
        return FleetUsage(usages=usages, asleep_s=self._asleep_s, running_s=self._running_s)
