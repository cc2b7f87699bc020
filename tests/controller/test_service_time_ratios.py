"""What agents measured goes back to the planner: bounded, in steps, and written down so that a journal folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.cloudmodel.noise import noise_factor
from mark.controller.journal import Header, entry_line, header_line, read_journal
from mark.controller.replay_check import mismatches
from mark.controller.service_time_ratios import ServiceTimeRatios, measured_ratios, ratio_notes, with_ratios
from mark.controller.state import Decision, Note, NoteKind, Observation
from mark.dispatch.instance.measured import MeasuredTimes
from mark.domain.fleet.instances import FleetView, InstanceState, Role
from mark.domain.fleet.member import Member, MemberState
from tests.controller.builders import LARGE, POLICY, SLEEPER, SMALL, WITH_STANDBY, instances, launched
from tests.controller.test_runner import HISTORY, World, controller_of


def members(ratio: float, count: int = 1, *, role: Role = Role.SERVING, kind: str = SMALL.name) -> list[Member]:
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
            batch_s=(profile.latency_s(1) * ratio,),
            capacity_rps=1.0,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("ratio", "told"), [(1.0, ()), (1.02, ()), (1.31, 1.3), (0.81, 0.8), (9.0, 2.0), (0.01, 0.5)]
)
def test_a_ratio_is_told_in_steps_and_bounded(ratio: float, told: float | tuple[()]) -> None:
    expected = ((SMALL.name, told),) if told else ()
    assert measured_ratios(members(ratio, 3), POLICY) == expected


def test_the_middle_one_counts_and_standbys_and_unknown_ones_do_not() -> None:
    mixed = [*members(1.5, 2), *members(1.0, 3)]
    assert measured_ratios(mixed, POLICY) == ()
    others = [*members(1.5, role=Role.STANDBY, kind=SLEEPER.name), *members(1.5, kind="gone")]
    assert measured_ratios(others, WITH_STANDBY) == ()
    starting = [replace(member, state=MemberState.STARTING) for member in members(1.5)]
    assert measured_ratios(starting, POLICY) == ()


@pytest.mark.parametrize(
    ("ratio", "count", "told"),
    [(1.1, 1, ()), (1.2, 1, 1.2), (0.95, 4, ()), (1.1, 4, 1.1), (1.05, 16, 1.05), (2.5, 1, 2.0)],
)
def test_what_noise_explains_moves_no_plan(ratio: float, count: int, told: float | tuple[()]) -> None:
    noisy = replace(POLICY, offerings=tuple(replace(item, cv=0.1) for item in POLICY.offerings))
    expected = ((SMALL.name, told),) if told else ()
    assert measured_ratios(members(ratio, count), noisy) == expected


@pytest.mark.parametrize("cv", [0.1, 0.25])
@pytest.mark.parametrize("count", [1, 4])
def test_machines_that_are_as_fast_as_their_profile_say_so_in_spite_of_noise(cv: float, count: int) -> None:
    noisy = replace(POLICY, offerings=tuple(replace(item, cv=cv) for item in POLICY.offerings))
    rng = np.random.default_rng(5)
    measured = [MeasuredTimes([SMALL.profile.latency_s(1)], cv) for _ in range(count)]
    told = 0
    for _ in range(300):
        for machine in measured:
            for normal in rng.standard_normal(20):
                machine.note(1, SMALL.profile.latency_s(1) * noise_factor(cv, float(normal)))
        seen = [
            replace(member, batch_s=machine.batch_s)
            for member, machine in zip(members(1.0, count), measured, strict=True)
        ]
        told += bool(measured_ratios(seen, noisy))
    assert told <= 6


@given(ratio=st.floats(0.01, 20.0))
def test_an_offering_with_a_ratio_takes_that_much_longer_and_carries_that_much_less(ratio: float) -> None:
    ratios = measured_ratios(members(ratio), POLICY)
    slowed = with_ratios(POLICY, ratios).offering(SMALL.name)
    assert slowed is not None
    told = dict(ratios).get(SMALL.name, 1.0)
    assert 0.5 <= told <= 2.0
    assert slowed.latency_s == pytest.approx(SMALL.latency_s * told)
    assert slowed.capacity_rps == pytest.approx(SMALL.capacity_rps / told)
    assert with_ratios(POLICY, ratios).offering(LARGE.name) == LARGE
    if 0.5 < ratio < 2.0:
        assert told == pytest.approx(ratio, abs=0.0251)


def test_a_profile_that_is_wrong_by_a_fifth_is_told() -> None:
    text = f"{SMALL.name} takes 1.3 times as long as its profile says"
    assert ratio_notes(((SMALL.name, 1.3),)) == (Note(kind=NoteKind.SERVICE_TIME, text=text),)
    assert ratio_notes(((SMALL.name, 1.2), (LARGE.name, 0.8))) == ()
    assert len(ratio_notes(((SMALL.name, 0.75),))) == 1


class Measured(World):
    """A world whose instances slow down, and whose journal keeps its lines."""

    lines: list[bytes]
    ratio: float

    def measure(self) -> ServiceTimeRatios:
        return measured_ratios(members(self.ratio), ONLY_SMALL)

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        self.lines.append(entry_line(before, seen, decision))


ONLY_SMALL = replace(POLICY, offerings=(SMALL,))


def run(ratios: Sequence[float], rate: float) -> tuple[Measured, list[Decision]]:
    world = Measured(rate=rate, fleet=instances(3, state=InstanceState.READY))
    world.lines = [header_line(Header(policy=ONLY_SMALL, catalogue="c", seed=1, history=HISTORY))]
    made = controller_of(world, ONLY_SMALL, fallback=world, measure=world.measure)
    decisions = []
    for minute, ratio in enumerate(ratios):
        world.at, world.ratio = 60.0 * minute, ratio
        decisions.append(made.tick())
    return world, decisions


@given(ratios=st.lists(st.floats(0.1, 5.0), min_size=1, max_size=5), rate=st.floats(1.0, 400.0))
@settings(max_examples=40, deadline=None)
def test_a_journal_with_ratios_folds_to_the_same_orders_and_plans(ratios: list[float], rate: float) -> None:
    world, _ = run(ratios, rate)
    assert list(mismatches(*read_journal(world.lines))) == []


def test_what_is_slower_is_planned_in_larger_numbers() -> None:
    (_, slow), (_, plain) = run([1.5], 60.0), run([1.0], 60.0)
    assert launched(slow[0].orders)[SMALL.name] > launched(plain[0].orders)[SMALL.name]
    assert any("1.5 times as long" in note.text for note in slow[0].notes if note.kind is NoteKind.SERVICE_TIME)
