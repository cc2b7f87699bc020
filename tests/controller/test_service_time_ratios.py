"""What agents measured goes back to the planner: bounded, in steps, and written down so that a journal folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.controller.journal import Header, entry_line, header_line, read_journal
from mark.controller.replay_check import deviations
from mark.controller.runner import Controller
from mark.controller.service_time_ratios import Paces, measured_paces, told_paces, with_paces
from mark.controller.state import Decision, Note, NoteKind, Observation
from mark.domain.fleet import FleetView, InstanceState, Role
from mark.domain.member import Member, MemberState
from tests.controller.builders import LARGE, POLICY, SLEEPER, SMALL, WITH_STANDBY, instances, launched
from tests.controller.test_runner import HISTORY, World


def members(pace: float, count: int = 1, *, role: Role = Role.SERVING, kind: str = SMALL.name) -> list[Member]:
    profile = (SLEEPER if role is Role.STANDBY else SMALL).profile
    return [
        Member(
            instance=f"i-{number}",
            model="m",
            offering=kind,
            role=role,
            host="h",
            port=1,
            state=MemberState.READY,
            max_batch=1,
            batch_s=(profile.latency_s(1) * pace,),
            capacity_rps=1.0,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("pace", "told"), [(1.0, ()), (1.02, ()), (1.31, 1.3), (0.81, 0.8), (9.0, 2.0), (0.01, 0.5)]
)
def test_a_pace_is_told_in_steps_and_bounded(pace: float, told: float | tuple[()]) -> None:
    expected = ((SMALL.name, told),) if told else ()
    assert measured_paces(members(pace, 3), POLICY) == expected


def test_the_middle_one_counts_and_standbys_and_unknown_ones_do_not() -> None:
    mixed = [*members(1.5, 2), *members(1.0, 3)]
    assert measured_paces(mixed, POLICY) == ()
    others = [*members(1.5, role=Role.STANDBY, kind=SLEEPER.name), *members(1.5, kind="gone")]
    assert measured_paces(others, WITH_STANDBY) == ()
    starting = [replace(member, state=MemberState.STARTING) for member in members(1.5)]
    assert measured_paces(starting, POLICY) == ()


@given(pace=st.floats(0.01, 20.0))
def test_a_paced_offering_takes_that_much_longer_and_carries_that_much_less(pace: float) -> None:
    paces = measured_paces(members(pace), POLICY)
    paced = with_paces(POLICY, paces).offering(SMALL.name)
    assert paced is not None
    told = dict(paces).get(SMALL.name, 1.0)
    assert 0.5 <= told <= 2.0
    assert paced.latency_s == pytest.approx(SMALL.latency_s * told)
    assert paced.capacity_rps == pytest.approx(SMALL.capacity_rps / told)
    assert with_paces(POLICY, paces).offering(LARGE.name) == LARGE
    if 0.5 < pace < 2.0:
        assert told == pytest.approx(pace, abs=0.0251)


def test_a_profile_that_is_wrong_by_a_fifth_is_told() -> None:
    text = f"{SMALL.name} takes 1.3 times as long as its profile says"
    assert told_paces(((SMALL.name, 1.3),)) == (Note(kind=NoteKind.SERVICE_TIME, text=text),)
    assert told_paces(((SMALL.name, 1.2), (LARGE.name, 0.8))) == ()
    assert len(told_paces(((SMALL.name, 0.75),))) == 1


class Measured(World):
    """A world whose instances slow down, and whose journal keeps its lines."""

    lines: list[bytes]
    pace: float

    def measure(self) -> Paces:
        return measured_paces(members(self.pace), ONLY_SMALL)

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        self.lines.append(entry_line(before, seen, decision))


ONLY_SMALL = replace(POLICY, offerings=(SMALL,))


def run(paces: Sequence[float], rate: float) -> tuple[Measured, list[Decision]]:
    world = Measured(rate=rate, fleet=instances(3, state=InstanceState.READY))
    world.lines = [header_line(Header(policy=ONLY_SMALL, catalogue="c", seed=1, history=HISTORY))]
    made = Controller(
        policy=ONLY_SMALL,
        clock=world,
        cloud=world,
        data_plane=world,
        forecaster=world,
        fallback=world,
        journal=world,
        history=HISTORY,
        measure=world.measure,
    )
    decisions = []
    for minute, pace in enumerate(paces):
        world.at, world.pace = 60.0 * minute, pace
        decisions.append(made.tick())
    return world, decisions


@given(paces=st.lists(st.floats(0.1, 5.0), min_size=1, max_size=5), rate=st.floats(1.0, 400.0))
@settings(max_examples=40, deadline=None)
def test_a_journal_with_paces_folds_to_the_same_orders_and_plans(paces: list[float], rate: float) -> None:
    world, _ = run(paces, rate)
    assert list(deviations(*read_journal(world.lines))) == []


def test_what_is_slower_is_planned_in_larger_numbers() -> None:
    (_, slow), (_, plain) = run([1.5], 60.0), run([1.0], 60.0)
    assert launched(slow[0].orders)[SMALL.name] > launched(plain[0].orders)[SMALL.name]
    assert any("1.5 times as long" in note.text for note in slow[0].notes if note.kind is NoteKind.SERVICE_TIME)
