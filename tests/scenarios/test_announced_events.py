"""An announced event in a replay: its load is served from its first minute on, and not expected after it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.controller.journal import read_journal
from mark.controller.replay_check import mismatches
from mark.domain.load.announced_events import AnnouncedEvent, Events
from mark.domain.offerings.offering import Market
from mark.simulator.engine.compiled import Kernel
from mark.simulator.results import RunResult
from mark.simulator.traces.trace import Trace
from tests.scenarios.builders import FIXED_WORLD, HISTORY_S, MemoryJournal, experiment, run

BEGINS_S, ENDS_S = HISTORY_S + 900.0, HISTORY_S + 1800.0
SALE = AnnouncedEvent(name="sale", at=BEGINS_S, until=ENDS_S, factor=4.0)


def sale(*, factor: float = 4.0) -> Trace:
    """An hour at 30 requests/s, and three quarters of one with `factor` times as many in their second third."""
    at_s = np.arange(HISTORY_S + 2700.0)
    means = np.where((at_s >= BEGINS_S) & (at_s < ENDS_S), 30.0 * factor, 30.0)
    rng = np.random.default_rng(5)
    return Trace(
        name="sale", start_at=0.0, bin_s=1.0, rates_rps=rng.poisson(means).astype(float), whole_counts=True
    )


def replayed(kernel: Kernel, policy: str, events: Events, trace: Trace) -> tuple[RunResult, MemoryJournal]:
    made = experiment(
        kernel,
        Market.ON_DEMAND,
        trace=trace,
        types=("c5.large", "c5.xlarge"),
        world=FIXED_WORLD,
        overflow=False,
        standby_share=0.0,
        events=events,
    )
    journal = MemoryJournal()
    return run(made, policy, journal), journal


@pytest.mark.parametrize("policy", ["hedged", "mark"])
def test_what_is_announced_is_served_and_what_is_not_is_missed(kernel: Kernel, policy: str) -> None:
    announced, journal = replayed(kernel, policy, (SALE,), sale())
    unknown, _ = replayed(kernel, policy, (), sale())
    assert announced.attained >= 0.98
    assert announced.attained > unknown.attained + 0.05
    header, ticks = read_journal(journal.lines)
    told = list(ticks)
    assert list(mismatches(header, iter(told))) == []
    counted = [tick.seen.now for tick in told if tick.seen.forecast and SALE in tick.seen.forecast.events]
    assert counted[0] <= BEGINS_S - 600.0
    assert counted[-1] < ENDS_S
    # in the middle of it, it is expected once, and after it no more
    middle = next(tick.seen.forecast for tick in told if tick.seen.now >= BEGINS_S + 600.0 and tick.seen.forecast)
    rates = [row[0] for row in middle.mean_rps]
    assert rates[0] == pytest.approx(120.0, rel=0.2)
    assert rates[30] == pytest.approx(30.0, rel=0.2)


def test_an_event_of_which_nothing_comes_leaves_forecasts_after_it_as_they_were(kernel: Kernel) -> None:
    _, journal = replayed(kernel, "hedged", (SALE,), sale(factor=1.0))
    _, plain = replayed(kernel, "hedged", (), sale(factor=1.0))
    after = [seen.forecast for seen in journal.seen if seen.now >= ENDS_S and seen.forecast]
    assert after
    for found, usual in zip(
        after, [seen.forecast for seen in plain.seen if seen.now >= ENDS_S and seen.forecast], strict=True
    ):
        assert found.mean_rps[0][0] == pytest.approx(usual.mean_rps[0][0], rel=0.1)


def test_a_policy_that_knows_the_load_to_come_is_told_of_no_event(kernel: Kernel) -> None:
    _, journal = replayed(kernel, "greedy-oracle", (replace(SALE, factor=9.0),), sale())
    assert not any(seen.forecast.events for seen in journal.seen if seen.forecast)
