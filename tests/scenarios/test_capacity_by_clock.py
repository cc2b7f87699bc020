"""Bounds of capacity by the clock in a replay: ready when they begin, kept while they hold, and folded again."""

from __future__ import annotations

from collections import Counter

import pytest

from mark.controller.journal import read_journal
from mark.controller.replay_check import mismatches
from mark.domain.offerings.offering import Market
from mark.domain.plans.capacity_schedule import CapacityWindow
from mark.simulator.engine.compiled import Kernel
from tests.scenarios.builders import FIXED_WORLD, MemoryJournal, experiment, run, up_and_down

MINUTE_S = 60.0
HOUR_S = 3600
LEAST = CapacityWindow(start_s=HOUR_S + 8 * 60, end_s=HOUR_S + 14 * 60, min_rps=150.0)
"""While about 90 requests/s arrive."""
MOST = CapacityWindow(start_s=HOUR_S + 16 * 60, end_s=HOUR_S + 30 * 60, max_rps=40.0)
"""While 90 requests/s arrive still, and then 10."""


@pytest.mark.parametrize("policy", ["hedged", "reactive"])
def test_a_replay_has_the_minimum_ready_in_time_and_never_more_than_the_maximum(
    kernel: Kernel, policy: str
) -> None:
    made = experiment(
        kernel,
        Market.ON_DEMAND,
        trace=up_and_down(),
        types=("c5.large", "c5.xlarge"),
        world=FIXED_WORLD,
        capacity=(LEAST, MOST),
    )
    journal = MemoryJournal()
    run(made, policy, journal)
    header, ticks = read_journal(journal.lines)
    told = list(ticks)
    usable = {item.name: item.capacity_rps for item in header.policy.known_offerings}
    ready = {tick.seen.now: _carried(tick.seen.fleet.ready, usable) for tick in told}

    # instances answer what they hold before they leave; plans count less than the raw capacity of each
    within = [rps for at, rps in ready.items() if LEAST.start_s <= at < LEAST.end_s]
    beyond = [rps for at, rps in ready.items() if MOST.start_s + 2 * MINUTE_S <= at < MOST.end_s]
    assert len(within) >= 5
    assert min(within) >= 150.0
    plans = [tick.seen.plan for tick in told if tick.seen.plan is not None and MOST.is_in_force(tick.seen.now)]
    assert plans
    assert all(plan.capacity_rps <= 40.0 + 1e-6 and plan.limit_rps == 40.0 for plan in plans)
    assert len(beyond) >= 10
    assert max(beyond) <= 40.0 * 1.25
    assert list(mismatches(header, iter(told))) == []


def _carried(counts: Counter[str], usable: dict[str, float]) -> float:
    return sum(usable[name] * count for name, count in counts.items())
