"""The replay loop: the controller sees the true load, at the right instants, and no minute is left out."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from mark.catalog.load import model
from mark.domain.fleet.orders import Launch
from mark.domain.load.sizes import sizes_from_formula
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Market
from mark.simulator.engine.compiled import Kernel
from mark.simulator.faults import FaultScript
from tests.scenarios.builders import FIXED_WORLD, HISTORY_S, MemoryJournal, experiment, run, surging

MINUTES = 20


@pytest.mark.parametrize("policy", ["greedy-oracle", "reactive"])
def test_the_controller_sees_the_true_demand(kernel: Kernel, policy: str) -> None:
    given, journal = experiment(kernel, Market.ON_DEMAND), MemoryJournal()
    run(given, policy, journal)
    workload = given.spec.workload
    truth = workload.demand(HISTORY_S, HISTORY_S + (MINUTES - 1) * 60.0)
    units = [seen.demand for seen in journal.seen if seen.demand is not None]
    assert tuple(unit.mean_rps for unit in units) == truth.mean_rps
    assert tuple(unit.max_rps for unit in units) == truth.max_rps
    assert [unit.start_at for unit in units] == [HISTORY_S + 60.0 * minute for minute in range(MINUTES - 1)]
    assert [seen.now for seen in journal.seen if seen.demand is not None] == [
        HISTORY_S + 60.0 * minute for minute in range(1, MINUTES)
    ]


def test_a_pool_is_chosen_by_the_sizes_that_came(kernel: Kernel) -> None:
    sized = replace(model("rm2"), sizes=sizes_from_formula("constant:100"))
    given = experiment(
        kernel,
        Market.ON_DEMAND,
        model=sized,
        slo=Slo(latency_s=0.37, target=0.99),
        types=("c5n.2xlarge", "r5n.large"),
        budget_usd_per_hour=2.0,
        size_window=5000,
        overflow=False,
    )
    journal = MemoryJournal()
    run(given, "kairos", journal)
    units = [seen.demand for seen in journal.seen if seen.demand is not None]
    assert [unit.sizes for unit in units] == [((100, unit.count),) for unit in units]
    plans = [seen.plan for seen in journal.seen if seen.plan is not None]
    assert "measured" not in plans[0].reason
    assert "measured: 100 items a request" in plans[-1].reason
    assert all(plan.usd_per_hour <= 2.0 for plan in plans)


def test_recent_rates_are_those_of_the_last_twelve_windows(kernel: Kernel) -> None:
    given, journal = experiment(kernel, Market.ON_DEMAND), MemoryJournal()
    run(given, "reactive", journal)
    counts = given.spec.workload.second_counts(HISTORY_S, HISTORY_S + MINUTES * 60.0)
    windows = counts.reshape(-1, 5).sum(axis=1) / 5.0
    planned = [seen for seen in journal.seen if seen.plan is not None]
    assert len(planned) == MINUTES * 12
    for seen in planned:
        last = round((seen.now - HISTORY_S) / 5.0)
        assert np.array_equal(seen.recent_rps, windows[max(0, last - 12) : last])


def test_a_missed_window_is_answered_at_once(kernel: Kernel) -> None:
    """A load that triples in two minutes, no Lambda: the monitor's launch does not wait for the next tick."""
    given = experiment(
        kernel,
        Market.ON_DEMAND,
        trace=surging(40.0, plus=3.0),
        types=("c5.large",),
        world=FIXED_WORLD,
        overflow=False,
        faults=FaultScript(),
    )
    journal = MemoryJournal()
    run(given, "mark", journal)
    asked = [(at, o) for at, o in journal.orders if isinstance(o, Launch) and o.reason.startswith("SLO monitor")]
    assert asked
    times = [at for at, _ in asked]
    at = times[0]
    seen = next(one for one in journal.seen if one.now == at)
    assert seen.slo is not None
    assert seen.slo.closed_at == at
    assert at % 60.0
    assert all(after - before >= 300.0 for before, after in pairwise(times))


def test_progress_reaches_one_and_never_falls(kernel: Kernel) -> None:
    shares: list[float] = []
    experiment(kernel, Market.ON_DEMAND).run("reactive", progress=lambda label, share: shares.append(share))
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert len(shares) == MINUTES + 1
