"""The life of a standby: launched, stopped once booted, woken at a warning, stopped again, given up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mark.controller.policy import StandbyPolicy
from mark.controller.state import Note, NoteKind
from mark.domain.fleet.instances import Instance, InstanceState, Role
from mark.domain.fleet.orders import (
    Launch,
    LaunchRefused,
    Order,
    RefusalCause,
    SpotWarned,
    StartStandby,
    StopStandby,
    Terminate,
    WarmLambda,
)
from tests.controller.builders import SLEEPER, WITH_STANDBY, Stepped, instances, launched, plan, seen

READY, STOPPED, PENDING = InstanceState.READY, InstanceState.STOPPED, InstanceState.PENDING


def pool(count: int, state: InstanceState = STOPPED, first: int = 1) -> tuple[Instance, ...]:
    return instances(count, SLEEPER, state=state, role=Role.STANDBY, first=first)


def warned(
    fleet: tuple[Instance, ...], count: int, at: float
) -> tuple[tuple[Instance, ...], tuple[SpotWarned, ...]]:
    """The fleet, the first `count` of which are about to go, and the facts that say so."""
    terminates_at = at + 120.0
    marked = tuple(replace(one, terminates_at=terminates_at) if i < count else one for i, one in enumerate(fleet))
    return marked, tuple(SpotWarned(instance=one.id, at=at, terminates_at=terminates_at) for one in fleet[:count])


def bridging(asleep: int = 10, lost: int = 2, serving: int = 4) -> tuple[Stepped, tuple[Instance, ...]]:
    """A fleet of `serving` (10 requests/s each), `lost` of which were just warned of; their standbys are woken."""
    share = asleep * SLEEPER.capacity_rps / (10.0 * serving)  # so that the pool has its size
    made = Stepped(replace(WITH_STANDBY, standby=StandbyPolicy(offering=SLEEPER, cover_share=share)))
    fleet = instances(serving)
    made.see(seen(0.0, (*fleet, *pool(asleep)), wanted=plan(small=serving)))
    leaving, facts = warned(fleet, lost, 30.0)
    made.see(seen(30.0, (*leaving, *pool(asleep)), facts=facts))
    return made, leaving


def test_the_standby_set_is_sized_to_its_share_of_the_planned_capacity() -> None:
    made = Stepped(WITH_STANDBY)
    orders = made.see(seen(0.0, instances(5), wanted=plan(small=5)))
    assert launched(orders, Role.STANDBY) == {SLEEPER.name: 5}  # half of 50 requests/s at 5 each
    assert made.see(seen(60.0, instances(5), wanted=plan(small=5))) == ()


def test_the_standby_set_has_a_largest_size() -> None:
    standby = StandbyPolicy(offering=SLEEPER, cover_share=1.0, max_count=3)
    made = Stepped(replace(WITH_STANDBY, standby=standby))
    assert launched(made.see(seen(0.0, instances(5), wanted=plan(small=5))), Role.STANDBY) == {SLEEPER.name: 3}


def test_booted_for_the_first_time_they_are_stopped() -> None:
    made = Stepped(WITH_STANDBY)
    made.see(seen(0.0, instances(2), wanted=plan(small=2)))
    token = made.state.requested[0].token
    booting = instances(2, SLEEPER, state=PENDING, role=Role.STANDBY, token=token)
    assert made.see(seen(60.0, (*instances(2), *booting))) == ()
    ready = tuple(replace(one, state=READY) for one in booting)
    (order,) = made.see(seen(200.0, (*instances(2), *ready)))
    assert isinstance(order, StopStandby)
    assert order.instances == ("s-0001", "s-0002")


def test_a_warning_wakes_as_many_as_the_gap_needs_fullest_first() -> None:
    made = Stepped(WITH_STANDBY)
    fleet = instances(4)
    asleep = tuple(
        replace(one, credits=credit) for one, credit in zip(pool(6), (1.0, 9.0, 5.0, 9.0, None, 7.0), strict=True)
    )
    made.see(seen(0.0, (*fleet, *asleep), wanted=plan(small=4)))
    leaving, facts = warned(fleet, 1, 30.0)
    orders = made.see(seen(30.0, (*leaving, *asleep), facts=facts))
    (wake,) = [order for order in orders if isinstance(order, StartStandby)]
    assert wake.instances == ("s-0002", "s-0004")  # 10 requests/s short, 5 each; the fullest by name
    assert launched(orders) == {"small:on-demand": 1}


def test_without_a_warning_a_gap_wakes_nobody() -> None:
    """A fleet that is still growing is short too; standbys cover interruptions only."""
    made = Stepped(WITH_STANDBY)
    orders = made.see(seen(0.0, (*instances(1), *pool(10)), wanted=plan(small=4)))
    assert not [order for order in orders if isinstance(order, StartStandby)]


def test_the_awake_are_not_woken_twice_and_a_wider_gap_wakes_more() -> None:
    made, leaving = bridging(lost=1)
    waking = (*pool(2, PENDING), *pool(8, first=3))
    assert made.see(seen(60.0, (*leaving, *waking))) == ()
    wider, facts = warned(leaving, 2, 70.0)
    orders = made.see(seen(70.0, (*wider, *waking), facts=facts))
    (wake,) = [order for order in orders if isinstance(order, StartStandby)]
    assert wake.instances == ("s-0003", "s-0004")


def test_a_lost_wake_is_ordered_again_after_a_period() -> None:
    made, leaving = bridging(lost=1)
    still = (*leaving, *pool(10))
    assert not [order for order in made.see(seen(80.0, still)) if isinstance(order, StartStandby)]
    (wake,) = [order for order in made.see(seen(90.0, still)) if isinstance(order, StartStandby)]
    assert wake.instances == ("s-0001", "s-0002")
    assert set(made.state.active_standbys) == {"s-0001", "s-0002"}


def test_a_wake_that_a_guardrail_refused_is_noted_and_asked_for_again_after_a_period() -> None:
    made, leaving = bridging(lost=1)
    still = (*leaving, *pool(10))
    fact = LaunchRefused(
        token="t2-1", offering=SLEEPER.name, count=2, cause=RefusalCause.GUARDRAIL, detail="waking: no", at=30.0
    )
    orders = made.see(seen(31.0, still, facts=(fact,)))
    assert not [order for order in orders if isinstance(order, StartStandby)]
    text = f"2 {SLEEPER.name} refused: guardrail: waking: no"
    assert Note(kind=NoteKind.GUARDRAIL, text=text) in made.last.notes
    (wake,) = [order for order in made.see(seen(90.0, still)) if isinstance(order, StartStandby)]
    assert wake.instances == ("s-0001", "s-0002")


def test_a_standby_that_aws_refuses_is_replaced_by_another_at_once_and_tried_again_after_a_minute() -> None:
    made, leaving = bridging(asleep=3, lost=1)
    woken = (*leaving, *pool(1, PENDING), *pool(2, first=2))
    fact = LaunchRefused(
        token="t2-1",
        offering=SLEEPER.name,
        count=1,
        cause=RefusalCause.CAPACITY,
        code="InsufficientInstanceCapacity",
        instances=("s-0002",),
        at=30.0,
    )
    (wake,) = [o for o in made.see(seen(31.0, woken, facts=(fact,))) if isinstance(o, StartStandby)]
    assert wake.instances == ("s-0003",)
    assert set(made.state.active_standbys) == {"s-0001", "s-0003"}
    assert made.state.capacity_backoff == ()  # its type may still be launched
    again = replace(fact, token="t3-1", instances=("s-0003",), at=31.0)
    for at in (32.0, 60.0, 90.0):
        orders = made.see(seen(at, woken, facts=(again,) if at < 60.0 else ()))
        assert not [o for o in orders if isinstance(o, StartStandby)]
    (wake,) = [o for o in made.see(seen(91.5, woken)) if isinstance(o, StartStandby)]
    assert wake.instances == ("s-0002",)


def test_they_serve_until_what_was_planned_is_ready() -> None:
    made, leaving = bridging()
    awake = (*pool(4, READY), *pool(6, first=5))
    token = made.state.requested[0].token
    booting = instances(2, token=token, first=11, state=PENDING)
    gone = leaving[2:]
    orders = made.see(seen(160.0, (*gone, *booting, *awake)))
    assert orders == ()
    assert made.state.bridging
    ready = tuple(replace(one, state=READY) for one in booting)
    (order,) = made.see(seen(200.0, (*gone, *ready, *awake)))
    assert isinstance(order, StopStandby)
    assert order.instances == ("s-0001", "s-0002", "s-0003", "s-0004")
    assert (made.state.bridging, made.state.active_standbys) == (False, ())


def test_a_lost_stop_is_ordered_again() -> None:
    made, leaving = bridging()
    whole = (*leaving[2:], *instances(2, first=11), *pool(4, READY), *pool(6, first=5))
    made.see(seen(200.0, whole))
    (order,) = made.see(seen(260.0, whole))
    assert isinstance(order, StopStandby)


def test_the_standby_set_shrinks_when_all_plans_of_the_cool_down_agree() -> None:
    made = Stepped(WITH_STANDBY)
    made.see(seen(0.0, (*instances(6), *pool(6)), wanted=plan(small=6), load=60.0))
    for now in range(60, 360, 60):
        orders = made.see(seen(float(now), (*instances(6), *pool(6)), wanted=plan(small=2), load=60.0))
        assert not [order for order in orders if isinstance(order, Terminate)]
    orders = made.see(seen(360.0, (*instances(6), *pool(6)), wanted=plan(small=2), load=60.0))
    (order,) = [order for order in orders if isinstance(order, Terminate)]
    assert order.instances == ("s-0006", "s-0005", "s-0004", "s-0003")


def test_an_open_gap_warms_lambda() -> None:
    made = Stepped(replace(WITH_STANDBY, warm_lambda=True))
    fleet = (*instances(10), *pool(10))
    made.see(seen(0.0, fleet, wanted=plan(small=10)))
    leaving, facts = warned(instances(10), 10, 30.0)
    orders = made.see(seen(30.0, (*leaving, *pool(10)), facts=facts))
    (order,) = [order for order in orders if isinstance(order, WarmLambda)]
    assert order.concurrency > 38  # 100 requests/s for 0.38 s, and their chance meetings


@given(
    lost=st.lists(st.sampled_from([0, 0, 0, 3, 6]), min_size=4, max_size=16),
    states=st.lists(st.sampled_from([STOPPED, PENDING, READY, InstanceState.DRAINING]), min_size=1, max_size=8),
)
def test_only_the_stopped_are_woken_and_only_the_awake_stopped(
    lost: list[int], states: list[InstanceState]
) -> None:
    """What is woken serves at the next look, and what is stopped is asleep then."""
    made = Stepped(WITH_STANDBY)
    sleepers = tuple(replace(one, state=state) for one, state in zip(pool(len(states)), states, strict=True))
    now = 0.0
    for count in lost:
        now += 100.0
        fleet, facts = warned(instances(6), count, now)
        orders = made.see(seen(now, (*fleet, *sleepers), wanted=plan(small=6), facts=facts))
        by_id = {one.id: one.state for one in sleepers}
        for order in orders:
            if isinstance(order, StartStandby | Terminate):
                assert {by_id[name] for name in order.instances} == {STOPPED}
            if isinstance(order, StopStandby):
                assert {by_id[name] for name in order.instances} <= {READY, PENDING}
        assert set(made.state.active_standbys) <= set(by_id)
        assert bool(made.state.active_standbys) <= made.state.bridging
        told = {name: READY for order in orders if isinstance(order, StartStandby) for name in order.instances}
        told |= {name: STOPPED for order in orders if isinstance(order, StopStandby) for name in order.instances}
        sleepers = tuple(replace(one, state=told.get(one.id, one.state)) for one in sleepers)


def outdated(sleepers: tuple[Instance, ...]) -> tuple[Instance, ...]:
    return tuple(replace(one, outdated=True) for one in sleepers)


def ended(orders: Sequence[Order]) -> list[str]:
    return [name for order in orders if isinstance(order, Terminate) for name in order.instances]


def test_outdated_standbys_are_replaced_one_at_a_time() -> None:
    made = Stepped(WITH_STANDBY)
    fleet = instances(2)
    assert ended(made.see(seen(0.0, (*fleet, *outdated(pool(2))), wanted=plan(small=2)))) == ["s-0001"]
    orders = made.see(seen(60.0, (*fleet, *outdated(pool(1, first=2)))))
    assert (launched(orders, Role.STANDBY), ended(orders)) == ({SLEEPER.name: 1}, [])
    token = made.state.requested[0].token
    for state in (PENDING, READY, InstanceState.DRAINING):
        (new,) = instances(1, SLEEPER, state=state, role=Role.STANDBY, token=token, first=3)
        assert ended(made.see(seen(120.0, (*fleet, *outdated(pool(1, first=2)), new)))) == []
    assert ended(made.see(seen(300.0, (*fleet, *outdated(pool(1, first=2)), *pool(1, first=3))))) == ["s-0002"]


def test_an_outdated_standby_stays_while_no_other_could_be_launched() -> None:
    made = Stepped(WITH_STANDBY)
    fact = LaunchRefused(token="t1-1", offering=SLEEPER.name, count=1, cause=RefusalCause.CAPACITY, at=0.0)
    fleet = (*instances(2), *outdated(pool(2)))
    assert ended(made.see(seen(0.0, fleet, wanted=plan(small=2), facts=(fact,)))) == []
    assert ended(made.see(seen(3600.0, fleet))) == ["s-0001"]


def test_of_surplus_standbys_the_outdated_end_first() -> None:
    made = Stepped(WITH_STANDBY)
    mixed = (*outdated(pool(1)), *pool(2, first=2))
    assert ended(made.see(seen(0.0, (*instances(2), *mixed), wanted=plan(small=2)))) == ["s-0001"]


@given(
    lost=st.lists(st.sampled_from([0, 0, 0, 2]), min_size=8, max_size=24),
    old=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_a_replacement_leaves_at_most_one_standby_missing_and_none_during_a_failover(
    lost: list[int], old: list[bool]
) -> None:
    """Orders are done by the next look; by the end, after calm, nothing outdated is left."""
    made, now = Stepped(WITH_STANDBY), 0.0
    there = {one.id: replace(one, outdated=is_old) for one, is_old in zip(pool(6), old, strict=True)}
    for count in (*lost, *[0] * 24):
        now += 100.0
        fleet, facts = warned(instances(6), count, now)
        orders = made.see(seen(now, (*fleet, *there.values()), wanted=plan(small=6), facts=facts))
        gone = ended(orders)
        if gone:
            assert len(gone) == 1
            assert not count
            assert len(there) == 6
            assert all(one.state is STOPPED for one in there.values())
        for order in orders:
            if isinstance(order, StartStandby):
                there |= {name: replace(there[name], state=READY) for name in order.instances}
            elif isinstance(order, StopStandby):
                there |= {name: replace(there[name], state=STOPPED) for name in order.instances}
            elif isinstance(order, Launch) and order.role is Role.STANDBY:
                new = instances(order.count, SLEEPER, role=Role.STANDBY, token=order.token, first=int(now))
                there |= {one.id: one for one in new}
        there = {name: one for name, one in there.items() if name not in gone}
    assert not any(one.outdated for one in there.values())
    assert len(there) == 6
