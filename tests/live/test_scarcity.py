"""Minutes without capacity while spot is taken away: what is counted, what is a fault, and a short one live."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mark.controller.journal import Tick
from mark.domain.fleet.orders import LaunchRefused, RefusalCause, SpotWarned
from tests.controller.builders import SMALL, forecast, seen
from tests.live.scarcity import NO_CAPACITY, Scarcity, faults_of, figures_of, rehearse

LOAD = {
    "sent": 100,
    "answered": 98,
    "attained": 0.99,
    "in_flight": 0,
    "latency_ms": {},
    "by": {"instance": 60, "standby": 0, "lambda": 38, "shed": 1},
    "errors": {},
}


def tick(at: float, *facts: object) -> Tick:
    return Tick(seen=seen(at, facts=facts, expected=forecast(1.0)), orders=(), notes=())  # type: ignore[arg-type]


def test_figures_count_what_was_refused_and_how_long_no_plan_was_made() -> None:
    launch = LaunchRefused(
        token="t", offering=SMALL.name, count=3, cause=RefusalCause.CAPACITY, code=NO_CAPACITY, at=5.0
    )
    wake = replace(launch, instances=("s-1", "s-2"))
    ticks = [
        tick(5.0, launch),
        tick(60.0, wake, SpotWarned(instance="i-1", at=60.0, terminates_at=180.0)),
        tick(150.0),
    ]
    found = figures_of(LOAD, ticks, from_at=0.0, to_at=200.0)  # type: ignore[arg-type]
    assert (found.plans, found.longest_gap_s) == (3, 90.0)
    assert (found.refused_launches, found.refused_wakes, found.warned) == (1, 2, 1)
    assert (found.lost, found.shed, found.by_lambda) == (1, 1, 38)


def test_a_fault_is_a_lost_request_a_missed_objective_or_a_controller_that_stands() -> None:
    found = figures_of(LOAD, [tick(150.0)], from_at=0.0, to_at=200.0)  # type: ignore[arg-type]
    good = replace(found, lost=0, longest_gap_s=60.0, warned=1, refused_launches=1, refused_wakes=1)
    assert list(faults_of(good)) == []
    for wrong in (
        {"lost": 1},
        {"attained": 0.97},
        {"longest_gap_s": 121.0},
        {"warned": 0},
        {"refused_wakes": 0},
        {"forbidden": 1},
    ):
        assert len(list(faults_of(replace(good, **wrong)))) == 1  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_service_without_capacity_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK_STATE", str(tmp_path / "state"))
    assert list(faults_of(rehearse(Scarcity(minutes=4.0, speed=4.0)))) == []
