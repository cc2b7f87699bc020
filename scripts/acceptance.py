"""The figures on real traces: `make acceptance`, with MARK_DATA naming the folder that holds them.

Inception-v3 on one day of the Twitter trace under every policy, on demand and on spot; the other days and the last
day of each slice of the World Cup trace under `mark`; six hours on spot in which instances are taken back. Writes
docs/figures.md and ends with code 1 when a figure misses what it has to reach.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mark.app.plugins import build_forecaster
from mark.app.settings import cache_dir
from mark.catalog.load import model
from mark.controller.journal import Header
from mark.controller.state import Decision, Observation
from mark.domain.fleet import FleetView
from mark.domain.offering import Market
from mark.domain.plan import Plan
from mark.planner.greedy import single_type_gap
from mark.simulator.compiled import compiled_kernel
from mark.simulator.experiment import Experiment, ExperimentSpec
from mark.simulator.faults import FaultScript, Interrupt
from mark.simulator.results import RunResult
from mark.simulator.traces import Trace, read_trace
from mark.simulator.workload import Workload
from scripts.figures import Check, Figures, Gap, Line, write_figures

DAY_S, WINDOW_S = 86_400.0, 6 * 3600.0
TWITTER, WORLD_CUP = "twitter_2021_08_d01_07_1s.csv.gz", "worldcup98_1min.csv.gz"
JUDGED_DAY = 5
OTHER_DAYS = (1, 2, 3, 4, 6)
SLICE_ENDS = (33_270, 54_870, 75_030, 105_270, 123_990)
"""Rows at which the World Cup slices end (the trace's README)."""
RATIOS = {Market.ON_DEMAND: 1.45, Market.SPOT: 2.8}
POLICIES = ("mark", "greedy-oracle", "sagemaker", "reactive", "static-peak", "lambda-only")
OURS = ("mark", "greedy-oracle")
MOST_SHED = 0.001
POOL_LOST_AT_S = 3600.0
STRESSED: dict[str, tuple[str, ...]] = {"all types": (), "c5 only": ("c5.large", "c5.xlarge")}
"""All types make a fleet of a few GPUs; without them there are instances by the dozen to lose."""


@dataclass(slots=True)
class Plans(AbstractContextManager["Plans"]):
    """A journal that keeps the plans and forgets the rest."""

    plans: list[Plan] = field(default_factory=list)

    def open(self, header: Header) -> AbstractContextManager[Plans]:  # noqa: ARG002 - a journal's opening
        """The journal itself."""
        return nullcontext(self)

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:  # noqa: ARG002
        """Keep the plan of one tick, where one was made."""
        if seen.plan is not None:
            self.plans.append(seen.plan)

    def __exit__(self, *_: object) -> None:
        return None


def main() -> None:
    """All acceptance figures of the replay."""
    folder = os.environ.get("MARK_DATA")
    if not folder:
        sys.exit("set MARK_DATA to the folder that holds traces/")
    twitter = read_trace(Path(folder) / "traces" / TWITTER)
    figures = Figures()
    for market in Market:
        figures.add(judged_day(twitter, market))
    for label, types in STRESSED.items():
        figures.add(interrupted(twitter, label, types))
    for day in OTHER_DAYS:
        figures.add(one_day(twitter, f"Twitter day {day}", day * DAY_S))
    world_cup = read_trace(Path(folder) / "traces" / WORLD_CUP)
    for row in SLICE_ENDS:
        figures.add(one_day(world_cup, f"World Cup to row {row}", row * 60.0 - DAY_S))
    write_figures(figures)
    if figures.missed:
        sys.exit(f"{len(figures.missed)} figures miss: " + "; ".join(check.what for check in figures.missed))


def judged_day(trace: Trace, market: Market) -> Figures:
    """Every policy on the judged day: the order of the costs and the ratio to SageMaker."""
    experiment = prepare(trace, JUDGED_DAY * DAY_S, market)
    bound, floor = experiment.bounds()
    assert bound is not None
    assert floor is not None
    journals = {name: Plans() for name in OURS}
    runs = {
        name: experiment.run(name, open_journal=journals[name].open if name in OURS else None) for name in POLICIES
    }
    where = f"Twitter day {JUDGED_DAY}, {market.value}"
    ratio = runs["sagemaker"].cost.total / runs["mark"].cost.total
    serving = [bound, *(runs[name].cost.serving for name in ("greedy-oracle", "mark"))]
    dearer = {name: runs[name].cost.total for name in ("lambda-only", "sagemaker", "static-peak")}
    cheapest = min(dearer, key=lambda name: dearer[name])
    reached = [
        Check(
            f"{where}: total of sagemaker / mark", f"{ratio:.2f}", f">= {RATIOS[market]}", ratio >= RATIOS[market]
        ),
        Check(
            f"{where}: serving cost of bound, greedy-oracle, mark",
            ", ".join(f"{usd:.2f}" for usd in serving),
            "rising",
            serving == sorted(serving),
        ),
        Check(
            f"{where}: total of mark",
            f"{runs['mark'].cost.total:.2f}",
            f"< {dearer[cheapest]:.2f} ({cheapest})",
            runs["mark"].cost.total < dearer[cheapest],
        ),
        Check(
            f"{where}: floor",
            f"{floor:.2f}",
            "<= serving cost of each run that attains its target",
            all(floor <= run.cost.serving for run in runs.values() if run.attained >= run.slo.target),
        ),
    ]
    return Figures(
        lines=[Line(where, name, run, bound) for name, run in runs.items()],
        checks=reached + [check for name in OURS for check in served(f"{where}, {name}", runs[name])],
        gaps=[gap_of(where, name, journals[name], experiment) for name in OURS],
    )


def one_day(trace: Trace, label: str, start_s: float) -> Figures:
    """`mark` on one day: its attainment."""
    run = prepare(trace, start_s, Market.ON_DEMAND).run("mark")
    where = f"{label}, on-demand"
    return Figures(lines=[Line(where, "mark", run)], checks=served(f"{where}, mark", run))


def interrupted(trace: Trace, label: str, types: tuple[str, ...]) -> Figures:
    """`mark` on spot for six hours: one interruption per instance-day, and the largest pool lost in minute 60.

    The stress that makes it one a day is 1/24 over the mean hourly hazard, offerings weighed by the instance-hours
    that they run in the same hours without a fault.
    """

    def under(faults: FaultScript) -> Experiment:
        start_s = JUDGED_DAY * DAY_S
        return prepare(trace, start_s, Market.SPOT, duration_s=WINDOW_S, faults=faults, types=types)

    experiment = under(FaultScript(stress=0.0))
    calm = experiment.run("mark")
    hazards = {item.name: item.hazard_per_hour for item in experiment.offerings}
    hours = {
        line.item: line.quantity for line in calm.bill if line.component == "instances" and line.item in hazards
    }
    stress = sum(hours.values()) / 24.0 / sum(hazards[name] * ran for name, ran in hours.items())
    ready = dict(zip(calm.minutes.offerings, calm.minutes.ready[int(POOL_LOST_AT_S / 60)].tolist(), strict=True))
    pool = max(hours, key=lambda name: (ready.get(name, 0), name))
    lost = Interrupt(at_s=POOL_LOST_AT_S, share=1.0, offering=pool)
    where = f"6 h on spot, {label}"
    scripts = {
        f"{where}, one interruption per instance-day (stress {stress:.0f})": FaultScript(stress=stress),
        f"{where}, {ready[pool]} {pool} of {sum(ready.values())} lost": FaultScript(
            stress=0.0, interrupts=(lost,)
        ),
    }
    found = Figures(lines=[Line(f"{where}, no fault", "mark", calm)])
    for case, faults in scripts.items():
        run = under(faults).run("mark")
        days = sum(line.quantity for line in run.bill if line.item in hazards) / 24.0
        hit = f"{run.interruptions} in {days:.1f} instance-days"
        found.lines.append(Line(case, "mark", run))
        found.checks += [*served(case, run), Check(f"{case}: interruptions", hit, ">= 1", run.interruptions > 0)]
    return found


def served(where: str, run: RunResult) -> list[Check]:
    """What each run of ours has to reach."""
    shed = run.served.shed / max(1, run.requests)
    target = run.slo.target
    return [
        Check(f"{where}: attained", f"{run.attained:.4f}", f">= {target:g}", run.attained >= target),
        Check(f"{where}: shed", f"{shed:.3%}", f"<= {MOST_SHED:.1%}", shed <= MOST_SHED),
    ]


def gap_of(where: str, policy: str, journal: Plans, experiment: Experiment) -> Gap:
    """Greedy against the cheapest fleet of one type, over all plans of a run."""
    gaps = np.array([single_type_gap(plan, experiment.offerings, experiment.slo) for plan in journal.plans])
    return Gap(where=where, policy=policy, gaps=gaps)


def prepare(
    trace: Trace,
    start_s: float,
    market: Market,
    *,
    duration_s: float = DAY_S,
    faults: FaultScript | None = None,
    types: tuple[str, ...] = (),
) -> Experiment:
    """Inception-v3 from `start_s` on."""
    spec = model("inception-v3")
    return Experiment(
        ExperimentSpec(
            model=spec,
            slo=spec.slo,
            market=market,
            workload=Workload(trace=trace, seed=1, start_s=start_s, duration_s=duration_s),
            faults=faults or FaultScript(),
            types=types,
            cache_dir=cache_dir(),
        ),
        kernel=compiled_kernel(cache_dir()),
        build_forecaster=build_forecaster,
    )


if __name__ == "__main__":
    main()
