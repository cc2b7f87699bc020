"""The rent of versions: all that ran is somebody's, and nothing is counted twice."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.compaction import DAY_S, KEEP_HOURS_S, compacted, usage_of
from mark.accounting.daily_costs import model_bill
from mark.accounting.hourly_totals import first_mark
from mark.accounting.model_ledger import ModelLedger
from mark.accounting.version_costs import VersionCost, version_costs
from mark.catalog.billing import cost_of
from mark.domain.billing.costs import LedgerRecord, Transition
from mark.domain.fleet.instances import Role
from tests.serving.harness import served

MODEL = served()
[OFFERED] = MODEL.offerings
OLD, NEW = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


def life(name: str, version: str, began: float, ended: float | None) -> list[Transition]:
    one = Transition(
        instance=name,
        model=MODEL.name,
        offering=OFFERED.name,
        role=Role.SERVING,
        state="running",
        at=began,
        version=version,
    )
    return [one, *([] if ended is None else [replace(one, state="terminated", at=ended)])]


def costs(lives: list[Transition], since: float, until: float) -> tuple[VersionCost, ...]:
    used = partial(usage_of, LedgerRecord(transitions=tuple(lives)))
    return version_costs(used, MODEL, (OLD, NEW), since=since, until=until)


def test_each_version_pays_for_its_own_instances_while_it_is_rolled_out() -> None:
    lives = [*life("i-1", "", 0.0, None), *life("i-2", OLD, 0.0, 5400.0), *life("i-3", NEW, 4500.0, 6300.0)]
    old, new = costs(lives, 3600.0, 7200.0)
    assert (old.version, old.instance_hours) == (OLD, pytest.approx(1.5)), "what bears no version is the old one's"
    assert (new.version, new.instance_hours) == (NEW, pytest.approx(0.5))
    assert new.usd == pytest.approx(0.5 * OFFERED.usd_per_hour)


LIVES = st.lists(st.tuples(st.sampled_from(["", OLD, NEW]), st.floats(0.0, 1e4), st.floats(1.0, 1e4)), max_size=8)


def told_of(lives: list[tuple[str, float, float]]) -> list[Transition]:
    return [
        one
        for number, (version, began, lasts) in enumerate(lives)
        for one in life(f"i-{number}", version, began, began + lasts)
    ]


@given(LIVES, st.floats(0.0, 1e4), st.floats(0.0, 1e4))
def test_the_versions_together_are_the_bill_and_two_spans_are_their_whole(
    lives: list[tuple[str, float, float]], first: float, second: float
) -> None:
    told = told_of(lives)
    middle, end = sorted((first, second))
    parts = [*costs(told, 0.0, middle), *costs(told, middle, end)]
    ledger = ModelLedger(
        served=MODEL, record=LedgerRecord(transitions=tuple(told)), marks=(first_mark(0.0),), footprint=None
    )
    bill = cost_of(model_bill(ledger, end))
    assert sum(one.usd for one in parts) == pytest.approx(bill.instances + bill.standby, abs=1e-9)


@given(LIVES, st.integers(1, 6))
def test_a_ledger_that_was_folded_tells_versions_apart(lives: list[tuple[str, float, float]], hour: int) -> None:
    """A rollout may last a week, and what is gone for two days is folded."""
    record = LedgerRecord(transitions=tuple(sorted(told_of(lives), key=lambda one: one.at)))
    folded = compacted(record, 3600.0 * hour)
    whole, after = (
        version_costs(partial(usage_of, one), MODEL, (OLD, NEW), since=3600.0, until=36_000.0)
        for one in (record, folded)
    )
    assert [one.usd for one in after] == pytest.approx([one.usd for one in whole], abs=1e-9)
    assert {item.version for item in usage_of(folded, 36_000.0).usages} <= {"", OLD, NEW}


def test_after_forty_days_versions_are_told_apart_no_more() -> None:
    """A ledger has a bound, however many versions there were."""
    record = LedgerRecord(transitions=(*life("i-1", OLD, 0.0, 60.0), *life("i-2", NEW, 0.0, 60.0)))
    folded = compacted(record, 3600.0)
    assert [line.version for item in folded.rollups for line in item.billed] == [OLD, NEW]
    older = compacted(folded, KEEP_HOURS_S + 2 * DAY_S)
    assert [(line.version, line.billed_s) for item in older.rollups for line in item.billed] == [("", 120)]
