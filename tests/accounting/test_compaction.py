"""A ledger that was compacted, once or again and again, bills what it billed before."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.accounting.compaction import (
    DAY_S,
    HOUR_S,
    KEEP_DAYS_S,
    KEEP_HOURS_S,
    KEEP_RAW_S,
    compacted,
    foldable,
    folding_end,
    rolled_up,
)
from mark.accounting.daily_costs import model_bill, model_days
from mark.accounting.hourly_totals import first_mark
from mark.accounting.ledger import running_now, usage_before
from mark.accounting.model_ledger import ModelLedger
from mark.domain.billing.costs import Ec2State, LedgerRecord, Transition
from mark.domain.fleet.instances import Role
from tests.accounting.test_daily_costs import LARGE, SERVED, SMALL
from tests.footprints import FOOTPRINT

BEGAN = 20_000 * DAY_S
SURPLUS = "surplus"
STATES: tuple[Ec2State, ...] = ("pending", "running", "stopping", "stopped", "shutting-down", "terminated")
LIFE: tuple[Ec2State, ...] = ("pending", "running", "shutting-down", "terminated")
NAP: tuple[Ec2State, ...] = ("pending", "running", "stopping", "stopped")
WITHOUT_LAMBDA = replace(SERVED, overflow=None)


def transition(instance: int, state: Ec2State, at: float) -> Transition:
    return Transition(
        instance=f"i-{instance}",
        model="m",
        offering=(SMALL if instance % 2 else LARGE).name,
        role=Role.STANDBY if instance % 3 == 0 else Role.SERVING,
        state=state,
        at=at,
        usd_per_hour=0.7 if instance == 4 else None,
    )


def told_of(instance: int, what: str, at: float) -> Transition:
    """A transition, or a reading of its surplus credits."""
    if what != SURPLUS:
        return transition(instance, what, at)  # type: ignore[arg-type]
    return replace(transition(instance, "running", at), surplus_vcpu_s=7.0 * (at - BEGAN) % 5000.0)


def record_of(told: list[tuple[int, str, float]]) -> LedgerRecord:
    items = [told_of(*one) for one in told]
    return LedgerRecord(transitions=tuple(sorted(items, key=lambda item: item.at)))


def ledger(record: LedgerRecord) -> ModelLedger:
    return ModelLedger(served=WITHOUT_LAMBDA, record=record, marks=(first_mark(BEGAN),), footprint=FOOTPRINT)


def bill(record: LedgerRecord, at: float) -> dict[tuple[str, str, str], float]:
    """Quantity and USD of each line."""
    lines = [line for line in model_bill(ledger(record), at) if line.quantity > 1e-12]
    quantities = {(line.component, line.item, line.unit): line.quantity for line in lines}
    return quantities | {(line.component, line.item, "USD"): line.usd for line in lines}


INSTANTS = st.one_of(
    st.integers(0, 10 * 86_400).map(float),
    st.integers(0, 240).map(lambda hour: hour * HOUR_S),
    st.floats(0.0, 10 * DAY_S),
)
TOLD = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from((*STATES, SURPLUS)), INSTANTS.map(lambda at: BEGAN + at)),
    max_size=40,
)
HOURS = st.integers(0, 250).map(lambda hour: BEGAN + hour * HOUR_S)


@given(TOLD, st.lists(HOURS, min_size=1, max_size=4), st.lists(HOURS, min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_compacting_a_ledger_never_changes_a_bill(told: list[Any], ends: list[float], asked: list[float]) -> None:
    """States come in any order; it is compacted up to later and later hours, and asked at any hour's end.

    Asked where it begins, too: a report of all its time holds all of its first hour.
    """
    whole = record = record_of(told)
    for end in sorted(ends):
        record = compacted(record, end)
    began = [item.at for item in whole.transitions[:1]]
    for at in (*asked, *began, max(ends) + 1234.5, BEGAN + 11 * DAY_S):
        assert bill(record, at) == pytest.approx(bill(whole, at), rel=1e-9, abs=1e-9)
    now = BEGAN + 11 * DAY_S
    running, before = (running_now(usage_before(one.transitions, now), now) for one in (record, whole))
    assert [(item.instance, item.started_at) for item in running] == [
        (item.instance, item.started_at) for item in before
    ]


@given(TOLD, HOURS)
def test_the_days_of_a_report_stay(told: list[Any], end: float) -> None:
    def days(record: LedgerRecord) -> dict[tuple[object, str, str], float]:
        found = model_days(ledger(record), BEGAN, BEGAN + 11 * DAY_S)
        return {
            (item.day, item.line.component, item.line.item): item.line.usd
            for item in found
            if item.line.usd > 1e-9
        }

    whole = record_of(told)
    assert days(compacted(whole, end)) == pytest.approx(days(whole), abs=1e-9)


@given(TOLD, HOURS, st.lists(INSTANTS, min_size=2, max_size=5))
def test_within_an_hour_that_was_folded_it_grows(told: list[Any], end: float, asked: list[float]) -> None:
    record = compacted(record_of(told), end)
    bills = [sum(line.usd for line in model_bill(ledger(record), BEGAN + at)) for at in sorted(asked)]
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(bills))


def test_a_life_of_more_than_a_year_has_a_bound() -> None:
    """Instances come and go all day, and a standby is woken once a day."""
    record, days = LedgerRecord(transitions=()), 460
    rows: list[int] = []
    for day in range(days):
        at = BEGAN + day * DAY_S
        told = [
            replace(
                transition(n, state, at + HOUR_S * hour + 300.0 * n + 50.0 * place), instance=f"i-{day}-{hour}-{n}"
            )
            for hour in (0, 12)
            for n in (1, 2)
            for place, state in enumerate(LIFE)
        ]
        told += [transition(999, state, at + 7200.0 + 60.0 * place) for place, state in enumerate(NAP)]
        told.sort(key=lambda item: item.at)
        record = compacted(replace(record, transitions=(*record.transitions, *told)), folding_end(at + DAY_S))
        rows.append(len(record.rollups))
    assert len(record.transitions) <= 20 * (KEEP_RAW_S / DAY_S + 1)
    assert max(rows) <= KEEP_HOURS_S / HOUR_S + (KEEP_DAYS_S - KEEP_HOURS_S) / DAY_S + 26
    assert rows[-1] == rows[-2]
    billed = sum(line.billed_s for item in record.rollups for line in item.billed)
    kept = usage_before(record.transitions, BEGAN + days * DAY_S).usages
    billed += sum(max(60, math.ceil(item.ended_at - item.started_at)) for item in kept)
    assert billed == days * (4 * 60 + 60)  # each ran for less than a minute, or for one


def test_what_is_there_is_kept_from_its_last_stop_on() -> None:
    record = record_of(
        [
            (3, state, BEGAN + 7200.0 * turn + 600.0 * place)
            for turn in range(20)
            for place, state in enumerate(NAP)
        ]
    )
    end = BEGAN + 30 * HOUR_S
    after = compacted(record, end)
    stops = [item for item in record.transitions if item.state == "stopped" and item.at < end]
    assert after.transitions[0] == stops[-1]
    assert after.transitions == tuple(item for item in record.transitions if item.at >= stops[-1].at)
    assert foldable(after.transitions, end) == 0
    assert compacted(after, end).transitions == after.transitions


def test_nothing_is_folded_that_may_still_be_told_of() -> None:
    now = BEGAN + 10 * DAY_S + 1800.0
    assert folding_end(now) == BEGAN + 8 * DAY_S
    young = record_of([(1, "running", now - DAY_S), (1, "terminated", now - DAY_S / 2)])
    assert compacted(young, folding_end(now)).transitions == young.transitions
    assert rolled_up((), now).usages == ()
