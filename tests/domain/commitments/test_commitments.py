"""Savings Plans and Reserved Instances: what an hour of usage takes of them, in AWS's order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.commitments.applied import apply
from mark.domain.commitments.eligible import Compute, Usage, units_of
from mark.domain.commitments.owned import (
    NO_COMMITMENTS,
    CapacityReservation,
    Commitments,
    PlanKind,
    ReservedInstances,
    SavingsPlan,
    check_names,
)
from mark.domain.errors import Misconfigured

PRICES = {"c5.large": 0.085, "c5.xlarge": 0.17, "m5.large": 0.096, "g4dn.xlarge": 0.526, "g4dn.2xlarge": 0.752}
ZONES = ("us-east-1a", "us-east-1b")


def instances(kind: str, hours: float, zone: str = "") -> Usage:
    return Usage(
        compute=Compute.EC2, on_demand_usd=PRICES[kind] * hours, hours=hours, instance_type=kind, zone=zone
    )


def compute_plan(usd_per_hour: float, discount: float = 0.3, name: str = "compute") -> SavingsPlan:
    return SavingsPlan(
        name=name, kind=PlanKind.COMPUTE, usd_per_hour=usd_per_hour, discounts=((Compute.EC2, discount),)
    )


def family_plan(usd_per_hour: float, discount: float = 0.4, family: str = "c5") -> SavingsPlan:
    return SavingsPlan(
        name=f"{family} plan",
        kind=PlanKind.EC2_INSTANCE,
        family=family,
        usd_per_hour=usd_per_hour,
        discounts=((Compute.EC2, discount),),
    )


def reserved(kind: str, count: float, zone: str = "") -> ReservedInstances:
    return ReservedInstances(
        name=f"{kind} {zone}", instance_type=kind, count=count, usd_per_hour=0.6 * PRICES[kind], zone=zone
    )


HOURS = st.floats(0.01, 40.0)
USAGES = st.lists(
    st.one_of(
        st.builds(instances, st.sampled_from(sorted(PRICES)), HOURS, st.sampled_from(("", *ZONES))),
        st.builds(
            Usage,
            compute=st.sampled_from((Compute.FARGATE, Compute.LAMBDA)),
            on_demand_usd=st.floats(0.0, 5.0),
        ),
    ),
    max_size=6,
)
DISCOUNTS = st.floats(0.0, 0.9)
PLANS = st.one_of(
    st.builds(compute_plan, st.floats(0.0, 6.0), DISCOUNTS),
    st.builds(family_plan, st.floats(0.0, 6.0), DISCOUNTS, st.sampled_from(("c5", "m5"))),
)
RESERVED = st.builds(
    reserved, st.sampled_from(sorted(PRICES)), st.floats(0.0, 12.0), st.sampled_from(("", *ZONES))
)
OWNED = st.builds(
    lambda plans, held, zones: Commitments(plans=tuple(plans), reservations=tuple(held), zones=zones),
    st.lists(PLANS, max_size=3, unique_by=lambda item: item.name),
    st.lists(RESERVED, max_size=4, unique_by=lambda item: item.name),
    st.integers(1, 3),
)


CAPACITY = st.lists(
    st.builds(
        lambda kind, count, zone: CapacityReservation(
            name=f"kept-{kind}-{zone}", instance_type=kind, count=count, zone=zone, usd_per_hour=PRICES[kind]
        ),
        st.sampled_from(sorted(PRICES)),
        st.floats(0.0, 12.0),
        st.sampled_from(ZONES),
    ),
    max_size=3,
    unique_by=lambda item: item.name,
).map(tuple)


@given(OWNED, CAPACITY, USAGES)
def test_capacity_that_is_reserved_costs_what_it_does_on_demand_used_or_not(owned, kept, usages) -> None:
    """It costs what instances would that ran there all the time, and use up to its count costs nothing more."""
    both = replace(owned, capacity_reservations=kept)
    found = apply(both, usages)
    on_demand = sum(usage.on_demand_usd for usage in usages)
    assert paid(both, usages) == pytest.approx(on_demand - found.covered_usd + found.paid_usd)
    assert 0.0 <= found.used_usd <= found.paid_usd + 1e-9
    assert found.free_capacity_usd <= found.unused_usd + 1e-9
    inside = [instances(item.instance_type, item.count, item.zone) for item in kept if item.count]
    assert paid(both, inside) == pytest.approx(paid(both, []), abs=1e-6)
    assert apply(both, inside).free_capacity_usd == pytest.approx(0.0, abs=1e-6)
    assert apply(both, inside).left.capacity_reservations == ()
    assert paid(both, usages) <= paid(owned, usages) + sum(item.count * item.usd_per_hour for item in kept) + 1e-6


def test_plans_cover_reserved_capacity_that_nothing_runs_in() -> None:
    kept = CapacityReservation(name="cr", instance_type="c5.large", count=2.0, zone="a", usd_per_hour=0.085)
    alone, usage = Commitments(capacity_reservations=(kept,)), [instances("c5.large", 3.0)]
    found = apply(alone, usage)
    assert (found.paid_usd, found.used_usd) == (pytest.approx(0.17), pytest.approx(0.17))
    assert found.left_shares == (pytest.approx(1 / 3),), "a launch goes to its zone first"
    assert apply(alone, []).free_capacity_usd == pytest.approx(0.17)
    planned = replace(alone, plans=(compute_plan(0.0595, 0.3),))
    assert apply(planned, []).paid_usd == pytest.approx(0.0595 + 0.085), "of one the plan pays"
    assert apply(planned, []).free_capacity_usd == pytest.approx(0.085)
    elsewhere = apply(alone, [instances("c5.large", 1.0, "b"), instances("c5.xlarge", 1.0, "a")])
    assert elsewhere.left_shares == (1.0, 1.0)


def paid(owned: Commitments, usages: list[Usage]) -> float:
    found = apply(owned, usages)
    on_demand = sum(usage.on_demand_usd * left for usage, left in zip(usages, found.left_shares, strict=True))
    return found.paid_usd + on_demand


@given(OWNED, USAGES)
def test_an_hour_costs_no_more_than_on_demand_and_the_commitment(owned, usages) -> None:
    found = apply(owned, usages)
    on_demand = sum(usage.on_demand_usd for usage in usages)
    assert paid(owned, usages) <= on_demand + owned.usd_per_hour + 1e-9
    assert paid(owned, usages) == pytest.approx(on_demand - found.covered_usd + found.paid_usd)


@given(OWNED, USAGES)
def test_what_is_used_is_within_each_commitment_and_what_is_left_is_the_rest(owned, usages) -> None:
    found = apply(owned, usages)
    assert 0.0 <= found.used_usd <= found.paid_usd + 1e-9
    assert all(-1e-9 <= left <= 1.0 + 1e-9 for left in found.left_shares)
    assert found.left.usd_per_hour == pytest.approx(found.unused_usd, abs=1e-6)


@given(OWNED, USAGES)
def test_a_commitment_that_is_left_covers_nothing_more_of_the_same_usage(owned, usages) -> None:
    found = apply(owned, usages)
    if owned.zones == 1:  # with several, a part of what has no zone is never a reservation's
        again = apply(
            found.left, [scaled(item, left) for item, left in zip(usages, found.left_shares, strict=True)]
        )
        assert again.covered_usd == pytest.approx(0.0, abs=1e-6)


def scaled(usage: Usage, share: float) -> Usage:
    return Usage(
        compute=usage.compute,
        on_demand_usd=usage.on_demand_usd * share,
        hours=usage.hours * share,
        instance_type=usage.instance_type,
        zone=usage.zone,
    )


@given(OWNED, USAGES, st.floats(0.05, 1.0))
def test_a_share_of_the_commitments_costs_that_share(owned, usages, share) -> None:
    assert owned.share(share).usd_per_hour == pytest.approx(share * owned.usd_per_hour)
    assert apply(owned.share(share), usages).used_usd <= share * owned.usd_per_hour + 1e-9


@given(USAGES)
def test_without_commitments_all_is_on_demand(usages) -> None:
    found = apply(NO_COMMITMENTS, usages)
    assert (found.paid_usd, found.covered_usd, set(found.left_shares) - {1.0}) == (0.0, 0.0, set())


def test_a_plan_covers_what_the_user_guide_says_it_does() -> None:
    """The guide's first scenario: 25 USD an hour cover all usage, which takes 2 + 8 + 10 x 1 + 5 x 1 of them."""
    plan = SavingsPlan(
        name="compute",
        kind=PlanKind.COMPUTE,
        usd_per_hour=25.0,
        rates=(("c5.9xlarge", 2.0), ("c5.24xlarge", 8.0)),
        discounts=((Compute.FARGATE, 1.0 - 15.0 / 25.0),),
    )
    usages = [
        Usage(compute=Compute.EC2, on_demand_usd=4.0, hours=1.0, instance_type="c5.9xlarge"),
        Usage(compute=Compute.EC2, on_demand_usd=10.0, hours=1.0, instance_type="c5.24xlarge"),
        Usage(compute=Compute.FARGATE, on_demand_usd=25.0),
    ]
    found = apply(Commitments(plans=(plan,)), usages)
    assert found.used_usd == pytest.approx(2.0 + 8.0 + 15.0)
    assert found.left_shares == pytest.approx((0.0, 0.0, 0.0), abs=1e-9)


def test_the_highest_discount_comes_first() -> None:
    plan = SavingsPlan(
        name="compute", kind=PlanKind.COMPUTE, usd_per_hour=2.0, rates=(("c5.large", 0.05), ("m5.large", 0.09))
    )
    found = apply(Commitments(plans=(plan,)), [instances("m5.large", 40.0), instances("c5.large", 40.0)])
    assert found.left_shares == pytest.approx((1.0, 0.0), abs=1e-9)


def test_reservations_come_before_plans_and_zones_before_regions() -> None:
    owned = Commitments(
        plans=(compute_plan(1.0), family_plan(1.0)),
        reservations=(reserved("c5.large", 1.0), reserved("c5.large", 1.0, ZONES[0])),
    )
    one = apply(owned, [instances("c5.large", 1.0, ZONES[0])])
    assert [item.zone for item in one.left.reservations] == [""]
    two = apply(owned, [instances("c5.large", 2.0, ZONES[0])])
    assert (two.left.reservations, two.left.plans) == ((), owned.plans)
    three = apply(owned, [instances("c5.large", 3.0, ZONES[0])])
    assert [plan.usd_per_hour < 1.0 for plan in three.left.plans] == [False, True]


def test_a_region_s_reservation_covers_any_size_of_its_family_the_smallest_first() -> None:
    owned = Commitments(reservations=(reserved("c5.xlarge", 1.0),))
    found = apply(owned, [instances("c5.xlarge", 1.0), instances("c5.large", 1.0)])
    assert found.left_shares == pytest.approx((0.5, 0.0))


@pytest.mark.parametrize(("zones", "left"), [(1, 0.0), (2, 0.5)])
def test_instances_of_no_known_zone_are_spread_evenly(zones: int, left: float) -> None:
    owned = Commitments(reservations=(reserved("c5.large", 1.0, ZONES[0]),), zones=zones)
    assert apply(owned, [instances("c5.large", 1.0)]).left_shares == pytest.approx((left,))


def test_families_without_size_flexibility_are_covered_by_type_alone() -> None:
    owned = Commitments(reservations=(reserved("g4dn.2xlarge", 4.0),))
    found = apply(owned, [instances("g4dn.xlarge", 1.0), instances("g4dn.2xlarge", 1.0)])
    assert found.left_shares == pytest.approx((1.0, 0.0))


@pytest.mark.parametrize(
    ("kind", "units"), [("t3.nano", 0.25), ("c5.large", 4), ("c5.18xlarge", 144), ("c5.metal", None)]
)
def test_units_are_those_of_the_user_guide(kind: str, units: float | None) -> None:
    assert units_of(kind) == units


def test_a_reservation_of_a_zone_covers_nothing_elsewhere() -> None:
    owned = Commitments(reservations=tuple(reserved("c5.large", 1.0, zone) for zone in ("", *ZONES, "eu-west-1a")))
    assert [item.zone for item in owned.in_region("us-east-1").reservations] == ["", *ZONES]
    assert [item.zone for item in owned.in_zones((ZONES[1],)).reservations] == ["", ZONES[1]]
    assert owned.in_zones(()) == owned


def test_a_term_begins_and_ends() -> None:
    plan = SavingsPlan(name="a", kind=PlanKind.COMPUTE, usd_per_hour=1.0, starts_at=10.0, ends_at=20.0)
    owned = Commitments(plans=(plan,))
    assert [bool(owned.active_at(at)) for at in (9.0, 10.0, 19.0, 20.0)] == [False, True, True, False]
    assert owned.without_terms().active_at(0.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: compute_plan(-1.0),
        lambda: compute_plan(1.0, discount=1.0),
        lambda: SavingsPlan(name="a", kind=PlanKind.EC2_INSTANCE, usd_per_hour=1.0),
        lambda: SavingsPlan(name="a", kind=PlanKind.COMPUTE, family="c5", usd_per_hour=1.0),
        lambda: ReservedInstances(name="a", instance_type="c5", count=1.0, usd_per_hour=0.1),
        lambda: check_names(Commitments(plans=(compute_plan(1.0), compute_plan(2.0)))),
    ],
)
def test_what_is_no_commitment_is_refused(make) -> None:
    with pytest.raises(Misconfigured):
        make()
