"""The launch breaker: what never becomes ready is bought no more for a while, then tried one at a time."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mark.controller.limits.launch_breaker import LaunchBreakerPolicy, LaunchRecord, note_launches
from mark.controller.state import NoteKind, State
from mark.domain.demand import Demand
from mark.domain.fleet.instances import FleetView, InstanceState, Role
from mark.domain.fleet.orders import LaunchFailed
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
from tests.controller.state_rules import check_state

BREAKER = LaunchBreakerPolicy(failures=3, of=4, open_s=600.0, longest_s=3000.0)
GUARDED = replace(POLICY, launch_breaker=BREAKER)
WHY = "Client.InternalError: Client error on launch"
NOBODY = FleetView()


def failed(at: float, number: int = 1, name: str = SMALL.name) -> LaunchFailed:
    return LaunchFailed(instance=f"i-{number:04d}", offering=name, at=at, code="Client.InternalError", detail=WHY)


def opened(at: float = 0.0) -> tuple[LaunchRecord, ...]:
    return note_launches((), [failed(at, number) for number in range(3)], NOBODY, at, BREAKER)


def fleet(count: int, launched_at: float, state: InstanceState = InstanceState.READY) -> FleetView:
    return FleetView(instances=instances(count, launched_at=launched_at, state=state))


def test_two_failures_do_not_open_it_and_the_third_does_with_awss_reason() -> None:
    records: tuple[LaunchRecord, ...] = ()
    for number in range(2):
        records = note_launches(records, [failed(float(number))], NOBODY, float(number), BREAKER)
    assert not records[0].is_open(1.0)
    [record] = note_launches(records, [failed(2.0)], NOBODY, 2.0, BREAKER)
    assert (record.is_open(601.9), record.is_open(602.0), record.why) == (True, False, WHY)


def test_launches_that_become_ready_between_keep_it_closed() -> None:
    records: tuple[LaunchRecord, ...] = ()
    for number in range(12):
        at = 100.0 * number
        facts = [failed(at)] if number % 2 else []
        records = note_launches(records, facts, fleet(1, launched_at=at), at, BREAKER)
        assert not any(record.is_open(at) for record in records)


def test_instances_that_were_ready_before_count_for_nothing() -> None:
    records = note_launches((), [failed(10.0)], fleet(5, launched_at=0.0), 10.0, BREAKER)
    assert records[0].outcomes == (False,)
    assert note_launches(records, (), fleet(5, launched_at=0.0), 20.0, BREAKER) == records


def test_a_standby_that_wakes_and_an_instance_that_is_heard_again_prove_no_launch() -> None:
    """The standby's image is the old one, and the instance was launched before anything failed."""
    awake = FleetView(instances=instances(1, launched_at=5.0, role=Role.STANDBY))
    assert note_launches(opened(at=10.0), (), awake, 700.0, BREAKER) == opened(at=10.0)
    assert note_launches(opened(at=10.0), (), fleet(1, launched_at=5.0), 700.0, BREAKER) == opened(at=10.0)


def test_one_that_is_tried_and_fails_opens_it_for_twice_as_long_up_to_the_longest() -> None:
    records, lengths = opened(), []
    for _ in range(5):
        [record] = records
        lengths.append(record.open_s)
        assert record.is_trying(record.closes_at)
        records = note_launches(records, [failed(record.closes_at)], NOBODY, record.closes_at, BREAKER)
    assert lengths == [600.0, 1200.0, 2400.0, 3000.0, 3000.0]


def test_one_that_is_tried_and_becomes_ready_closes_it() -> None:
    assert note_launches(opened(), (), fleet(1, launched_at=650.0), 700.0, BREAKER) == ()


def test_other_offerings_are_launched_on() -> None:
    assert [record.offering for record in opened()] == [SMALL.name]
    made = Stepped(GUARDED)
    made.see(seen(0.0, facts=tuple(failed(0.0, number) for number in range(3))))
    orders = made.see(seen(60.0, wanted=plan(small=2, large=1)))
    assert launched(orders) == {LARGE.name: 1}
    assert NoteKind.LAUNCH_BREAKER in {note.kind for note in made.last.notes}
    assert any(WHY in note.text for note in made.last.notes)


def test_the_plan_does_without_what_never_becomes_ready() -> None:
    made = Stepped(GUARDED)
    made.see(seen(0.0, facts=tuple(failed(0.0, number) for number in range(3))))
    history = Demand(end_at=0.0, mean_rps=(30.0,), max_rps=(30.0,))
    request = request_at(made.state, seen(60.0), GUARDED, history=history, forecast=forecast(30.0))
    assert SMALL.name in request.refused
    assert [item.name for item in request.offerings] == [LARGE.name]


def test_it_is_tried_one_at_a_time() -> None:
    made = Stepped(GUARDED)
    made.see(seen(0.0, facts=tuple(failed(0.0, number) for number in range(3))))
    assert launched(made.see(seen(599.0, wanted=plan(small=3)))) == {}
    (order,) = made.see(seen(600.0, wanted=plan(small=3)))
    assert launched((order,)) == {SMALL.name: 1}
    assert made.see(seen(605.0, wanted=plan(small=3))) == ()  # it was not seen yet
    booting = instances(1, state=InstanceState.PENDING, token=order.token, launched_at=601.0)
    assert made.see(seen(660.0, booting, wanted=plan(small=3))) == ()
    ready = instances(1, token=order.token, launched_at=601.0)
    assert launched(made.see(seen(720.0, ready, wanted=plan(small=3)))) == {SMALL.name: 2}


def test_a_policy_without_a_breaker_remembers_nothing() -> None:
    """As in journals from before there was one."""
    made = Stepped(POLICY)
    made.see(seen(0.0, facts=tuple(failed(0.0, number) for number in range(9))))
    assert made.state == replace(made.state, launch_records=())
    assert launched(made.see(seen(60.0, wanted=plan(small=2)))) == {SMALL.name: 2}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=20))
def test_it_is_open_only_while_enough_of_the_last_launches_failed(ticks: list[tuple[int, int]]) -> None:
    records: tuple[LaunchRecord, ...] = ()
    for number, (failures, ready) in enumerate(ticks):
        at = 60.0 * number
        facts = [failed(at, one) for one in range(failures)]
        records = note_launches(records, facts, fleet(ready, launched_at=at), at, BREAKER)
        check_state(State(launch_records=records))
        for record in records:
            assert len(record.outcomes) <= BREAKER.of
            assert not all(record.outcomes)
            assert 0.0 <= record.open_s <= BREAKER.longest_s
            if record.opened_at == at:
                assert record.outcomes.count(False) >= BREAKER.failures
