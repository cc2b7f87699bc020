"""A zone lost for an hour in a replay: Lambda and the other zones keep the objective."""

from __future__ import annotations

from collections import Counter

from mark.cloudmodel.world import TYPICAL
from mark.domain.offerings.offering import Market
from mark.simulator.engine.compiled import Kernel
from mark.simulator.faults import FaultScript, Interrupt, Refuse
from mark.simulator.results import RunResult
from mark.simulator.traces.generators import constant
from tests.scenarios.builders import HISTORY_S, MemoryJournal, experiment, run

LOST_AT_S, HOUR_S = 600.0, 3600.0
POOL = "c5.large:spot"


def served(kernel: Kernel, faults: FaultScript | None = None) -> tuple[RunResult, MemoryJournal]:
    journal = MemoryJournal()
    trace = constant(40.0, duration_s=HISTORY_S + LOST_AT_S + HOUR_S)
    given = experiment(kernel, Market.SPOT, trace=trace, types=("c5.large",), world=TYPICAL, faults=faults)
    return run(given, "hedged", journal), journal


def zones_at(journal: MemoryJournal, at_s: float) -> Counter[str]:
    start_at = journal.seen[0].now
    seen = next(one for one in journal.seen if one.now >= start_at + at_s)
    return Counter(item.zone for item in seen.fleet if item.stays)


def test_the_loss_of_the_zone_in_which_a_fleet_stands_is_covered(kernel: Kernel) -> None:
    _, before = served(kernel)
    ((lost, count),) = zones_at(before, LOST_AT_S - 60.0).most_common(1)
    assert count > 1
    faults = FaultScript(
        interrupts=(Interrupt(at_s=LOST_AT_S, share=1.0, offering=f"{POOL}:{lost}"),),
        refusals=(Refuse(from_s=LOST_AT_S, to_s=LOST_AT_S + HOUR_S, offering=f"{POOL}:{lost}"),),
    )
    result, journal = served(kernel, faults)
    after = zones_at(journal, LOST_AT_S + HOUR_S / 2)
    assert after
    assert lost not in after
    assert result.attained >= 0.97
