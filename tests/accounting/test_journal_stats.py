"""What a journal tells of a period, from ticks written by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.journal_stats import (
    MOST_INTERVALS,
    AccuracyInterval,
    CountedEvents,
    accuracy_over_load,
    journal_demand,
    journal_facts,
)
from mark.controller.journal import Header, Tick, entry_line, header_line, read_journal
from mark.controller.state import Decision, Observation, State
from mark.domain.demand import Demand, DemandUnit, point_forecast
from mark.domain.fleet.instances import FleetView, InstanceState
from mark.domain.fleet.orders import Drain, ForecastFailed, Launch, LaunchRefused, Order, RefusalCause, SpotWarned
from mark.domain.load.announced_events import AnnouncedEvent, Events
from mark.domain.models.variants import ServedAccuracy
from mark.domain.plan import Excuse
from tests.controller.builders import LARGE, POLICY, SMALL, instances, plan

HISTORY = Demand(end_at=0.0, mean_rps=(7.0, 8.0), max_rps=(9.0, 9.0))
HEADER = Header(policy=POLICY, catalogue="c", seed=0, history=HISTORY, forecaster="steady")


def tick(
    minute: int, *, load: float, predicted: float | None = None, orders: tuple[Order, ...] = (), **seen: object
) -> Tick:
    """The tick at a minute's end, which saw `load` in it and forecasts `predicted` for all that comes."""
    unit = DemandUnit(start_at=60.0 * (minute - 1), count=round(load * 60), mean_rps=load, max_rps=2 * load)
    expected = None
    if predicted is not None:
        expected = replace(
            point_forecast(60.0 * minute, mean_rps=(predicted,) * 60, max_rps=(predicted,) * 60, source="steady"),
            unit_s=60.0,
        )
    fields = {"fleet": FleetView(instances=instances(2)), **seen}
    return Tick(
        seen=Observation(now=60.0 * minute, demand=unit, forecast=expected, **fields),  # type: ignore[arg-type]
        orders=orders,
        notes=(),
    )


def test_forecasts_are_scored_by_what_came_one_lead_later() -> None:
    ticks = [tick(minute, load=10.0 + minute, predicted=30.0) for minute in range(1, 21)]
    facts = journal_facts([(HEADER, ticks)], 0.0, 1e9)

    lead = POLICY.lead_units
    scored = range(lead + 2, 21)  # minute 1's forecast speaks of the minute that starts `lead` after it
    came = [2 * (10.0 + minute) for minute in scored]
    assert facts.scored == len(came)
    assert facts.came_rps == pytest.approx(sum(came))
    assert facts.error_rps == pytest.approx(sum(abs(rate - 30.0) for rate in came))
    assert facts.naive_error_rps == pytest.approx(len(came) * 2 * (lead + 1))
    assert facts.forecaster == "steady"


def test_what_the_last_forecast_lacked_is_told_until_one_lacks_nothing() -> None:
    whole, blind = (tick(minute, load=1.0, predicted=1.0) for minute in (1, 2))
    assert blind.seen.forecast is not None
    lacking = replace(blind.seen.forecast, degraded="under a day of history")
    blind = replace(blind, seen=replace(blind.seen, forecast=lacking))

    assert journal_facts([(HEADER, [whole, blind])], 0.0, 1e9).degraded == "under a day of history"
    assert journal_facts([(HEADER, [blind, whole])], 0.0, 1e9).degraded is None


def test_the_largest_orders_come_with_what_they_cost_an_hour() -> None:
    launches = [
        Launch(token=f"t{count}", reason=f"because {count}", offering=LARGE.name, count=count)
        for count in (1, 5, 3)
    ]
    drain = Drain(token="d", reason="not wanted", instances=("i-0001", "i-0002"))
    ticks = [
        tick(1, load=1.0, orders=tuple(launches)),
        tick(2, load=1.0, orders=(drain,)),
        tick(99, load=1.0, orders=(replace(launches[1], count=50),)),
    ]
    facts = journal_facts([(HEADER, ticks)], 0.0, 600.0)

    assert [(item.order.token, item.usd_per_hour) for item in facts.largest[:2]] == [("t5", 5.0), ("t3", 3.0)]
    assert [item.usd_per_hour for item in facts.largest] == sorted(
        (item.usd_per_hour for item in facts.largest), key=abs, reverse=True
    )
    assert len(facts.largest) == 3
    assert facts.launched == 9
    (only,) = journal_facts([(HEADER, ticks[1:2])], 0.0, 600.0).largest
    assert only.usd_per_hour == -2 * SMALL.usd_per_hour


def test_what_happened_is_counted_in_the_period_alone() -> None:
    warned = SpotWarned(instance="i-1", at=0.0, terminates_at=120.0)
    refused = LaunchRefused(token="t", offering="small", count=4, cause=RefusalCause.CAPACITY, at=0.0)
    failed = ForecastFailed(forecaster="f", error="e", at=0.0)
    ticks = [tick(minute, load=1.0, facts=(warned, refused, failed)) for minute in (1, 2, 3)]
    facts = journal_facts([(HEADER, ticks[:2]), (HEADER, ticks[2:])], 100.0, 180.0)

    assert (len(facts.warned), facts.refused, facts.failed_forecasts) == (1, 4, 1)
    assert (facts.since, facts.until) == (120.0, 120.0)
    assert journal_facts([], 0.0, 1.0).since is None


def test_hours_of_a_fleet_that_nobody_needs_are_idle() -> None:
    busy = [tick(minute, load=15.0) for minute in range(1, 61)]
    idle = [tick(minute, load=1.9) for minute in range(61, 121)]
    asleep = [
        tick(minute, load=0.0, fleet=FleetView(instances=instances(2, state=InstanceState.STOPPED)))
        for minute in range(121, 181)
    ]
    hours = journal_facts([(HEADER, [*busy, *idle, *asleep])], 0.0, 1e9).hours

    assert [hour.is_idle for hour in hours.values()] == [False, True, False]
    assert [hour.usd for hour in hours.values()] == pytest.approx([2 * SMALL.usd_per_hour] * 2 + [0.0])


def test_offerings_that_no_plan_wanted_keep_their_excuse() -> None:
    wanted = replace(plan(small=2), excuses=(Excuse(offering=LARGE.name, reason="dearer"),))
    facts = journal_facts([(HEADER, [tick(1, load=1.0, plan=wanted)])], 0.0, 600.0)

    assert facts.planned == {SMALL.name}
    assert facts.offered == (SMALL.name, LARGE.name)
    assert facts.excuses == {LARGE.name: "dearer"}


def test_the_demand_of_all_segments_goes_on_where_the_history_ended() -> None:
    ticks = [tick(minute, load=float(minute)) for minute in (1, 2, 3)]
    demand, seen_from = journal_demand([(HEADER, ticks[:2]), (replace(HEADER, history=Demand(
        end_at=120.0, mean_rps=(9.0,) * 9, max_rps=(9.0,) * 9)), ticks[2:])])  # fmt: skip

    assert demand.mean_rps == (7.0, 8.0, 1.0, 2.0, 3.0)
    assert demand.max_rps == (9.0, 9.0, 2.0, 4.0, 6.0)
    assert demand.end_at == 180.0
    assert seen_from == 0.0


SALE = AnnouncedEvent(name="sale", at=4200.0, until=6000.0, factor=3.0)


def counted_by(last: dict[int, Events]) -> Events:
    """The events of a journal whose forecast at each of these minutes counts these."""
    ticks = [tick(minute, load=1.0, predicted=2.0) for minute in last]
    for place, events in enumerate(last.values()):
        forecast = ticks[place].seen.forecast
        assert forecast is not None
        ticks[place] = replace(
            ticks[place], seen=replace(ticks[place].seen, forecast=replace(forecast, events=events))
        )
    counted = CountedEvents()
    demand, _ = journal_demand(counted.watch([(HEADER, ticks[:1]), (HEADER, ticks[1:])]))
    assert demand.mean_rps[-1] == 1.0
    return counted.events


def test_events_that_plans_counted_are_those_of_the_journal_once_each() -> None:
    other = replace(SALE, name="other", at=4300.0)
    told: dict[int, Events] = {9: (), 20: (SALE,), 30: (SALE, other), 90: (SALE, other), 101: ()}
    assert counted_by(told) == (SALE, other)


def test_an_event_that_was_withdrawn_counts_until_then() -> None:
    assert counted_by({20: (SALE,), 30: ()}) == ()
    assert counted_by({20: (SALE,), 80: ()}) == (replace(SALE, until=4800.0),)
    assert counted_by({20: (SALE,), 80: (), 81: (), 200: ()}) == (replace(SALE, until=4800.0),)
    assert counted_by({20: (SALE,), 30: (), 40: (SALE,), 120: ()}) == (SALE,)


def test_accuracy_is_told_with_the_load_of_its_minute_and_not_at_all_without_variants() -> None:
    ticks = [tick(minute, load=10.0 * minute) for minute in range(1, 4)]
    assert accuracy_over_load(journal_facts([(HEADER, ticks)], 0.0, 1e9).accuracy) == ()

    unit = ticks[1].seen.demand
    assert unit is not None
    told = replace(unit, accuracy=ServedAccuracy(answers=1200, mean=0.75))
    ticks[1] = replace(ticks[1], seen=replace(ticks[1].seen, demand=told))
    found = accuracy_over_load(journal_facts([(HEADER, ticks)], 0.0, 1e9).accuracy)
    assert [(item.since, item.mean_rps, item.answered) for item in found] == [
        (0.0, 10.0, None),
        (60.0, 20.0, ServedAccuracy(answers=1200, mean=0.75)),
        (120.0, 30.0, None),
    ]


def test_a_journal_keeps_the_accuracy_and_one_from_before_it_has_none() -> None:
    (told,) = (tick(1, load=1.0).seen,)
    assert told.demand is not None
    told = replace(told, demand=replace(told.demand, accuracy=ServedAccuracy(answers=60, mean=0.75)))
    line = entry_line(FleetView(), told, Decision(state=State()))
    document = json.loads(line)
    del document["seen"]["demand"]["accuracy"]
    lines = [header_line(HEADER), line, json.dumps(document).encode()]
    _, ticks = read_journal(lines)
    kept = [one.seen.demand for one in ticks]
    assert [unit and unit.accuracy for unit in kept] == [told.demand.accuracy, None]


ANSWERED = st.none() | st.builds(ServedAccuracy, answers=st.integers(1, 10**5), mean=st.floats(0.0, 1.0))


@given(st.lists(ANSWERED, min_size=1, max_size=600), st.integers(0, 10**5))
def test_intervals_are_few_and_hold_all_answers_and_requests(
    answered: list[ServedAccuracy | None], first: int
) -> None:
    minutes = [
        AccuracyInterval(since=60.0 * (first + n), until=60.0 * (first + n + 1), mean_rps=float(n), answered=one)
        for n, one in enumerate(answered)
    ]
    found = accuracy_over_load(minutes)
    told = [one for one in answered if one is not None]
    assert bool(found) == bool(told)
    assert len(found) <= MOST_INTERVALS + 1
    kept = [item.answered for item in found if item.answered is not None]
    assert sum(one.answers for one in kept) == sum(one.answers for one in told)
    assert sum(one.answers * one.mean for one in kept) == pytest.approx(
        sum(one.answers * one.mean for one in told), rel=1e-6
    )
    if found:
        came = sum(item.mean_rps * (item.until - item.since) for item in found)
        assert came == pytest.approx(60.0 * sum(minute.mean_rps for minute in minutes))
