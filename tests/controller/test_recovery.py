"""A journal is folded to where its controller stopped, with or without a checkpoint in between."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from mark.controller.journal import Header, Tick, entry_line, header_line, read_journal
from mark.controller.recovery import recover, unseen_orders
from mark.controller.replay_check import mismatches
from mark.controller.runner import Controller
from mark.controller.state import Decision, Observation, Requested, State
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.orders import Drain, Launch, LaunchRefused, RefusalCause, Withdraw
from tests.controller.builders import POLICY, SMALL, unit
from tests.controller.test_runner import HISTORY, World, controller_of

LATE = replace(POLICY, cooldown_s=120.0, request_timeout_s=200.0)


class Journalled(World):
    """A world whose journal keeps its lines; it opens the next journal at the ticks that it is told."""

    segments: list[list[bytes]]

    def open(self) -> None:
        self.segments = [[header_line(Header(policy=LATE, catalogue="c", seed=1, history=HISTORY))]]

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        self.segments[-1].append(entry_line(before, seen, decision))


STEPS = st.lists(st.tuples(st.floats(0.0, 200.0), st.integers(0, 4), st.booleans()), min_size=1, max_size=8)


def ran(steps: list[tuple[float, int, bool]], *, rotate_after: int | None) -> tuple[Journalled, Controller]:
    """A controller over some minutes: (rate, instances of the last launch that appear, whether one is refused)."""
    world = Journalled()
    world.open()
    made = controller_of(world, LATE, fallback=world)
    for number, (rate, appear, refuse) in enumerate(steps):
        world.at, world.rate = 60.0 * number, rate
        world.ended = replace(unit(rate), start_at=60.0 * (number - 1)) if number else None
        launches = [order for order in world.log if isinstance(order, Launch)]
        if launches:
            token, count = launches[-1].token, launches[-1].count
            world.fleet = tuple(
                {i.id: i for i in (*world.fleet, *born(token, min(appear, count), number))}.values()
            )
            world.fleet = tuple(sorted(world.fleet, key=lambda one: one.id))
            if refuse and appear < count:
                world.happened.append(
                    LaunchRefused(
                        token=token,
                        offering=launches[-1].offering,
                        count=1,
                        cause=RefusalCause.CAPACITY,
                        at=world.at,
                    )
                )
        made.tick()
        if number == rotate_after:
            header = Header(
                policy=LATE, catalogue="c", seed=1, history=made.history, checkpoint=made.checkpoint, run="r"
            )
            world.segments.append([header_line(header)])
    return world, made


def born(token: str, count: int, number: int) -> tuple[Instance, ...]:
    return tuple(
        Instance(
            id=f"i-{token}-{n}", offering=SMALL.name, state=InstanceState.READY, token=token, launched_at=number
        )
        for n in range(count)
    )


@given(steps=STEPS)
@settings(max_examples=60, deadline=None)
def test_a_journal_is_folded_to_where_its_controller_stopped(steps: list[tuple[float, int, bool]]) -> None:
    world, made = ran(steps, rotate_after=None)
    found = recover(*read_journal(world.segments[0]))
    assert found is not None
    assert found.state == made.state
    assert found.fleet == made.fleet
    assert found.history(HISTORY, 1000) == made.history
    assert found.first_at == 0.0
    assert found.unseen == made.checkpoint.orders
    waited_for = {item.token for item in made.state.requested}
    assert waited_for <= {order.token for order in found.unseen}


@given(steps=STEPS, place=st.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_a_journal_that_follows_needs_no_line_before_it(steps: list[tuple[float, int, bool]], place: int) -> None:
    whole, _ = ran(steps, rotate_after=None)
    cut, made = ran(steps, rotate_after=min(place, len(steps) - 1))
    first, second = cut.segments
    header, ticks = read_journal(second)
    listed: list[Tick] = list(ticks)
    found, expected = recover(header, listed), recover(*read_journal(whole.segments[0]))
    assert found is not None
    assert expected is not None
    assert replace(found, units=()) == replace(expected, units=())
    assert found.history(header.history, 1000) == made.history
    assert list(mismatches(header, listed)) == []
    assert list(mismatches(*read_journal(first))) == []


def test_an_empty_journal_says_nothing() -> None:
    world = Journalled()
    world.open()
    assert recover(*read_journal(world.segments[0])) is None


def test_what_was_withdrawn_of_a_launch_is_withdrawn_again_while_it_is_waited_for() -> None:
    launch = Launch(token="t1-1", reason="r", offering=SMALL.name, count=5)
    withdraw = Withdraw(token="t2-1", reason="r", launch="t1-1", offering=SMALL.name, count=2)
    drain = Drain(token="t2-2", reason="r", instances=("i-1",))
    asked = Requested(token="t1-1", offering=SMALL.name, total=5, role=Role.SERVING, at=0.0, withdrawing=2)
    waits = State(requested=(asked,))
    assert unseen_orders((launch,), waits, (withdraw, drain)) == (launch, withdraw, drain)
    assert unseen_orders((launch, withdraw, drain), waits, ()) == (launch, withdraw)
    assert unseen_orders((launch, withdraw), State(), ()) == ()
