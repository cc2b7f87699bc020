"""What `mark explain` says a tick saw: what the policy has, and nothing that it has not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.controller.journal import Header, Tick, entry_line, header_line
from mark.controller.policy import ControllerPolicy, StandbyPolicy
from mark.controller.state import Decision, Note, NoteKind, State
from mark.domain.demand import Demand
from mark.domain.fleet.instances import FleetView, InstanceState, Role
from mark.domain.fleet.orders import (
    Fact,
    ForecastFailed,
    LaunchRefused,
    PlanFailed,
    RefusalCause,
    SpotWarned,
    StartStandby,
)
from mark.domain.models.objective import SloWindow
from mark.offline.explanation.boot_times import BootTimes, boot_lines
from mark.offline.explanation.explain import explain_journal, explained
from tests.controller.builders import POLICY, SMALL, WATCHED, instances, seen

WINDOW = SloWindow(closed_at=60.0, requests=1004, missed=3)


@pytest.mark.parametrize(("policy", "told"), [(WATCHED, True), (POLICY, False)])
def test_the_monitors_window_is_told_of_policies_that_have_a_monitor(policy: ControllerPolicy, told: bool) -> None:
    header = Header(policy=policy, catalogue="", seed=0, history=Demand(end_at=0.0, mean_rps=(), max_rps=()))
    tick = Tick(seen=replace(seen(60.0, instances(1), slo=WINDOW), lambda_warm=19), orders=(), notes=())
    said = explained(tick, header, 0.0).seen

    assert ("3 of 1004 requests missed in the monitor's window" in said) is told
    assert "19 warm Lambda environments" in said


REFUSED = LaunchRefused(
    token="t1-1",
    offering=SMALL.name,
    count=3,
    cause=RefusalCause.CAPACITY,
    code="InsufficientInstanceCapacity",
    zone="us-east-1a",
    at=60.0,
)
CUT = LaunchRefused(
    token="t1-1",
    offering=SMALL.name,
    count=2,
    cause=RefusalCause.GUARDRAIL,
    detail="9 and 2 more exceed 10",
    at=60.0,
)
TOLD = {
    "a notice": (
        SpotWarned(instance="i-1", at=60.0, terminates_at=180.0),
        "spot notice: i-1 goes in 120 s",
    ),
    "a pool without capacity": (
        REFUSED,
        f"3 {SMALL.name} refused: InsufficientInstanceCapacity in us-east-1a",
    ),
    "a second pool": (
        replace(REFUSED, count=0, zone="us-east-1b"),
        f"{SMALL.name} also refused: InsufficientInstanceCapacity in us-east-1b",
    ),
    "a guardrail": (CUT, f"2 {SMALL.name} refused: guardrail: 9 and 2 more exceed 10"),
    "a shortfall without a code": (
        replace(CUT, cause=RefusalCause.CAPACITY, detail=""),
        f"2 {SMALL.name} refused: capacity",
    ),
    "a failed forecast": (
        ForecastFailed(forecaster="lstm", error="ValueError: no", at=60.0),
        "the forecaster lstm failed: ValueError: no",
    ),
    "a failed plan": (PlanFailed(error="no fleet is enough", at=60.0), "no plan: no fleet is enough"),
}


@pytest.mark.parametrize(("fact", "told"), TOLD.values(), ids=TOLD)
def test_each_fact_is_told_by_what_it_is(fact: Fact, told: str) -> None:
    header = Header(policy=POLICY, catalogue="", seed=0, history=Demand(end_at=0.0, mean_rps=(), max_rps=()))
    tick = Tick(seen=seen(60.0, instances(1), facts=(fact,)), orders=(), notes=())
    assert explained(tick, header, 0.0).seen.split("; ")[-1] == told


def test_a_journal_in_short_has_the_phases_of_rollouts(capsys: pytest.CaptureFixture[str]) -> None:
    header = Header(policy=POLICY, catalogue="", seed=0, history=Demand(end_at=0.0, mean_rps=(), max_rps=()))
    lines = [header_line(header)]
    for minute in range(20):
        note = Note(kind=NoteKind.ROLLOUT, text=f"version b in place of a: phase {minute}")
        here = seen(60.0 * minute, instances(1))
        before = here.fleet if minute else FleetView()
        lines.append(entry_line(before, here, Decision(state=State(), notes=(note,))))
    explain_journal(lambda: lines, minute=None, as_json=False)
    out = capsys.readouterr().out
    assert "minute 19, version b in place of a: phase 19" in out
    assert "phase 8\n" in out
    assert "phase 7\n" not in out, "the last dozen alone"


def test_boots_and_wakes_are_told_beside_what_plans_assume() -> None:
    standby = StandbyPolicy(offering=SMALL, wake_s=70.0)
    sleeper = instances(1, role=Role.STANDBY, state=InstanceState.STOPPED)
    found = BootTimes()
    for now, state, woken in ((10.0, InstanceState.PENDING, ()), (130.0, InstanceState.READY, (sleeper[0].id,))):
        orders = (StartStandby(token="t", reason="", instances=woken),) if woken else ()
        found.note(Tick(seen=seen(now, (*instances(2, state=state), *sleeper)), orders=orders, notes=()))
    found.note(Tick(seen=seen(131.0, sleeper), orders=(), notes=()))  # it sleeps still
    found.note(Tick(seen=seen(210.0, instances(1, role=Role.STANDBY)), orders=(), notes=()))

    launched, woke = boot_lines(found.documents(replace(POLICY, standby=standby)))
    times = "70 s at the median, 70 s at the 95 % point"
    assert launched == f"launch of {SMALL.name} until ready: {times} of 2; plans assume {SMALL.boot_s:.0f} s"
    assert (
        woke
        == f"wake of {SMALL.name} until ready: {times.replace('70', '40')} of 1; plans assume 70 s in the mean"
    )
