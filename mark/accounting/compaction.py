"""A ledger that stays small: what ended long ago is folded into hours. Pure.

A service that lives for years rents and ends many thousands of instances, and each leaves some transitions. Bills
ask for them at few instants: now, and the ends of days and hours. So what had ended before `folded_to`, which is
the end of an hour some days ago, is kept as what it was billed for by each hour's end less what it had been by its
start. The hours' sums are whole seconds, minimum charges and rounding included: at every hour's end a bill is the
same as before, to the second. Within an hour that was folded it grows evenly; the first begins with the ledger.

An instance that is there is folded as far as its last stop: from there on its transitions are kept. So a standby
that was woken each day for a year has as many as one of yesterday. Hours of long ago become days, days of long ago
one row: a ledger has a bound (`docs/live.md`). Versions are told apart by the hour, and no more in days.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mark.accounting.ledger import BilledAs, billing_order, in_order, joined, stretches_of, usage_before, usages_of
from mark.catalog.billing import billed_s
from mark.domain.billing.costs import BilledTime, FleetUsage, InstanceUsage, LedgerRecord, Transition, UsageRollup

HOUR_S, DAY_S = 3600.0, 86400.0
KEEP_RAW_S = 2 * DAY_S
"""For how long transitions of what has ended are kept one by one; later messages are not noted."""
KEEP_HOURS_S = 40 * DAY_S
"""For how long hours are kept, as long as hourly tallies are."""
KEEP_DAYS_S = 400 * DAY_S
"""For how long days are; what is older is one row."""


def folding_end(now: float) -> float:
    """The end of the last hour that is folded at `now`."""
    return math.floor((now - KEEP_RAW_S) / HOUR_S) * HOUR_S


def foldable(transitions: Iterable[Transition], end: float) -> int:
    """The number of transitions that `compacted` would take out."""
    return sum(len(folded) for folded, _ in _split(transitions, end))


def compacted(record: LedgerRecord, end: float) -> LedgerRecord:
    """The record with all that ended before `end` (an hour's) as rollups. Every bill at an hour's end stays."""
    hours: defaultdict[float, _Sum] = defaultdict(_Sum)
    kept: list[Transition] = []
    for folded, rest in _split(record.transitions, end):
        kept += rest
        if folded:
            _add(hours, folded)
    instants = (*(one.at for one in record.transitions), *(one.since for one in record.rollups))
    began_at = min(instants, default=end)  # a report from there on holds all of the first hour
    fresh = (_rollup(max(began_at, at - HOUR_S), at, found) for at, found in sorted(hours.items()))
    order = {id(item): number for number, item in enumerate(record.transitions)}
    return LedgerRecord(
        transitions=tuple(sorted(kept, key=lambda item: order[id(item)])),
        rollups=coarsened((*record.rollups, *fresh), end),
        folded_to=max(record.folded_to, end),
    )


def coarsened(rollups: Sequence[UsageRollup], now: float) -> tuple[UsageRollup, ...]:
    """The same in fewer: hours of long ago as days, days of long ago as one."""
    groups: defaultdict[tuple[float, float], list[UsageRollup]] = defaultdict(list)
    oldest = min((item.since for item in rollups), default=0.0)
    for item in rollups:
        groups[_span(item, now, oldest)].append(item)
    return tuple(_merged(span, items) for span, items in sorted(groups.items()))


def rolled_up(rollups: Sequence[UsageRollup], at: float) -> FleetUsage:
    """Usage of `rollups` by `at`: a stretch for each role, offering, price and version, as long as was billed."""
    billed: Counter[BilledAs] = Counter()
    surplus_vcpu_s: defaultdict[BilledAs, float] = defaultdict(float)
    asleep_s = running_s = 0.0
    for item in rollups:
        share = min(1.0, max(0.0, (at - item.since) / (item.until - item.since)))
        for line in item.billed:
            billed_as = (line.role, line.offering, line.usd_per_hour, line.version)
            billed[billed_as] += math.floor(share * line.billed_s)
            surplus_vcpu_s[billed_as] += share * line.surplus_vcpu_s
        asleep_s += share * item.asleep_s
        running_s += share * item.running_s
    return FleetUsage(usages=usages_of(billed, surplus_vcpu_s), asleep_s=asleep_s, running_s=running_s)


def usage_of(record: LedgerRecord, at: float) -> FleetUsage:
    """Usage by `at` of what had happened before, rollups included."""
    return joined(usage_before(record.transitions, at), rolled_up(record.rollups, at))


@dataclass(slots=True)
class _Sum:
    """The usage that one hour adds."""

    billed: Counter[BilledAs] = field(default_factory=Counter)
    surplus_vcpu_s: defaultdict[BilledAs, float] = field(default_factory=lambda: defaultdict(float))
    asleep_s: float = 0.0
    running_s: float = 0.0


def _split(transitions: Iterable[Transition], end: float) -> Iterator[tuple[list[Transition], list[Transition]]]:
    """Of each instance what is folded, in order, and what is kept.

    The stop at which one that is there is cut ends what is folded and begins what is kept.
    """
    by_instance: defaultdict[str, list[Transition]] = defaultdict(list)
    for item in transitions:
        by_instance[item.instance].append(item)
    for items in by_instance.values():
        ordered = in_order(items)
        last = next((item for item in reversed(ordered) if not item.is_reading), ordered[-1])
        if last.state == "terminated" and last.at < end:
            yield ordered, []
            continue
        stops = [place for place, item in enumerate(ordered) if item.state == "stopped" and item.at < end]
        cut = stops[-1] if stops else 0
        yield (ordered[: cut + 1], ordered[cut:]) if cut else ([], ordered)


def _add(hours: defaultdict[float, _Sum], folded: Sequence[Transition]) -> None:
    """One instance's part of each hour; it is over, or stops, with the last transition."""
    usages, naps = stretches_of(folded, folded[-1].at)
    for usage in usages:
        billed_as, before, used = (usage.role, usage.offering, usage.usd_per_hour, usage.version), 0, 0.0
        for item in folded:
            if item.surplus_vcpu_s is not None and usage.started_at <= item.at <= usage.ended_at:
                at = (math.floor(item.at / HOUR_S) + 1) * HOUR_S
                hours[at].surplus_vcpu_s[billed_as] += max(0.0, item.surplus_vcpu_s - used)
                used = max(used, item.surplus_vcpu_s)
        for at, seconds in _hours(usage.started_at, usage.ended_at):
            came = billed_s(_until(usage, min(at, usage.ended_at)))
            hours[at].billed[billed_as] += came - before
            hours[at].running_s += seconds
            before = came
    for start, stop in naps:
        for at, seconds in _hours(start, stop):
            hours[at].asleep_s += seconds


def _until(usage: InstanceUsage, at: float) -> InstanceUsage:
    """The stretch as it stood then."""
    return InstanceUsage(
        instance=usage.instance,
        offering=usage.offering,
        role=usage.role,
        started_at=usage.started_at,
        ended_at=at,
    )


def _hours(start: float, stop: float) -> Iterator[tuple[float, float]]:
    """Ends of the hours that a span touches, each with its seconds in it. An instant touches the hour it opens."""
    at = (math.floor(start / HOUR_S) + 1) * HOUR_S
    yield at, min(at, stop) - start
    while at < stop:
        at += HOUR_S
        yield at, min(at, stop) - (at - HOUR_S)


def _rollup(since: float, until: float, found: _Sum) -> UsageRollup:
    return UsageRollup(
        since=since,
        until=until,
        billed=tuple(
            BilledTime(
                role=role,
                offering=offering,
                usd_per_hour=usd,
                billed_s=seconds,
                surplus_vcpu_s=found.surplus_vcpu_s.get((role, offering, usd, version), 0.0),
                version=version,
            )
            for (role, offering, usd, version), seconds in sorted(
                found.billed.items(), key=lambda item: billing_order(item[0])
            )
            if seconds or found.surplus_vcpu_s.get((role, offering, usd, version))
        ),
        asleep_s=found.asleep_s,
        running_s=found.running_s,
    )


def _span(item: UsageRollup, now: float, oldest: float) -> tuple[float, float]:
    """The span that a row becomes part of."""
    last_day = math.floor((now - KEEP_DAYS_S) / DAY_S) * DAY_S
    if item.until <= last_day:
        return min(oldest, item.since), last_day
    if item.until <= math.floor((now - KEEP_HOURS_S) / DAY_S) * DAY_S:
        day = math.floor(item.since / DAY_S) * DAY_S
        return max(oldest, day), day + DAY_S
    return item.since, item.until


def _merged(span: tuple[float, float], items: Sequence[UsageRollup]) -> UsageRollup:
    if len(items) == 1 and (items[0].since, items[0].until) == span:
        return items[0]
    found = _Sum()
    for item in items:
        for line in item.billed:
            billed_as = (
                line.role,
                line.offering,
                line.usd_per_hour,
                "" if span[1] - span[0] > HOUR_S else line.version,
            )
            found.billed[billed_as] += line.billed_s
            found.surplus_vcpu_s[billed_as] += line.surplus_vcpu_s
        found.asleep_s += item.asleep_s
        found.running_s += item.running_s
    return _rollup(*span, found)
