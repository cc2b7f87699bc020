"""The account's vCPU quotas: launches never exceed them, and what is full is planned as if it had been refused."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.aws.account.quotas import code_of_quota
from mark.catalog.load import load_prices
from mark.controller.limits.quotas import QuotaLimits, SharedQuotas, counted
from mark.controller.state import NoteKind, State
from mark.domain.demand import Demand
from mark.domain.fleet.instances import FleetView, InstanceState
from mark.domain.offerings.offering import Market
from mark.domain.offerings.quota import VcpuQuota, quota_family, quotas_beside
from tests.controller.builders import (
    LARGE,
    POLICY,
    SMALL,
    Stepped,
    forecast,
    instances,
    launched,
    plan,
    request_at,
    seen,
)

C5 = replace(SMALL, instance_type=replace(SMALL.instance_type, name="c5.large", vcpus=2))
C5_SPOT = replace(C5, market=Market.SPOT)
G4 = replace(LARGE, instance_type=replace(LARGE.instance_type, name="g4dn.xlarge", vcpus=4))
ALL = (C5, C5_SPOT, G4)
QUOTAS = st.tuples(
    *(
        st.builds(VcpuQuota, family=st.just(family), market=st.just(market), vcpus=st.integers(0, 60).map(float))
        for family, market in (("standard", Market.ON_DEMAND), ("standard", Market.SPOT), ("g", Market.ON_DEMAND))
    )
)
COUNTS = st.fixed_dictionaries({item.name: st.integers(0, 12) for item in ALL})


def used(counts: dict[str, int], quota: VcpuQuota) -> int:
    return sum(
        count * item.instance_type.vcpus
        for item in ALL
        for name, count in counts.items()
        if name == item.name
        and (quota_family(item.instance_type.name, item.market), item.market) == (quota.family, quota.market)
    )


@given(quotas=QUOTAS, counts=COUNTS, wanted=st.lists(st.tuples(st.sampled_from(ALL), st.integers(0, 30))))
def test_what_is_taken_stays_within_every_quota(quotas, counts, wanted) -> None:
    allowance = QuotaLimits(quotas, ALL, counts)
    for item, count in wanted:
        taken = int(min(count, allowance.left(item.name)))
        allowance.reserve(item.name, taken)
        before, counts = counts, {**counts, item.name: counts[item.name] + taken}
        for quota in quotas:
            assert used(counts, quota) <= max(quota.vcpus, used(before, quota))
        if taken < count:  # it was cut: not one more would fit
            more = {**counts, item.name: counts[item.name] + 1}
            assert any(used(more, quota) > quota.vcpus for quota in quotas)


@given(quotas=QUOTAS, vcpus=st.integers(0, 80))
def test_machines_before_the_fleet_leave_the_rest_of_their_own_quota_alone(quotas, vcpus) -> None:
    on_demand, *others = quotas
    left, *same = quotas_beside(quotas, "t4g.small", vcpus)
    assert left.vcpus == max(0.0, on_demand.vcpus - vcpus)
    assert same == others


@given(quotas=QUOTAS, counts=COUNTS)
def test_full_is_what_has_no_room_for_one(quotas, counts) -> None:
    limits = QuotaLimits(quotas, ALL, counts)
    for item in ALL:
        more = {**counts, item.name: counts[item.name] + 1}
        over = any(used(more, quota) > max(quota.vcpus, used(counts, quota)) for quota in quotas)
        assert (limits.left(item.name) < 1) == over


USERS = ("a", "b", "c")


@given(
    quotas=QUOTAS,
    asked=st.lists(st.tuples(st.sampled_from(USERS), st.sampled_from(ALL), st.integers(-5, 30)), max_size=20),
)
def test_models_that_plan_within_what_is_left_never_exceed_a_quota_together(quotas, asked) -> None:
    """Each ask launches what is left, or gives back; who gives back leaves all of it to the others."""
    shared, has = SharedQuotas(ALL), {user: dict.fromkeys((item.name for item in ALL), 0) for user in USERS}
    for user, item, count in asked:
        left = shared.left_for(user, quotas)
        room = QuotaLimits(left, ALL, has[user]).left(item.name)
        has[user][item.name] = max(0, has[user][item.name] + int(min(count, room)))
        shared.note(user, has[user])
        total = {name: sum(own[name] for own in has.values()) for name in has[user]}
        assert all(used(total, quota) <= quota.vcpus for quota in quotas)
        if count > room and not math.isinf(room):  # what was cut fits beside nothing that others leave
            assert QuotaLimits(quotas, ALL, total).left(item.name) == 0


@given(quotas=QUOTAS, counts=COUNTS, other=COUNTS)
def test_a_model_alone_has_the_quotas_whole_and_another_takes_what_it_has_of_each(quotas, counts, other) -> None:
    shared = SharedQuotas(ALL)
    shared.note("a", counts)
    assert shared.left_for("a", quotas) is quotas
    assert shared.left_for("b", None) is None
    shared.note("b", other)
    left = shared.left_for("a", quotas)
    assert [one.vcpus for one in left] == [max(0.0, one.vcpus - used(other, one)) for one in quotas]


def test_without_quotas_nothing_is_full() -> None:
    assert QuotaLimits((), ALL, {C5.name: 10_000}).left(C5.name) == math.inf


def test_every_type_of_the_catalogue_has_a_family() -> None:
    names = {item.name: quota_family(item.name, Market.ON_DEMAND) for item in load_prices().types}
    assert not [name for name, family in names.items() if not family]
    assert {names["c5.large"], names["t3.large"], names["m5.large"]} == {"standard"}
    assert (names["g4dn.xlarge"], names["p2.xlarge"]) == ("g", "p")
    assert quota_family("u-6tb1.metal", Market.SPOT) == quota_family("", Market.SPOT) == ""


def test_p5_has_a_spot_quota_of_its_own():
    assert [quota_family("p5.48xlarge", market) for market in (Market.ON_DEMAND, Market.SPOT)] == ["p", "p5"]
    assert quota_family("p4d.24xlarge", Market.SPOT) == "p"
    assert code_of_quota("p5", Market.SPOT) == "L-C4BD4855"


def test_stopped_instances_do_not_count() -> None:
    fleet = FleetView(instances=instances(3) + instances(2, state=InstanceState.STOPPED, first=9))
    assert counted(fleet, [(SMALL.name, 4)]) == {SMALL.name: 7}


def test_a_launch_is_cut_to_what_the_quota_leaves_and_says_so() -> None:
    quota = VcpuQuota(family="standard", market=Market.ON_DEMAND, vcpus=11.0)
    made = Stepped(replace(POLICY, offerings=(C5,), quotas=(quota,)))
    wanted = replace(plan(small=9), counts=tuple(replace(c, offering=C5.name) for c in plan(small=9).counts))
    orders = made.see(seen(0.0, instances(2, C5), wanted=wanted))
    assert launched(orders) == {C5.name: 3}
    assert [note.text for note in made.last.notes if note.kind is NoteKind.QUOTA] == [
        f"{C5.name}: 7 wanted, but the account's quota leaves 3"
    ]
    assert launched(made.see(seen(60.0, instances(2, C5), wanted=wanted))) == {}


@pytest.mark.parametrize(("vcpus", "refused"), [(7.0, (C5_SPOT.name,)), (8.0, ())])
def test_a_full_spot_quota_is_planned_on_demand(vcpus: float, refused: tuple[str, ...]) -> None:
    quota = VcpuQuota(family="standard", market=Market.SPOT, vcpus=vcpus)
    policy = replace(POLICY, offerings=(C5_SPOT,), fallbacks=(C5,), quotas=(quota,))
    history = Demand(end_at=0.0, mean_rps=(1.0,), max_rps=(1.0,))
    request = request_at(
        State(), seen(0.0, instances(3, C5_SPOT)), policy, history=history, forecast=forecast(10.0)
    )
    assert request.refused == refused
    assert (C5.name in {item.name for item in request.offerings}) == bool(refused)


def test_quotas_that_are_read_anew_hold_from_then_on() -> None:
    old, new = (VcpuQuota(family="standard", market=Market.ON_DEMAND, vcpus=vcpus) for vcpus in (4.0, 64.0))
    policy = replace(POLICY, offerings=(C5,), quotas=(old,))
    made = Stepped(policy)
    wanted = replace(plan(small=9), counts=tuple(replace(c, offering=C5.name) for c in plan(small=9).counts))
    assert launched(made.see(replace(seen(0.0, wanted=wanted), quotas=(new,)))) == {C5.name: 9}
    history = Demand(end_at=0.0, mean_rps=(1.0,), max_rps=(1.0,))
    request = request_at(
        made.state, seen(60.0, instances(9, C5)), policy, history=history, forecast=forecast(10.0)
    )
    assert request.refused == ()
    there = instances(9, C5, token=made.state.requested[0].token)
    assert made.see(replace(seen(60.0, there, wanted=wanted), quotas=(old,))) == ()
    request = request_at(
        made.state, seen(120.0, instances(9, C5)), policy, history=history, forecast=forecast(10.0)
    )
    assert request.refused == (C5.name,)
