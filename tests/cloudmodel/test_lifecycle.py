"""One life, whatever happens to it in whatever order."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.ledger import fleet_usage
from mark.cloudmodel.lifecycle import (
    NEXT,
    TRAITS,
    Event,
    Life,
    Phase,
    allows,
    caught_up,
    credits_at_start,
    credits_kept,
    draw_launch,
    draw_victims,
    draw_wake,
    launched,
    next_due,
    step,
    wake,
    warn,
    when_drained,
)
from mark.domain.billing.costs import Transition
from mark.domain.fleet.instances import InstanceState, Role
from mark.domain.offerings.offering import CREDITED_STARTS_A_DAY, BurstCredits
from mark.domain.offerings.times import CloudTimes, LognormalTime
from tests.planner.builders import offering

NOTICE_S = 120.0
T2 = BurstCredits(vcpus=1, earn_per_hour=6.0, max_balance=144.0, baseline=0.1, launch_credits=30.0)
T3 = BurstCredits(vcpus=2, earn_per_hour=24.0, max_balance=576.0, baseline=0.2, keeps_when_stopped=True)
ASKED = (Event.DRAIN, Event.DRAIN_TO_STOP, Event.STOP, Event.TERMINATE, Event.PROCESS_ENDED)

Steps = list[tuple[str, float]]
"""What happens, and how many seconds after the last."""
STEPS: st.SearchStrategy[Steps] = st.lists(
    st.tuples(
        st.sampled_from(["wait", "warn", "wake", *ASKED]),
        st.one_of(st.just(0.0), st.floats(0.0, 300.0), st.integers(0, 300).map(float)),
    ),
    max_size=30,
)


@dataclass
class Lived:
    """A life and all that it was, each with the instant at which it began."""

    life: Life
    was: list[tuple[float, Life]] = field(default_factory=list)

    def become(self, life: Life, at: float) -> None:
        if life is not self.life:
            self.life = life
            self.was.append((at, life))

    def come_to(self, now: float) -> None:
        while (due := next_due(self.life)) is not None and due[0] <= now:
            self.become(step(self.life, due[1], due[0]), due[0])


def live(steps: Steps, *, pending_s: float = 15.0, boot_s: float = 150.0) -> tuple[Lived, float]:
    lived, now = Lived(launched(0.0, pending_s=pending_s, boot_s=boot_s)), 0.0
    lived.was.append((0.0, lived.life))
    for verb, after_s in steps:
        now += after_s
        lived.come_to(now)
        if verb == "warn":
            lived.become(warn(lived.life, now, NOTICE_S), now)
        elif verb == "wake":
            lived.become(wake(lived.life, now, 75.0), now)
        elif verb != "wait":
            lived.become(step(lived.life, Event(verb), now), now)
    return lived, now


def stretches(lived: Lived, end: float) -> list[tuple[float, float]]:
    """What is billed, by each life's own word."""
    found = [
        (before.billed_since, at)
        for (_, before), (at, after) in pairwise(lived.was)
        if before.billed_since is not None and after.billed_since is None
    ]
    return found if lived.life.billed_since is None else [*found, (lived.life.billed_since, end)]


def test_a_launch_boots_and_is_billed_once_it_runs() -> None:
    lived, _ = live([("wait", 1000.0)])
    assert [(at, life.phase) for at, life in lived.was] == [
        (0.0, Phase.PENDING),
        (15.0, Phase.BOOTING),
        (150.0, Phase.READY),
    ]
    assert stretches(lived, 1000.0) == [(15.0, 1000.0)]


def test_a_standby_wakes_at_once_into_its_bill_and_is_ready_later() -> None:
    lived, _ = live([("stop", 200.0), ("process-ended", 5.0), ("wake", 100.0), ("wait", 100.0)])
    assert [(at, life.phase) for at, life in lived.was[3:]] == [
        (200.0, Phase.STOPPING),
        (205.0, Phase.STOPPED),
        (305.0, Phase.STARTING),
        (305.0, Phase.WAKING),
        (380.0, Phase.READY),
    ]
    assert stretches(lived, 405.0) == [(15.0, 200.0), (305.0, 405.0)]


def test_a_timer_of_an_earlier_boot_finds_nothing_to_do() -> None:
    lived, now = live([("stop", 100.0), ("process-ended", 0.0), ("wake", 10.0), ("wait", 0.0)])
    assert (lived.life.phase, lived.life.ready_at, now) == (Phase.WAKING, 185.0, 110.0)
    assert step(lived.life, Event.SERVE, 150.0) is lived.life
    assert step(lived.life, Event.SERVE, 185.0).phase is Phase.READY


@pytest.mark.parametrize("event", Event)
def test_nothing_leads_out_of_gone(event: Event) -> None:
    assert not [phase for (phase, _) in NEXT if phase is Phase.GONE]
    gone = Life(phase=Phase.GONE, runs_at=0.0, ready_at=0.0)
    assert step(gone, event, 10.0) is gone
    assert warn(gone, 10.0, NOTICE_S) is gone
    assert wake(gone, 10.0, 75.0) is gone
    assert next_due(gone) is None


def test_every_phase_is_reached_and_can_end() -> None:
    assert set(TRAITS) == set(Phase)
    assert set(NEXT.values()) | {Phase.PENDING} == set(Phase)
    assert {phase for phase, event in NEXT if event is Event.TERMINATE} == set(Phase) - {Phase.ENDING, Phase.GONE}
    assert {event for _, event in NEXT} == set(Event)


@pytest.mark.parametrize(("role", "phase"), [(Role.SERVING, Phase.ENDING), (Role.STANDBY, Phase.STOPPING)])
def test_what_is_drained_ends_or_stops_by_its_role(role: Role, phase: Phase) -> None:
    draining = Life(phase=Phase.DRAINING, runs_at=0.0, ready_at=0.0, billed_since=0.0)
    assert step(draining, when_drained(role), 10.0).phase is phase


@given(STEPS)
def test_what_is_billed_never_overlaps_and_never_holds_pending_or_sleep(steps: Steps) -> None:
    lived, end = live(steps)
    billed = stretches(lived, end)
    assert all(started <= ended for started, ended in billed)
    assert all(ended <= started for (_, ended), (started, _) in pairwise(billed))
    for (since, life), (until, _) in pairwise([*lived.was, (end, lived.life)]):
        paid = sum(max(0.0, min(until, ended) - max(since, started)) for started, ended in billed)
        assert paid == pytest.approx(until - since if TRAITS[life.phase].billed else 0.0)
        assert (life.asleep_since is not None) is (life.phase is Phase.STOPPED)


@given(STEPS, st.floats(0.0, 400.0))
def test_a_notice_is_followed_by_the_end_at_its_time_whatever_happens(steps: Steps, before_s: float) -> None:
    lived, now = live([("warn", before_s), *steps])
    notices = {life.terminates_at for _, life in lived.was if life.terminates_at is not None}
    assert notices == {before_s + NOTICE_S}
    lived.come_to(max(now, before_s + NOTICE_S))
    assert lived.life.seen is InstanceState.GONE
    (ended, *_) = [at for at, life in lived.was if life.seen is InstanceState.GONE]
    assert ended <= before_s + NOTICE_S


@given(STEPS)
def test_time_only_goes_on_and_gone_stays_gone(steps: Steps) -> None:
    lived, _ = live(steps)
    assert all(before <= after for (before, _), (after, _) in pairwise(lived.was))
    seen = [life.seen for _, life in lived.was]
    if InstanceState.GONE in seen:
        assert set(seen[seen.index(InstanceState.GONE) :]) == {InstanceState.GONE}


@given(STEPS, st.floats(0.0, 500.0))
def test_who_looks_late_sees_what_who_looked_always_saw(steps: Steps, after_s: float) -> None:
    lived, now = live(steps)
    late = caught_up(lived.life, now + after_s)
    lived.come_to(now + after_s)
    assert late == lived.life


@given(STEPS)
def test_the_ledger_bills_what_the_life_says(steps: Steps) -> None:
    """The bill of a live fleet folds EC2's states; it knows nothing of phases."""
    lived, end = live(steps)
    told = [
        Transition(instance="i", model="m", offering="o", role=Role.STANDBY, state=life.ec2, at=at)
        for at, life in lived.was
    ]
    usage = fleet_usage(told, end)
    billed = [(began, ended) for began, ended in stretches(lived, end) if began < ended]
    found = [(item.started_at, item.ended_at) for item in usage.usages if item.started_at < item.ended_at]
    assert found == billed
    asleep_s = sum(
        until - since
        for (since, life), (until, _) in pairwise([*lived.was, (end, lived.life)])
        if life.phase is Phase.STOPPED
    )
    assert usage.asleep_s == pytest.approx(asleep_s)


def test_a_boot_shorter_than_its_pending_time_is_billed_from_its_end() -> None:
    lived, _ = live([("wait", 100.0)], pending_s=15.0, boot_s=5.0)
    assert [(at, life.phase) for at, life in lived.was[1:]] == [(5.0, Phase.BOOTING), (5.0, Phase.READY)]


@pytest.mark.parametrize("phase", Phase)
def test_an_order_that_comes_twice_does_no_more(phase: Phase) -> None:
    life = Life(phase=phase, runs_at=0.0, ready_at=0.0)
    for event in ASKED:
        once = step(life, event, 10.0)
        assert not allows(once, event) or event is Event.PROCESS_ENDED
        if event is not Event.PROCESS_ENDED:
            assert step(once, event, 11.0) is once


def test_launches_draw_pending_boot_and_life_in_this_order() -> None:
    fixed = LognormalTime(median_s=100.0, p95_s=100.0)
    times = CloudTimes(launch=fixed, wake=LognormalTime(median_s=50.0, p95_s=50.0))
    boots, lives = np.random.default_rng(1), np.random.default_rng(2)
    calm = draw_launch(times, boots, lives, boot_factor=2.0, hazard_per_hour=0.0)
    after = boots.standard_normal(), lives.exponential()
    boots, lives = np.random.default_rng(1), np.random.default_rng(2)
    spot = draw_launch(times, boots, lives, boot_factor=2.0, hazard_per_hour=3600.0)
    assert (calm.pending_s, calm.boot_s, calm.until_notice_s) == (spot.pending_s, 200.0, None)
    assert after == (boots.standard_normal(), lives.exponential())  # the market changes no other draw
    assert spot.until_notice_s == np.random.default_rng(2).exponential()
    assert draw_wake(times, offering().instance_type, boots, boot_factor=3.0) == 150.0


@given(st.floats(0.01, 1.0), st.integers(0, 40))
def test_victims_are_a_share_in_the_order_of_the_pool(share: float, count: int) -> None:
    pool = list(range(count))
    chosen = draw_victims(share, pool, np.random.default_rng(3))
    assert len(chosen) == round(share * count)
    assert chosen == sorted(set(chosen))


def test_starts_that_bring_no_launch_credits_use_up_none() -> None:
    credited: tuple[float, ...] = ()
    for _ in range(CREDITED_STARTS_A_DAY):
        balance, credited = credits_at_start(T3, 7.0, credited, 10.0)
        assert balance == 7.0
    for _ in range(CREDITED_STARTS_A_DAY):
        balance, credited = credits_at_start(T2, None, credited, 20.0)
        assert balance == 30.0
    assert credits_at_start(T2, None, credited, 30.0) == (0.0, credited)
    assert credits_at_start(T2, None, credited, 20.0 + 86_400.0)[0] == 30.0


def test_only_what_keeps_its_credits_has_some_after_a_stop() -> None:
    assert (credits_kept(T3, 12.0), credits_kept(T2, 12.0), credits_kept(None, 12.0)) == (12.0, None, None)
