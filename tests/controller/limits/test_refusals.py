"""Refused offerings are left out for a time that grows with each refusal in a row, and ends with a launch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.controller.limits.refusals import backoff_s, left_out
from mark.controller.policy import ControllerPolicy
from mark.controller.state import State
from mark.domain.fleet.instances import Instance, InstanceState, Role
from mark.domain.fleet.orders import Launch, LaunchRefused, RefusalCause, StartStandby
from mark.domain.offerings.offering import Offering
from mark.domain.offerings.quota import VcpuQuota
from tests.controller.builders import (
    LARGE,
    POLICY,
    SLEEPER,
    SMALL,
    WITH_STANDBY,
    Stepped,
    instances,
    launched,
    plan,
    seen,
)

GROWING = replace(POLICY, unavailable_s=570.0, unavailable_longest_s=3600.0)
ZONES = ("z-a", "z-b", "z-c")
ZONED = replace(GROWING, zones=ZONES)


def refused(order: Launch, at: float, cause: RefusalCause = RefusalCause.CAPACITY) -> LaunchRefused:
    return LaunchRefused(token=order.token, offering=order.offering, count=order.count, cause=cause, at=at)


def launch_of(made: Stepped, at: float, fleet: tuple[object, ...] = ()) -> Launch:
    """The launch of the small type that is ordered at a tick with a plan of one."""
    (order,) = made.see(seen(at, fleet, wanted=plan(small=1, at=at)))  # type: ignore[arg-type]
    assert isinstance(order, Launch)
    return order


def left_out_s(made: Stepped, order: Launch, at: float) -> float:
    """For how long the offering is left out after its launch was refused."""
    made.see(seen(at, facts=(refused(order, at),)))
    return dict(made.state.capacity_backoff)[SMALL.name] - at


def test_each_refusal_in_a_row_leaves_it_out_twice_as_long_up_to_the_longest() -> None:
    made, at, found = Stepped(GROWING), 0.0, []
    for _ in range(5):
        found.append(left_out_s(made, launch_of(made, at), at + 5.0))
        at += found[-1] + 60.0
    assert found == [570.0, 1140.0, 2280.0, 3600.0, 3600.0]


def test_a_refusal_long_ago_begins_no_row() -> None:
    made = Stepped(GROWING)
    left_out_s(made, launch_of(made, 0.0), 5.0)
    assert left_out_s(made, launch_of(made, 7300.0), 7305.0) == 570.0


def test_a_refusal_that_is_told_again_counts_once() -> None:
    made = Stepped(GROWING)
    order = launch_of(made, 0.0)
    left_out_s(made, order, 5.0)
    left_out_s(made, order, 10.0)
    assert [(streak.offering, streak.count) for streak in made.state.refusal_streaks] == [(SMALL.name, 1)]


def test_what_a_guardrail_cut_or_another_offering_was_refused_is_no_part_of_the_row() -> None:
    made = Stepped(GROWING)
    order = launch_of(made, 0.0)
    other = replace(order, token="t9-9", offering=LARGE.name)
    made.see(seen(5.0, facts=(refused(order, 5.0, RefusalCause.GUARDRAIL), refused(other, 5.0))))
    assert made.state.refusal_streaks == ()


def test_a_policy_that_names_no_longest_time_leaves_out_as_long_each_time() -> None:
    """As in journals from before it could be named."""
    made, at = Stepped(POLICY), 0.0
    for _ in range(3):
        assert left_out_s(made, launch_of(made, at), at + 5.0) == POLICY.unavailable_s
        at += POLICY.unavailable_s + 60.0
    assert made.state == replace(made.state, refusal_streaks=())


@given(
    first=st.floats(1.0, 1e4),
    longest=st.floats(0.0, 1e6),
    in_a_row=st.integers(0, 10_000),
)
def test_the_time_never_falls_and_stays_within_its_bounds(first: float, longest: float, in_a_row: int) -> None:
    policy = replace(POLICY, unavailable_s=first, unavailable_longest_s=longest)
    found = backoff_s(in_a_row, policy)
    assert first <= found <= max(first, longest)
    assert backoff_s(in_a_row + 1, policy) >= found


@given(st.lists(st.sampled_from(["refused", "had", "waits"]), max_size=12))
def test_the_row_is_as_long_as_the_refusals_since_the_last_launch_that_was_had(answers: list[str]) -> None:
    made, at, in_a_row, last_at = Stepped(GROWING), 0.0, 0, 0.0
    for answer in answers:
        order = launch_of(made, at)
        if at - last_at >= 2 * GROWING.unavailable_longest_s:
            in_a_row = 0
        if answer == "refused":
            made.see(seen(at + 5.0, facts=(refused(order, at + 5.0),)))
            in_a_row, last_at = in_a_row + 1, at + 5.0
        elif answer == "had":
            made.see(seen(at + 5.0, instances(1, token=order.token)))
            in_a_row = 0
        counts = {streak.offering: streak.count for streak in made.state.refusal_streaks}
        assert counts == ({SMALL.name: in_a_row} if in_a_row else {})
        at += 3700.0  # every back-off is over, and every launch forgotten


@pytest.mark.parametrize("cause", [cause for cause in RefusalCause if cause is not RefusalCause.GUARDRAIL])
def test_whatever_the_cause_the_row_grows(cause: RefusalCause) -> None:
    made = Stepped(GROWING, State())
    order = launch_of(made, 0.0)
    made.see(seen(5.0, facts=(refused(order, 5.0, cause),)))
    assert [streak.count for streak in made.state.refusal_streaks] == [1]


def refused_in(
    order: Launch, at: float, *zones: str, cause: RefusalCause = RefusalCause.CAPACITY
) -> LaunchRefused:
    """The refusals of an order in these zones, all that is lacking in the first."""
    return tuple(  # type: ignore[return-value]
        replace(refused(order, at, cause), zone=zone, count=0 if number else order.count)
        for number, zone in enumerate(zones)
    )


def test_a_refusal_in_one_zone_leaves_out_that_zone_alone_and_the_launch_is_ordered_again_at_once() -> None:
    made = Stepped(ZONED)
    order = launch_of(made, 0.0)
    [again] = made.see(seen(5.0, facts=refused_in(order, 5.0, "z-b"), wanted=plan(small=1, at=5.0)))
    assert isinstance(again, Launch)
    assert (again.offering, again.count) == (SMALL.name, 1)
    assert again.without == ((SMALL.name, "z-b"),)
    assert left_out(made.state, ZONED) == {}


def test_what_is_refused_in_every_zone_is_left_out_until_the_first_zone_may_be_asked_again() -> None:
    made = Stepped(ZONED)
    order = launch_of(made, 0.0)
    [again] = made.see(seen(5.0, facts=refused_in(order, 5.0, "z-a"), wanted=plan(small=1, at=5.0)))
    assert isinstance(again, Launch)
    assert made.see(seen(65.0, facts=refused_in(again, 65.0, "z-b", "z-c"), wanted=plan(small=1, at=65.0))) == ()
    assert left_out(made.state, ZONED) == {SMALL.name: 575.0}
    [third] = made.see(seen(600.0, wanted=plan(small=1, at=600.0)))
    assert isinstance(third, Launch)
    assert third.without == ((SMALL.name, "z-b"), (SMALL.name, "z-c"))


def test_each_zone_has_a_row_of_its_own() -> None:
    made = Stepped(ZONED)
    order = launch_of(made, 0.0)
    made.see(seen(5.0, facts=refused_in(order, 5.0, "z-a")))
    order = launch_of(made, 1000.0)  # what was ordered at 5 s is waited for no more
    made.see(seen(1005.0, facts=refused_in(order, 1005.0, "z-a", "z-b")))
    assert {(pool.zone, pool.until) for pool in made.state.pool_backoff} == {("z-a", 2145.0), ("z-b", 1575.0)}


@pytest.mark.parametrize("cause", [c for c in RefusalCause if c is not RefusalCause.CAPACITY])
def test_only_a_lack_of_capacity_is_one_of_the_zone(cause: RefusalCause) -> None:
    made = Stepped(ZONED)
    made.see(seen(5.0, facts=refused_in(launch_of(made, 0.0), 5.0, "z-a", cause=cause)))
    assert made.state.pool_backoff == ()
    assert (SMALL.name in left_out(made.state, ZONED)) == (cause is not RefusalCause.GUARDRAIL)


def test_a_policy_that_knows_no_zones_leaves_out_the_offering_as_journals_from_before_do() -> None:
    made = Stepped(GROWING)
    made.see(seen(5.0, facts=refused_in(launch_of(made, 0.0), 5.0, "z-a")))
    assert left_out(made.state, GROWING) == {SMALL.name: 575.0}
    assert made.state.pool_backoff == ()


def test_a_wake_that_is_refused_leaves_out_its_pool_and_standbys_of_other_zones_wake_first() -> None:
    policy = replace(WITH_STANDBY, zones=ZONES, unavailable_s=570.0, unavailable_longest_s=3600.0)
    made = Stepped(policy)
    two = instances(2, token="old")
    sleep = tuple(
        replace(one, zone=zone)
        for one, zone in zip(
            instances(3, SLEEPER, state=InstanceState.STOPPED, role=Role.STANDBY),
            ("z-a", "z-a", "z-b"),
            strict=True,
        )
    )
    made.see(seen(0.0, (*two, *sleep), wanted=plan(small=2, at=0.0)))
    leaving = replace(two[0], terminates_at=120.0)
    fact = LaunchRefused(
        token="t9-9",
        offering=SLEEPER.name,
        count=1,
        cause=RefusalCause.CAPACITY,
        zone="z-a",
        at=5.0,
        instances=(sleep[0].id,),
    )
    orders = made.see(seen(5.0, (leaving, two[1], *sleep), facts=(fact,)))
    [woken] = [order for order in orders if isinstance(order, StartStandby)]
    assert woken.instances == (sleep[2].id, sleep[1].id)
    assert [(pool.offering, pool.zone, pool.until) for pool in made.state.pool_backoff] == [
        (SLEEPER.name, "z-a", 575.0)
    ]
    made.see(seen(65.0, (leaving, two[1], *sleep), facts=(replace(fact, at=65.0),)))
    assert [pool.until for pool in made.state.pool_backoff] == [575.0]


def like_small(name: str, usd_per_hour: float = SMALL.usd_per_hour) -> Offering:
    kind = replace(SMALL.instance_type, name=name)
    return replace(SMALL, instance_type=kind, usd_per_hour=usd_per_hour)


ALIKE, DEARER, DEAR = like_small("alike"), like_small("dearer", 0.39), like_small("dear", 0.40)
CHOOSING = replace(ZONED, offerings=(SMALL, LARGE, ALIKE, DEARER, DEAR), equivalent_price_factor=1.1)


def after_a_refusal(policy: ControllerPolicy = CHOOSING, *more: LaunchRefused) -> tuple[Stepped, Launch]:
    """The launch that follows one that was refused in a zone."""
    made = Stepped(policy)
    order = launch_of(made, 0.0)
    assert order.equivalents == ()
    facts = (*refused_in(order, 5.0, "z-a"), *more)
    [again] = made.see(seen(5.0, facts=facts, wanted=plan(small=1, at=5.0)))
    assert isinstance(again, Launch)
    return made, again


def test_a_launch_after_a_refusal_in_a_zone_names_what_does_as_well_for_hardly_more() -> None:
    assert after_a_refusal()[1].equivalents == (ALIKE.name, DEARER.name)
    assert after_a_refusal(replace(CHOOSING, equivalent_price_factor=0.0))[1].equivalents == ()


@pytest.mark.parametrize("zone", [None, "z-c"], ids=["everywhere", "a zone"])
def test_what_was_refused_lately_is_no_equivalent(zone: str | None) -> None:
    fact = LaunchRefused(
        token="t0-9", offering=ALIKE.name, count=1, cause=RefusalCause.CAPACITY, zone=zone, at=5.0
    )
    assert after_a_refusal(CHOOSING, fact)[1].equivalents == (DEARER.name,)


def test_what_a_quota_does_not_leave_room_for_is_no_equivalent() -> None:
    small = replace(SMALL, instance_type=replace(SMALL.instance_type, name="c5.large"))
    alike = replace(SMALL, instance_type=replace(SMALL.instance_type, name="c5a.large"))
    policy = replace(
        CHOOSING,
        offerings=(small, alike),
        quotas=(VcpuQuota(family="standard", market=small.market, vcpus=2.0),),
    )
    made = Stepped(policy)
    wanted = plan(small=1, at=0.0)
    wanted = replace(wanted, counts=(replace(wanted.counts[0], offering=small.name),))
    [order] = made.see(seen(0.0, wanted=wanted))
    assert isinstance(order, Launch)
    [again] = made.see(seen(5.0, facts=refused_in(order, 5.0, "z-a"), wanted=wanted))
    assert isinstance(again, Launch)
    assert again.equivalents == (alike.name,)  # one fits, whichever it is
    none = replace(policy, quotas=(VcpuQuota(family="standard", market=small.market, vcpus=0.0),))
    assert launched(Stepped(none, made.state).see(seen(1000.0, wanted=wanted))) == {}


def test_what_came_in_place_of_the_ordered_type_is_booked_as_what_it_is_and_nothing_more_is_ordered() -> None:
    made, order = after_a_refusal()
    came = instances(1, ALIKE, token=order.token, state=InstanceState.PENDING)
    for at in (10.0, 15.0):
        assert made.see(seen(at, came)) == ()
    assert dict(made.state.desired[-1].counts) == {ALIKE.name: 1}
    assert made.state.requested == ()


@given(
    ordered=st.integers(1, 6),
    arrivals=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5),
)
def test_however_an_order_is_filled_no_more_comes_to_be_than_was_wanted(
    ordered: int, arrivals: list[tuple[int, int]]
) -> None:
    made = Stepped(CHOOSING)
    order = launch_of(made, 0.0)
    facts = refused_in(order, 5.0, "z-a")
    orders = made.see(seen(5.0, facts=facts, wanted=plan(small=ordered, at=5.0)))
    [again] = [one for one in orders if isinstance(one, Launch)]
    left, at = ordered, 5.0
    fleet: tuple[Instance, ...] = ()
    for same, other in arrivals:
        at += 5.0
        for count, kind in ((min(same, left), SMALL), (min(other, max(0, left - same)), ALIKE)):
            fleet += instances(count, kind, token=again.token, first=len(fleet) + 1)
            left -= count
        assert made.see(seen(at, fleet)) == ()
        wanted, waiting = made.state.desired[-1].counts, sum(item.count for item in made.state.requested)
        assert sum(count for _, count in wanted) == ordered
        assert len(fleet) + waiting == ordered
