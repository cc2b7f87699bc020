"""The journal of placements: its lines keep what a decision knew, and its orders, folded, give what it wants."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.controller.hosts.placement_journal import (
    Decided,
    PlacementDecision,
    PlacementHeader,
    decided,
    decision_line,
    placement_header_line,
    placement_mismatches,
    read_placements,
)
from mark.controller.hosts.placement_orders import eviction_orders, launch_reason, tenant_orders
from mark.controller.hosts.tenancy import ExpectedLoad, HostUse, TenantUse
from mark.domain.errors import Misconfigured
from mark.domain.fleet.instances import Instance, InstanceState
from mark.domain.fleet.orders import Drain, Launch
from mark.domain.fleet.placement import Place, Placement, PlacementOrder, placed, remaining

MODELS = ("a", "b", "c", "d")
HEADER = PlacementHeader(policy="hedged", models=MODELS, market="spot", catalogue="", seed=1, start_at=0.0)
Wanted = Mapping[str, Mapping[str, float]]
"""Rates of the models on each instance."""
wanted = st.dictionaries(
    st.sampled_from(("i-1", "i-2", "i-3")),
    st.dictionaries(st.sampled_from(MODELS), st.floats(0.01, 50.0), min_size=1),
)


def host(name: str, rates: Mapping[str, float]) -> HostUse:
    tenants = tuple(
        TenantUse(
            model=model,
            capacity_rps=rates[model],
            busy=0.1,
            busy_peak=0.2,
            usd_per_hour=0.02,
            memory_gib=0.5,
            batch_s=0.05,
            wait_s=0.1,
        )
        for model in sorted(rates)
    )
    return HostUse(
        offering="c5.large", name=name, usd_per_hour=0.085, memory_gib=3.0, busy_peak=0.3, tenants=tenants
    )


def instance(name: str) -> Instance:
    return Instance(id=name, offering="c5.large", state=InstanceState.READY)


def decide(
    at: float, before: Placement, found: Wanted, there: frozenset[str]
) -> tuple[Placement, PlacementDecision]:
    """A decision as the shared instances make it, and the placement after it. there: instances not lost before."""
    tokens = (f"s{at:g}-{number}" for number in count(1))
    hosts = [host(name, rates) for name, rates in sorted(found.items())]
    loads = tuple(
        ExpectedLoad(model=model, mean_rps=1.0, peak_rps=2.0, peak_at=at, usd_per_hour_alone=0.1)
        for model in MODELS
    )
    before = remaining(before, there)
    orders: list[PlacementOrder] = [
        Launch(token=next(tokens), reason=launch_reason(one), offering=one.offering, count=1)
        for one in hosts
        if one.name not in there
    ]
    orders += tenant_orders(before, hosts, loads, tokens=tokens)
    surplus = sorted(there - found.keys())
    orders += eviction_orders(before, surplus, tokens=tokens)
    if surplus:
        orders.append(Drain(token=next(tokens), reason="it is empty", instances=tuple(surplus)))
    assert len({order.token for order in orders}) == len(orders)
    assert all(order.reason for order in orders)
    decision = PlacementDecision(
        at=at,
        fleet=tuple(map(instance, sorted(there))),
        refused=(),
        loads=loads,
        hosts=tuple(hosts),
        orders=tuple(orders),
        worth_usd_per_hour=0.3,
        unchanged_usd_per_hour=0.1,
    )
    for order in orders:
        before = placed(before, order)
    return before, decision


@given(given_wanted=st.lists(wanted, max_size=5), lost=st.lists(st.sampled_from(("i-1", "i-2", "i-3"))))
def test_folding_the_lines_gives_the_placements(given_wanted: list[Wanted], lost: list[str]) -> None:
    placement: Placement = {}
    lines, decisions = [placement_header_line(HEADER)], []
    for number, found in enumerate(given_wanted):
        there = frozenset(placement.keys() - set(lost[number : number + 1]))
        placement, decision = decide(3600.0 * number, placement, found, there)
        assert placement == {one.name: one.placed for one in decision.hosts}
        decisions.append(decision)
        lines.append(decision_line(decision))
    header, read = read_placements(lines)
    again = list(read)
    assert header == HEADER
    assert again == decisions
    assert not list(placement_mismatches(again))


def test_a_journal_that_follows_another_goes_on_from_its_placement() -> None:
    there = frozenset({"i-1"})
    before, _ = decide(0.0, {}, {"i-1": {"a": 1.0, "b": 2.0}}, frozenset())
    _, decision = decide(3600.0, before, {"i-1": {"a": 1.0, "c": 2.0}}, there)
    lines = [placement_header_line(replace(HEADER, placement=before)), decision_line(decision)]
    header, read = read_placements(lines)
    assert not list(placement_mismatches(read, header.placement))


def test_a_decision_of_before_it_said_when_the_next_is_due_is_made_anew() -> None:
    after, decision = decide(7200.0, {}, {"i-1": {"a": 1.0, "b": 2.0}}, frozenset())
    line = json.loads(decision_line(decision))
    del line["next_at"], line["limit"]
    found = decided(*read_placements([placement_header_line(HEADER), json.dumps(line).encode()]))
    assert found == Decided(placement=after, last=decision)
    assert found.last is not None
    assert found.last.next_at < found.last.at


def test_an_order_that_is_missing_is_a_mismatch() -> None:
    _, decision = decide(0.0, {}, {"i-1": {"a": 1.0, "b": 2.0}}, frozenset())
    some = replace(decision, orders=decision.orders[:-1])
    (found,) = placement_mismatches([some])
    assert found.instance == "i-1"
    assert [tenant.model for tenant in found.folded] == ["a"]


def test_a_move_names_both_instances_and_what_the_model_costs_alone() -> None:
    before, _ = decide(0.0, {}, {"i-1": {"a": 1.0, "b": 2.0}, "i-2": {"c": 1.0}}, frozenset())
    _, moved = decide(1.0, before, {"i-1": {"a": 1.0}, "i-2": {"b": 1.5, "c": 1.0}}, frozenset({"i-1", "i-2"}))
    evict, place = moved.orders
    assert evict.reason == "moves to i-2"
    assert isinstance(place, Place)
    assert place.reason == (
        "moves from i-1; 1.5 requests/s, 0.02 USD/h of the rent; all of it takes 0.1 USD/h without sharing"
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [(b"", "line 1 of the journal"), (b'{"version": 9}', "version 9, this program reads 1")],
)
def test_a_header_that_cannot_be_read_is_named(line: bytes, words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        read_placements([line])
