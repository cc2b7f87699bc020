"""Commitments on a live bill: an hour that is over is not counted again, and no day pays for what it did not."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.accounting.budget import spent_usd
from mark.accounting.commitments import commitment_lines, month_commitments
from mark.accounting.daily_costs import DAY_S, shared_days
from mark.accounting.hourly_totals import first_mark
from mark.accounting.model_ledger import ModelLedger
from mark.accounting.usage import IncrementalUsage
from mark.catalog.commitment_bill import COVERED, FREE_CAPACITY, UNUSED, USED, HourlyUsage, bill_commitments
from mark.domain.billing.costs import LedgerRecord
from mark.domain.commitments.eligible import Compute
from mark.domain.commitments.owned import Commitments, PlanKind, ReservedInstances, SavingsPlan
from tests.accounting.test_daily_costs import BEGAN, SERVED, ledgers, transition
from tests.footprints import FOOTPRINT, HA_FOOTPRINT

PLAN = SavingsPlan(
    name="plan",
    kind=PlanKind.COMPUTE,
    usd_per_hour=0.25,
    discounts=((Compute.EC2, 0.25), (Compute.FARGATE, 0.2), (Compute.LAMBDA, 0.12)),
)
OWNED = Commitments(plans=(PLAN,))


def with_owned(ledger: ModelLedger, owned: Commitments = OWNED) -> ModelLedger:
    footprint = ledger.footprint
    assert footprint is not None
    return replace(ledger, footprint=replace(footprint, commitments=owned))


@settings(max_examples=40, deadline=None)
@given(ledger=ledgers(), hours=st.floats(0.0, 140.0))
def test_what_is_paid_is_the_commitment_for_each_hour_and_never_more_is_used(ledger, hours) -> None:
    at = BEGAN + hours * 3600.0
    lines = {line.item: line for line in commitment_lines([with_owned(ledger)], at)}
    paid = lines[USED].usd + lines[UNUSED].usd
    assert 0.0 <= lines[USED].usd <= 0.25 * (hours + 1.0) + 1e-9
    assert 0.25 * (hours - 1.0) - 1e-9 <= paid <= 0.25 * (hours + 1.0) + 1e-9
    assert lines[COVERED].usd <= -lines[USED].usd + 1e-9  # at its rates a plan takes off more than it costs


@settings(max_examples=25, deadline=None)
@given(ledger=ledgers())
def test_days_of_commitments_add_up(ledger) -> None:
    made, until = with_owned(ledger), BEGAN + 5 * DAY_S
    days = shared_days([made], BEGAN, until)
    whole = {line.item: line.usd for line in commitment_lines([made], until)}
    for item, usd in whole.items():
        found = sum(day.line.usd for day in days if day.line.item == item and day.line.component == "commitments")
        assert found == pytest.approx(usd, abs=1e-6)


def instances_of(kind: str, hours: float) -> ModelLedger:
    told = tuple(
        replace(transition(1, state, at), offering=f"{kind}:on-demand", usd_per_hour=0.17)
        for state, at in (("running", BEGAN), ("terminated", BEGAN + hours * 3600.0))
    )
    record = LedgerRecord(transitions=told)
    return ModelLedger(served=SERVED, record=record, marks=(first_mark(BEGAN),), footprint=FOOTPRINT)


def test_a_reserved_instance_costs_a_service_its_reservation_alone() -> None:
    start = (BEGAN // 3600.0 + 1) * 3600.0
    owned = Commitments(
        reservations=(ReservedInstances(name="r", instance_type="c5.xlarge", count=1.0, usd_per_hour=0.1),)
    )
    plain = instances_of("c5.xlarge", 12.0)
    used = month_commitments([with_owned(plain, owned)], start, start + 10 * 3600.0)
    assert (used[USED], used[UNUSED]) == pytest.approx((1.0, 0.0), abs=1e-6)
    assert used[COVERED] == pytest.approx(1.7)
    saved = spent_usd([plain], start, start + 36_000.0) - spent_usd(
        [with_owned(plain, owned)], start, start + 36_000.0
    )
    assert saved == pytest.approx(0.7)


def test_instances_that_are_over_were_covered_also_where_a_budget_counts_them_as_sums() -> None:
    owned = Commitments(
        reservations=(ReservedInstances(name="r", instance_type="c5.xlarge", count=1.0, usd_per_hour=0.1),)
    )
    ledger, at, usage = with_owned(instances_of("c5.xlarge", 12.0), owned), BEGAN + DAY_S, IncrementalUsage()
    whole = commitment_lines([ledger], at)
    assert {line.item: line.usd for line in whole}[COVERED] == pytest.approx(-12.0 * 0.17)
    for counted in (usage.before, usage.before_past):
        assert commitment_lines([replace(ledger, used=counted)], at) == whole


@given(edges=st.lists(st.floats(0.0, 100.0), min_size=2, max_size=9))
def test_what_only_rounding_leaves_is_nothing(edges: list[float]) -> None:
    """However the time of instances is cut that use all of a plan."""
    used, owned = HourlyUsage(), Commitments(plans=(replace(PLAN, usd_per_hour=0.1, discounts=()),))
    ends = sorted(BEGAN + hours * 3600.0 for hours in edges)
    for since, until in pairwise(ends):
        for _ in range(9):
            used.add_running("c5.large:on-demand", 0.085, since, until)
    lines = bill_commitments(owned, used.hours(), ends[0], ends[-1])
    assert all(line.usd == 0.0 or abs(line.usd) >= 1e-7 for line in lines)
    assert FREE_CAPACITY not in {line.item for line in lines}


def test_controllers_and_gateways_use_a_compute_plan() -> None:
    ledger = ModelLedger(
        served=SERVED, record=LedgerRecord(transitions=()), marks=(first_mark(BEGAN),), footprint=HA_FOOTPRINT
    )
    lines = {line.item: line.usd for line in commitment_lines([with_owned(ledger)], BEGAN + DAY_S)}
    assert lines[USED] > 0.0


@given(ledger=ledgers())
@settings(max_examples=10, deadline=None)
def test_without_commitments_there_is_no_line(ledger) -> None:
    assert commitment_lines([ledger], BEGAN + DAY_S) == ()
