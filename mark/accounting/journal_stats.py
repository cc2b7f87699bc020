"""Statistics of a journal's period: interruptions, refusals, forecast errors, large orders, idle hours.

One pass over the ticks, oldest first. Pure; a journal may be longer than memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from mark.controller.journal import Header, Tick
from mark.controller.policy import ControllerPolicy
from mark.domain.demand import UNIT_S, Demand, Forecast
from mark.domain.fleet.instances import InstanceState
from mark.domain.fleet.orders import (
    Drain,
    ForecastFailed,
    Launch,
    LaunchRefused,
    Order,
    SpotWarned,
    StartStandby,
    StopStandby,
    Terminate,
    WarmLambda,
    Withdraw,
)
from mark.domain.load.announced_events import AnnouncedEvent, Events
from mark.domain.models.variants import AccuracyTotal, ServedAccuracy
from mark.domain.offerings.offering import Offering

HOUR_S = 3600.0
IDLE_SHARE = 0.1
"""An hour in which less of the ready capacity than this was asked for counts as idle."""
LARGEST = 3
INTERVALS_S = (60.0, 300.0, 900.0, 1800.0, HOUR_S, 3 * HOUR_S, 6 * HOUR_S, 24 * HOUR_S)
MOST_INTERVALS = 200
"""Of a period's load and accuracy: more could not be told apart in a plot."""
BILLED = (InstanceState.PENDING, InstanceState.READY, InstanceState.DRAINING)

Segment = tuple[Header, Iterable[Tick]]
"""A journal's header and its ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedOrder:
    """An order, and what it added to the fleet's hourly price."""

    at: float
    order: Order
    usd_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HourUse:
    """One hour: requests/s asked for and carried, added up over its minutes, and the fleet's mean hourly price."""

    minutes: int = 0
    asked_rps: float = 0.0
    carried_rps: float = 0.0
    usd: float = 0.0

    @property
    def is_idle(self) -> bool:
        """True where nearly all of what was ready did nothing."""
        return self.carried_rps > 0 and self.asked_rps < IDLE_SHARE * self.carried_rps


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyInterval:
    """Load in `[since, until)`, and what variants answered since the interval before (None: nothing)."""

    since: float
    until: float
    mean_rps: float
    answered: ServedAccuracy | None


@dataclass(slots=True)
class JournalFacts:
    """Counts and sums of a period. since, until: its first and last tick; `_rps`: sums over the minutes scored."""

    since: float | None = None
    until: float | None = None
    policy: str = ""
    forecaster: str = ""
    degraded: str | None = None
    warned: set[str] = field(default_factory=set)
    refused: int = 0
    launched: int = 0
    failed_forecasts: int = 0
    scored: int = 0
    came_rps: float = 0.0
    error_rps: float = 0.0
    naive_error_rps: float = 0.0
    largest: list[PricedOrder] = field(default_factory=list)
    hours: dict[int, HourUse] = field(default_factory=dict)
    planned: set[str] = field(default_factory=set)
    offered: tuple[str, ...] = ()
    excuses: dict[str, str] = field(default_factory=dict)
    #: One a minute, oldest first; without a single answer of a variant where the model has none.
    accuracy: list[AccuracyInterval] = field(default_factory=list)


def journal_facts(segments: Iterable[Segment], since: float, until: float) -> JournalFacts:
    """All that ticks in `[since, until)` tell."""
    facts = JournalFacts()
    foretold: dict[int, tuple[float, float]] = {}
    for header, ticks in segments:
        policy = header.policy
        offerings = _offerings(policy)
        facts.policy, facts.forecaster = policy.name, facts.forecaster or header.forecaster
        facts.offered = tuple(offering.name for offering in policy.offerings)
        for tick in ticks:
            if not since <= tick.seen.now < until:
                continue
            facts.since = tick.seen.now if facts.since is None else facts.since
            facts.until = tick.seen.now
            _happened(facts, tick)
            _score(facts, tick, foretold, policy.lead_units)
            _ordered(facts, tick, offerings)
            _used(facts, tick, offerings)
    return facts


def accuracy_over_load(minutes: Sequence[AccuracyInterval]) -> tuple[AccuracyInterval, ...]:
    """The same in at most MOST_INTERVALS intervals of equal length; none where no variant answered."""
    if not any(minute.answered for minute in minutes):
        return ()
    span_s = minutes[-1].until - minutes[0].since
    fine = [size for size in INTERVALS_S if span_s / size < MOST_INTERVALS]
    size_s = fine[0] if fine else INTERVALS_S[-1]
    grouped: defaultdict[int, list[AccuracyInterval]] = defaultdict(list)
    for minute in minutes:
        grouped[int(minute.since // size_s)].append(minute)
    return tuple(_joined(grouped[number]) for number in sorted(grouped))


def _joined(minutes: Sequence[AccuracyInterval]) -> AccuracyInterval:
    total = AccuracyTotal()
    for minute in minutes:
        total = total if minute.answered is None else total.with_answers(minute.answered)
    return AccuracyInterval(
        since=minutes[0].since,
        until=minutes[-1].until,
        mean_rps=sum(minute.mean_rps for minute in minutes) / len(minutes),
        answered=total.since(AccuracyTotal()),
    )


def journal_demand(segments: Iterable[Segment]) -> tuple[Demand, float]:
    """All demand that a journal knows, and from when on it was really seen; before that it is what was assumed."""
    means: list[float] = []
    peaks: list[float] = []
    end_at, seen_from, opened = 0.0, 0.0, False
    for header, ticks in segments:
        if not opened:
            history, checkpoint = header.history, header.checkpoint
            means, peaks, end_at = list(history.mean_rps), list(history.max_rps), history.end_at
            seen_from, opened = checkpoint.first_at if checkpoint else end_at, True
        for tick in ticks:
            unit = tick.seen.demand
            if unit is not None:
                means.append(unit.mean_rps)
                peaks.append(unit.max_rps)
                end_at = unit.start_at + UNIT_S
    demand = Demand(end_at=end_at, mean_rps=tuple(means), max_rps=tuple(peaks))
    return demand, max(seen_from, end_at - len(demand) * demand.unit_s)


class CountedEvents:
    """Announced events that a journal's plans counted, as they pass by.

    One that a later forecast of its time lacks was withdrawn: it stood until that forecast, or never where it had
    not begun.
    """

    def __init__(self) -> None:
        self._found: dict[AnnouncedEvent, AnnouncedEvent] = {}

    @property
    def events(self) -> Events:
        """Those of the ticks so far, in the order in which they begin."""
        return tuple(sorted(self._found.values(), key=lambda event: (event.at, event.name, event.until)))

    def watch(self, segments: Iterable[Segment]) -> Iterator[Segment]:
        """The same segments; what their ticks counted is known once those were read."""
        for header, ticks in segments:
            yield header, self._watched(ticks)

    def _watched(self, ticks: Iterable[Tick]) -> Iterator[Tick]:
        for tick in ticks:
            if tick.seen.forecast is not None:
                self._add(tick.seen.forecast)
            yield tick

    def _add(self, forecast: Forecast) -> None:
        end_at = forecast.start_at + len(forecast) * forecast.unit_s
        for event, known in list(self._found.items()):
            if event in forecast.events or not known.touches(forecast.start_at, end_at):
                continue
            del self._found[event]
            if forecast.start_at > event.at:
                self._found[event] = replace(event, until=forecast.start_at)
        self._found |= {event: event for event in forecast.events}


def _offerings(policy: ControllerPolicy) -> dict[str, Offering]:
    known = [*policy.offerings, *policy.fallbacks, *((policy.standby.offering,) if policy.standby else ())]
    return {offering.name: offering for offering in known}


def _happened(facts: JournalFacts, tick: Tick) -> None:
    for fact in tick.seen.facts:
        if isinstance(fact, SpotWarned):
            facts.warned.add(fact.instance)
        elif isinstance(fact, LaunchRefused):
            facts.refused += fact.count
        elif isinstance(fact, ForecastFailed):
            facts.failed_forecasts += 1
    plan = tick.seen.plan
    if plan is not None:
        facts.planned |= {item.offering for item in plan.counts}
        facts.excuses = {excuse.offering: excuse.reason for excuse in plan.excuses}


def _score(facts: JournalFacts, tick: Tick, foretold: dict[int, tuple[float, float]], lead: int) -> None:
    """Each minute is scored by the first forecast that was made one lead before it."""
    unit, forecast = tick.seen.demand, tick.seen.forecast
    if unit is not None:
        predicted = foretold.pop(round(unit.start_at), None)
        if predicted is not None:
            facts.scored += 1
            facts.came_rps += unit.max_rps
            facts.error_rps += abs(unit.max_rps - predicted[0])
            facts.naive_error_rps += abs(unit.max_rps - predicted[1])
    if forecast is None or unit is None or len(forecast) == 0:
        return
    facts.forecaster, facts.degraded = forecast.source or facts.forecaster, forecast.degraded
    step = min(lead, len(forecast) - 1)
    at = round(forecast.start_at + step * forecast.unit_s)
    foretold.setdefault(at, (forecast.max_at(0.5)[step], unit.max_rps))


def _ordered(facts: JournalFacts, tick: Tick, offerings: dict[str, Offering]) -> None:
    prices = {name: offering.usd_per_hour for name, offering in offerings.items()}
    of = {instance.id: prices.get(instance.offering, 0.0) for instance in tick.seen.fleet}
    for order in tick.orders:
        match order:
            case Launch():
                usd = order.count * prices.get(order.offering, 0.0)
                facts.launched += order.count
            case StartStandby():
                usd = sum(of.get(name, 0.0) for name in order.instances)
            case Drain() | Terminate() | StopStandby():
                usd = -sum(of.get(name, 0.0) for name in order.instances)
            case WarmLambda() | Withdraw():
                continue
            case _:
                assert_never(order)
        facts.largest.append(PricedOrder(at=tick.seen.now, order=order, usd_per_hour=usd))
    if len(facts.largest) > LARGEST:
        facts.largest.sort(key=lambda item: (-abs(item.usd_per_hour), item.at))
        del facts.largest[LARGEST:]


def _used(facts: JournalFacts, tick: Tick, offerings: dict[str, Offering]) -> None:
    """A minute that ended, against what was ready at its end."""
    unit = tick.seen.demand
    if unit is None:
        return
    states: defaultdict[InstanceState, list[Offering]] = defaultdict(list)
    for instance in tick.seen.fleet:
        if instance.offering in offerings:
            states[instance.state].append(offerings[instance.offering])
    number = int(unit.start_at // HOUR_S)
    facts.accuracy.append(
        AccuracyInterval(
            since=unit.start_at, until=unit.start_at + UNIT_S, mean_rps=unit.mean_rps, answered=unit.accuracy
        )
    )
    old = facts.hours.get(number, HourUse())
    facts.hours[number] = HourUse(
        minutes=old.minutes + 1,
        asked_rps=old.asked_rps + unit.mean_rps,
        carried_rps=old.carried_rps + sum(o.capacity_rps for o in states[InstanceState.READY]),
        usd=old.usd + sum(o.usd_per_hour for state in BILLED for o in states[state]) / 60,
    )
