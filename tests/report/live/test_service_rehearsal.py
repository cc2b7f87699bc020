"""A live service beside its replay: what sat where at each tick, and how far the two are apart."""

import pytest

from mark.controller.hosts.placement_journal import PlacementDecision
from mark.controller.hosts.tenancy import HostUse
from mark.domain.fleet.instances import Instance, InstanceState
from mark.domain.fleet.orders import Drain
from mark.domain.fleet.placement import Place, PlacementOrder, Tenant
from mark.report.live.service_rehearsal import (
    ServiceComparison,
    live_document,
    live_rows,
    placed_by_tick,
)

START_AT = 1000.0
BOTH, ONE = (("c5.large", ("a", "b")),), (("c5.large", ("a",)),)


def host(name: str) -> HostUse:
    return HostUse(offering="c5.large", name=name, usd_per_hour=0.1, memory_gib=3.0, busy_peak=0.5, tenants=())


def place(instance: str, model: str) -> Place:
    return Place(
        token=f"{instance}-{model}", reason="test", instance=instance, tenant=Tenant(model=model, capacity_rps=1.0)
    )


def decision(
    at: float, there: tuple[str, ...], wanted: tuple[str, ...], *orders: PlacementOrder
) -> PlacementDecision:
    return PlacementDecision(
        at=at,
        fleet=tuple(Instance(id=name, offering="c5.large", state=InstanceState.READY) for name in there),
        refused=(),
        loads=(),
        hosts=tuple(map(host, wanted)),
        orders=orders,
        worth_usd_per_hour=0.0,
        unchanged_usd_per_hour=0.0,
    )


def test_what_is_placed_stands_until_another_decision_and_instances_have_no_names() -> None:
    decisions = [
        decision(START_AT, (), ("i-2",), place("i-2", "b"), place("i-2", "a")),
        decision(
            START_AT + 130.0,
            ("i-2",),
            ("i-1",),
            place("i-1", "a"),
            Drain(token="d", reason="test", instances=("i-2",)),
        ),
    ]
    assert placed_by_tick(decisions, START_AT, 4) == [BOTH, BOTH, ONE, ONE]
    assert placed_by_tick([], START_AT, 2) == [(), ()]


def test_the_worlds_are_as_far_apart_as_their_total_their_worst_model_and_their_ticks() -> None:
    compared = ServiceComparison(
        total_usd=(1.02, 1.0),
        parts_usd={},
        attained={"a": (0.99, 0.98), "b": (0.95, 0.97)},
        placed=((BOTH, BOTH), (BOTH, ONE), (ONE, ONE), (ONE, ONE)),
    )
    assert compared.total_apart == pytest.approx(0.02)
    apart, model = compared.most_apart
    assert model == "b"
    assert apart == pytest.approx(0.02)
    assert compared.placed_alike == 0.75
    assert str(compared) == (
        "Live against its replay: total +2.0 %, in time at most 2.00 points (b), "
        "placements equal in 75 % of 4 ticks."
    )


def test_what_was_in_time_and_each_part_of_the_bill_stand_beside_their_replay() -> None:
    compared = ServiceComparison(
        total_usd=(1.5, 1.25),
        parts_usd={"a": (0.5, 0.25), "around all": (1.0, 1.0)},
        attained={"a": (0.98765, 1.0)},
        placed=((BOTH, BOTH),),
    )
    assert live_rows(compared) == (
        ("a, in time", "98.76 %", "100.00 %"),
        ("a, USD", "0.50", "0.25"),
        ("around all, USD", "1.00", "1.00"),
        ("total, USD", "1.50", "1.25"),
    )
    assert live_document(compared)["live"]["cost_usd"]["total"] == (1.5, 1.25)
    assert live_document(None) == {}
