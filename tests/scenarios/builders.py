"""Small experiments on generated load, runs that are checked after every event, and journals in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import TracebackType

import numpy as np
import pytest

from mark.catalog.load import model
from mark.catalog.type_sets import PAPER
from mark.cloudmodel.lifecycle import Phase
from mark.cloudmodel.world import IDEAL
from mark.config.footprint import footprint_of
from mark.config.settings import Settings
from mark.controller.journal import Header, entry_line, header_line
from mark.controller.state import Decision, Observation
from mark.domain.billing.costs import InstanceUsage
from mark.domain.fleet.instances import FleetView
from mark.domain.fleet.orders import Order
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Market
from mark.domain.offerings.times import CloudTimes, LognormalTime
from mark.plugins.load import build_forecaster
from mark.policies.spec import Overrides
from mark.simulator import replay
from mark.simulator.cloud import SimulatedCloud
from mark.simulator.engine.compiled import Kernel
from mark.simulator.engine.data_plane import Engine
from mark.simulator.experiment import BuildForecaster, Experiment, ExperimentSpec
from mark.simulator.faults import FaultScript
from mark.simulator.results import RunResult
from mark.simulator.traces.generators import surge
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload

HISTORY_S = 3600.0
UNTRAINED = {"hedged": "moving-mean", "mark": "last-value"}
STUCK = 2000
"""More events at one instant than any fleet of these tests has instances."""
FIXED = CloudTimes(
    launch=LognormalTime(median_s=150.0, p95_s=150.0),
    wake=LognormalTime(median_s=75.0, p95_s=75.0),
    pending_min_s=15.0,
    pending_max_s=15.0,
)
"""Every boot takes 150 s, every wake 75 s: bills can be computed by hand."""
FIXED_WORLD = replace(IDEAL, times=FIXED)


def surging(rps: float = 40.0, *, plus: float = 0.5, minutes: float = 20.0, seed: int = 3) -> Trace:
    """An hour of history at `rps`, then `minutes` in which the load rises at a third of them."""
    duration_s = minutes * 60.0
    return surge(rps, plus=plus, at_s=HISTORY_S + duration_s / 3, duration_s=HISTORY_S + duration_s, seed=seed)


def up_and_down(minutes: float = 35.0, *, low: float = 30.0, high: float = 90.0, seed: int = 4) -> Trace:
    """An hour of history at `low`, then `high` from a fifth to a half of `minutes`, then a third of `low`."""
    rng = np.random.default_rng(seed)
    duration_s = minutes * 60.0
    at_s = np.arange(HISTORY_S + duration_s) - HISTORY_S
    means = np.select([at_s < duration_s / 5, at_s < duration_s / 2], [low, high], low / 3)
    return Trace(
        name="up-and-down", start_at=0.0, bin_s=1.0, rates_rps=rng.poisson(means).astype(float), whole_counts=True
    )


def experiment(
    kernel: Kernel,
    market: Market = Market.SPOT,
    *,
    trace: Trace | None = None,
    seed: int = 1,
    faults: FaultScript | None = None,
    build: BuildForecaster = build_forecaster,
    **spec: object,
) -> Experiment:
    """Inception-v3 on `trace` after its first hour; the paper's types have a GPU, and so batches, among them."""
    load = trace or surging()
    fields: dict[str, object] = {
        "model": model("inception-v3"),
        "slo": Slo(latency_s=0.6, target=0.98),
        "profile_sets": (),
        "types": (PAPER,),
        "footprint": footprint_of(Settings()),
    }
    fields |= spec
    sizes = fields["model"].sizes  # type: ignore[attr-defined]
    return Experiment(
        ExperimentSpec(
            **fields,  # type: ignore[arg-type]
            market=market,
            workload=Workload(trace=load, seed=seed, start_s=HISTORY_S, sizes=sizes),
            faults=faults or FaultScript(),
        ),
        kernel=kernel,
        build_forecaster=build,
    )


def run(given: Experiment, policy: str, journal: MemoryJournal | None = None) -> RunResult:
    """One policy; our own with forecasters that need no training."""
    return given.run(
        policy,
        overrides=Overrides(forecaster=UNTRAINED[policy]) if policy in UNTRAINED else None,
        open_journal=journal.open if journal else None,
    )


@dataclass(slots=True)
class MemoryJournal(AbstractContextManager["MemoryJournal"]):
    """The lines of a journal, and what was written, as it was."""

    lines: list[bytes] = field(default_factory=list)
    seen: list[Observation] = field(default_factory=list)
    orders: list[tuple[float, Order]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def open(self, header: Header) -> MemoryJournal:
        self.lines.append(header_line(header))
        return self

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        self.lines.append(entry_line(before, seen, decision))
        self.seen.append(seen)
        self.decisions.append(decision)
        self.orders += [(seen.now, order) for order in decision.orders]

    def of(self, kind: type[Order]) -> list[tuple[float, Order]]:
        return [(at, order) for at, order in self.orders if isinstance(order, kind)]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


@dataclass(slots=True)
class Checks:
    """How many events were followed by a validation, and the clouds that were validated."""

    events: int = 0
    instant: float = -1.0
    at_this_instant: int = 0
    clouds: list[CheckedCloud] = field(default_factory=list)


class CheckedCloud(SimulatedCloud):
    """The simulated cloud, whose state and whose engine's are validated after every event and order."""

    checks: Checks

    def fire(self, now: float) -> bool:
        happened = super().fire(now)
        self._validate()
        return happened

    def submit(self, order: Order) -> None:
        super().submit(order)
        self._validate()

    def close(self, now: float) -> None:
        self._validate()
        super().close(now)
        validate_usages(self.usages)

    def _validate(self) -> None:
        checks, now = self.checks, self._engine.now
        checks.events += 1
        checks.at_this_instant = checks.at_this_instant + 1 if now == checks.instant else 0
        checks.instant = now
        assert checks.at_this_instant < STUCK, f"the replay does not get beyond {now} s"
        validate_engine(self._engine)
        validate_cloud(self, self._engine)


@contextmanager
def checked() -> Iterator[Checks]:
    """Replays inside are validated after every event."""
    checks = Checks()

    class Counted(CheckedCloud):
        def __init__(self, **given: object) -> None:
            super().__init__(**given)  # type: ignore[arg-type]
            self.checks = checks
            checks.clouds.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "SimulatedCloud", Counted)
        yield checks
    assert checks.events > 0


def held_by_instances(engine: Engine) -> int:
    servers = engine._fleet.servers
    return int(servers.in_service.sum() + servers.waiting.sum())


def held_by_lambda(engine: Engine) -> int:
    """Calls under way that answer somebody (a warm-up ping answers nobody)."""
    marks, rings = engine._pool.marks, engine._pool.rings
    room = rings.shape[1]
    held = 0
    for head, count, row in ((marks.warm_head, marks.warm, 1), (marks.cold_head, marks.cold, 3)):
        places = (head + np.arange(count)) % room
        held += int(np.count_nonzero(~np.isnan(rings[row, places])))
    return held


def validate_engine(engine: Engine) -> None:
    """Requests are conserved by counting those that are held; no count is negative; slots are used once."""
    servers, totals, seconds = engine._fleet.servers, engine._tally.totals, engine._tally.seconds
    answered = int(totals.instance + totals.standby + totals.lambda_)
    arrived = int(seconds.arrivals.sum())
    assert arrived == answered + int(totals.shed) + held_by_instances(engine) + held_by_lambda(engine)
    assert engine.served().in_flight == held_by_instances(engine) + held_by_lambda(engine)
    assert engine._tally.histogram.sum() == answered == seconds.answered.sum()
    assert servers.waiting.min() >= 0
    assert servers.in_service.min() >= 0
    assert np.all(servers.in_service <= servers.max_batch)
    assert np.all((servers.in_service > 0) | (servers.waiting == 0))
    free, used = engine._free, engine._used
    assert len(set(free)) == len(free)
    assert sorted([*free, *used]) == list(range(servers.size))
    assert engine._accepting <= used
    assert not servers.in_service[list(free)].any()
    marks = engine._pool.marks
    counts = [int(marks.idle), int(marks.warm), int(marks.cold)]
    assert min(counts) >= 0
    assert sum(counts) <= max(1, int(engine._rules.concurrency))


def validate_cloud(cloud: SimulatedCloud, engine: Engine) -> None:
    """An instance holds a slot while it is ready or draining, accepts while it is ready, and is billed once."""
    slots = []
    for machine in cloud._machines.values():
        life = machine.life
        serves = life.phase in (Phase.READY, Phase.DRAINING)
        assert (machine.slot is not None) is serves, machine
        if machine.slot is not None:
            slots.append(machine.slot)
            assert (machine.slot in engine._accepting) is (life.phase is Phase.READY), machine
        assert (life.asleep_since is not None) is (life.phase is Phase.STOPPED), machine
        assert life.asleep_since is None or life.billed_since is None, machine
        assert life.phase not in (Phase.STARTING, Phase.STOPPING, Phase.ENDING, Phase.GONE), machine
    assert sorted(slots) == sorted(engine._used)
    lives = [(m.id, m.life.seen, m.life.terminates_at) for m in cloud._machines.values()]
    assert [(i.id, i.state, i.terminates_at) for i in cloud.observe()] == lives


def validate_usages(usages: list[InstanceUsage]) -> None:
    """Stretches start before they end, and those of one instance do not overlap."""
    stretches: dict[str, list[tuple[float, float]]] = {}
    for usage in usages:
        assert usage.started_at <= usage.ended_at, usage
        assert usage.surplus_vcpu_s >= 0, usage
        stretches.setdefault(usage.instance, []).append((usage.started_at, usage.ended_at))
    for spans in stretches.values():
        for (_, ended_at), (started_at, _) in pairwise(sorted(spans)):
            assert ended_at <= started_at
