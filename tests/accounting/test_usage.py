"""Usage that is counted once: the same bill as counting all of it anew, however the ledger grows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.accounting import usage
from mark.accounting.ledger import running_now, usage_before
from mark.accounting.usage import IncrementalUsage
from mark.catalog.billing import bill_asleep, bill_instances, bill_running
from mark.domain.billing.costs import BillLine, Ec2State, FleetUsage, Transition
from mark.domain.fleet.instances import Role
from tests.footprints import FOOTPRINT

SURPLUS = "surplus"
PRICES = {"small": 0.1, "large": 1.0}
STATES: tuple[Ec2State, ...] = ("pending", "running", "stopping", "stopped", "shutting-down", "terminated")


def transition(instance: int, state: Ec2State, at: float) -> Transition:
    offering, role = ("small", Role.SERVING) if instance % 2 else ("large", Role.STANDBY)
    return Transition(
        instance=f"i-{instance}",
        model="m",
        offering=offering,
        role=role,
        state=state,
        at=at,
        usd_per_hour=0.3 if instance == 4 else None,
    )


def told_of(instance: int, what: str, at: float) -> Transition:
    """A transition, or a reading of its surplus credits."""
    if what != SURPLUS:
        return transition(instance, what, at)
    return replace(transition(instance, "running", at), surplus_vcpu_s=7.0 * at % 5000.0)


def bill(fleet: FleetUsage) -> dict[tuple[str, str, str], float]:
    lines = bill_instances(fleet.usages, PRICES)
    lines += bill_asleep(FOOTPRINT, 5e7 * fleet.asleep_s)  # so much that a second's difference shows
    lines += bill_running(replace(FOOTPRINT, disk_gib=1e9), fleet.running_s)
    return {(line.component, line.item, what): value for line in lines for what, value in figures(line).items()}


def figures(line: BillLine) -> dict[str, float]:
    return {"quantity": line.quantity, "usd": line.usd}


TOLD = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from((*STATES, SURPLUS)), st.integers(0, 200).map(lambda n: 7.3 * n)),
    max_size=40,
)


@given(TOLD, st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1600)), max_size=6))
def test_the_bill_is_that_of_counting_anew(told: list[Any], asked: list[tuple[int, int]]) -> None:
    """Transitions come late and in any order; instants that are asked for go up and down."""
    book = IncrementalUsage()
    for count, at in sorted(asked):
        known = tuple(sorted((told_of(*one) for one in told[:count]), key=lambda one: one.at))
        whole = usage_before(known, float(at))
        for fleet in (book.before(known, float(at)), book.before_past(known, float(at))):
            assert bill(fleet) == pytest.approx(bill(whole))
            assert running_now(fleet, float(at)) == running_now(whole, float(at))


def test_what_is_over_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def counting(transitions: Any, now: float) -> FleetUsage:
        told = list(transitions)
        counted.append(len(told))
        return usage_before(told, now + 1e-9)

    monkeypatch.setattr(usage, "fleet_usage", counting)
    book = IncrementalUsage()
    over = tuple(transition(n, state, n + 0.1 * k) for n in range(50) for k, state in enumerate(STATES))
    there = (transition(60, "running", 60.0),)
    book.before((*over, *there), 100.0)
    counted.clear()
    book.before((*over, *there), 101.0)
    book.before((*over, *there, transition(61, "running", 101.0)), 102.0)
    assert counted == [1, 2]


def test_an_instant_of_the_past_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[float] = []
    monkeypatch.setattr(usage, "usage_before", lambda told, at: (counted.append(at), usage_before(told, at))[1])
    book = IncrementalUsage()
    known = (transition(1, "running", 1.0), transition(1, "terminated", 90.0))
    first = book.before_past(known, 10.0)
    assert book.before_past((*known, transition(3, "running", 95.0)), 10.0) == first
    assert counted == [10.0]
    late = (transition(3, "running", 0.5), *known)
    assert bill(book.before_past(late, 10.0)) == bill(usage_before(late, 10.0))
    for at in range(100):
        book.before_past(known, float(at))
    assert len(book._past) == usage.KEEP_PAST
