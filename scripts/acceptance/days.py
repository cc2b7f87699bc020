"""Inception-v3 on days of real traces: the judged day under POLICIES, interruptions, and other days.

POLICIES are ours but `milp`, and the rivals that nobody tunes; `rivals.py` has those that are tuned.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from mark.catalog.type_sets import PAPER
from mark.controller.journal import Header
from mark.controller.state import Decision, Observation
from mark.domain.fleet.instances import FleetView
from mark.domain.offerings.offering import Market
from mark.domain.plan import Plan
from mark.planner.greedy import single_type_gap
from mark.simulator.experiment import Experiment
from mark.simulator.faults import FaultScript, Interrupt
from mark.simulator.results import RunResult
from scripts.acceptance.figures_page import Check, FigureTable, Gap, Line, shed_share
from scripts.acceptance.loads import (
    HOUR_S,
    SEED,
    AcceptanceLoad,
    Foretold,
    experiment_of,
    spec_of,
    twitter_day,
    waking,
)

JUDGED_DAY = 5
OTHER_DAYS = (1, 2, 3, 4, 6)
WINDOW_S = 6 * HOUR_S
HEDGED_OVER_REFERENCE = {Market.ON_DEMAND: 1.25, Market.SPOT: 1.90}
HEDGED_OVER_MARK = 0.90
POLICIES = ("hedged", "mark", "greedy-oracle", "sagemaker", "reactive", "static-peak", "lambda-only")
OURS = ("hedged", "mark", "greedy-oracle")
GREEDY = ("mark", "greedy-oracle")
UNCAPPED, SHORT_COOLDOWN_MIN = "mark, no mean-latency cap", 1.0
"""Algorithm 1 with neither our default for the mean latency, half of the objective, nor the paper's cool-down of
six minutes: both cost it money."""
MOST_SHED = 0.001
SOONER_S = 60.0
POOL_LOST_AT_S = 3600.0
STRESSED: dict[str, tuple[str, ...]] = {"the paper's types": (PAPER,), "c5 only": ("c5.large", "c5.xlarge")}
"""The paper's make a fleet of a few GPUs; without them there are instances by the dozen to lose."""
JUDGED_TITLE, RISK_TITLE, DAYS_TITLE = "The judged day", "Instances are interrupted", "More days"
JUDGED_NOTE = f"""Day {JUDGED_DAY} of the Twitter trace, second by second, under policies that nobody tunes.
Rows with standbys that serve {SOONER_S:g} s after they are woken (else 75 s) and "{UNCAPPED}" are reported, not
judged. `gaps` is the rent of each of greedy's plans over that of the cheapest fleet of one type.
"""
RISK_NOTE = """The first six hours of that day on spot: once with one interruption per instance-day, once with
the loss of the largest pool in minute 60. The account has no quotas for p2.
"""
DAYS_NOTE = """Other days of the Twitter trace, on demand.
"""


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


def judged_day(seed: int) -> FigureTable:
    """POLICIES on the judged day in both markets, `mark` uncapped, and ours with standbys that serve sooner.

    Other seeds than the first are of ours alone.
    """
    load, found = replace(twitter_day(JUDGED_DAY), seed=seed), FigureTable()
    with Foretold(load) as foretold:
        if seed != SEED:
            for market in Market:
                found.add(another_seed(load, market, foretold))
            return found
        for market in Market:
            found.add(judged_policies(load, market, foretold))
            found.add(uncapped(load, market, foretold))
            found.add(uncapped(load, market, foretold, types=(PAPER,)))
        for market in Market:
            experiment = experiment_of(waking(spec_of(load, market), SOONER_S), foretold.build)
            known = experiment.yardsticks()
            where = f"{load.label}, {market.value}, standbys serve after {SOONER_S:g} s"
            runs = [(name, experiment.run(name)) for name in ("hedged", "mark")]
            found.add(FigureTable(lines=[Line.of(where, name, run, known) for name, run in runs]))
    return found


def judged_policies(load: AcceptanceLoad, market: Market, foretold: Foretold) -> FigureTable:
    """POLICIES: the order of their costs, and the ratios to the reference and to `mark`."""
    experiment = experiment_of(spec_of(load, market), foretold.build)
    known = experiment.yardsticks()
    reference, floor, _ = known
    assert reference is not None
    assert floor is not None
    journals = {name: Plans() for name in GREEDY}
    runs = {
        name: experiment.run(name, open_journal=journals[name].open if name in GREEDY else None)
        for name in POLICIES
    }
    where = f"{load.label}, {market.value}"
    checks = [*_hedged(where, market, runs, reference), *_mark(where, runs, reference, floor)]
    return FigureTable(
        lines=[Line.of(where, name, run, known) for name, run in runs.items()],
        checks=checks + [check for name in OURS for check in served(f"{where}, {name}", runs[name])],
        gaps=[gap_of(where, name, journals[name], experiment) for name in GREEDY],
    )


def uncapped(
    load: AcceptanceLoad, market: Market, foretold: Foretold, *, types: tuple[str, ...] = ()
) -> FigureTable:
    """UNCAPPED, to be looked at beside `mark`."""
    usual = spec_of(load, market, types=types)
    slo = replace(usual.slo, mean_latency_s=usual.slo.latency_s)
    spec = replace(usual, slo=slo, tuning={"cooldown_min": SHORT_COOLDOWN_MIN})
    where = ", ".join((load.label, market.value, *types))
    return FigureTable(lines=[Line.of(where, UNCAPPED, experiment_of(spec, foretold.build).run("mark"))])


def another_seed(load: AcceptanceLoad, market: Market, foretold: Foretold) -> FigureTable:
    """`hedged` and `mark` beside the reference and each other."""
    experiment = experiment_of(spec_of(load, market), foretold.build)
    known = experiment.yardsticks()
    assert known.reference_usd is not None
    runs = {name: experiment.run(name) for name in ("hedged", "mark")}
    where = f"{load.label}, {market.value}"
    checks = _hedged(where, market, runs, known.reference_usd)
    return FigureTable(
        lines=[Line.of(where, name, run, known) for name, run in runs.items()],
        checks=checks + [check for name, run in runs.items() for check in served(f"{where}, {name}", run)],
    )


def taken_back(seed: int) -> FigureTable:
    """`mark` and `hedged` while instances are taken back."""
    load = replace(twitter_day(JUDGED_DAY), duration_s=WINDOW_S, seed=seed)
    found = FigureTable()
    with Foretold(load) as foretold:
        for label in STRESSED:
            for policy in ("mark", "hedged"):
                found.add(interrupted(load, foretold, label, policy))
    return found


def interrupted(load: AcceptanceLoad, foretold: Foretold, label: str, policy: str) -> FigureTable:
    """A policy on spot: one interruption per instance-day, and the largest pool lost in minute 60.

    The stress that makes it one a day is 1/24 over the mean hourly hazard, offerings weighed by the instance-hours
    that they run in the same hours without a fault.
    """

    def under(faults: FaultScript) -> Experiment:
        spec = spec_of(load, Market.SPOT, types=STRESSED[label], faults=faults)
        return experiment_of(spec, foretold.build)

    experiment = under(FaultScript(stress=0.0))
    calm = experiment.run(policy)
    hazards = {item.name: item.hazard_per_hour for item in experiment.supply.offerings}
    hours = {
        line.item: line.quantity for line in calm.bill if line.component == "instances" and line.item in hazards
    }
    stress = sum(hours.values()) / 24.0 / sum(hazards[name] * ran for name, ran in hours.items())
    ready = dict(zip(calm.minutes.offerings, calm.minutes.ready[int(POOL_LOST_AT_S / 60)].tolist(), strict=True))
    pool = max(hours, key=lambda name: (ready.get(name, 0), name))
    lost = Interrupt(at_s=POOL_LOST_AT_S, share=1.0, offering=pool)
    where = f"6 h on spot, {label}, {policy}"
    scripts = {
        f"{where}, one interruption per instance-day": (FaultScript(stress=stress), f"stress {stress:.0f}"),
        f"{where}, largest pool lost": (
            FaultScript(stress=0.0, interrupts=(lost,)),
            f"{ready.get(pool, 0)} {pool} of {sum(ready.values())}",
        ),
    }
    found = FigureTable(lines=[Line.of(f"{where}, no fault", policy, calm)])
    for case, (faults, what) in scripts.items():
        run = under(faults).run(policy)
        days = sum(line.quantity for line in run.bill if line.item in hazards) / 24.0
        hit = f"{run.interruptions} in {days:.1f} instance-days ({what})"
        found.lines.append(Line.of(case, policy, run))
        found.checks += [*served(case, run), Check(f"{case}: interruptions", hit, ">= 1", run.interruptions > 0)]
    return found


def one_day(day: int) -> FigureTable:
    """`mark` and `hedged` on a day of the Twitter trace: their attainment."""
    load, found = twitter_day(day), FigureTable()
    where = f"{load.label}, on-demand"
    with Foretold(load) as foretold:
        experiment = experiment_of(spec_of(load, Market.ON_DEMAND), foretold.build)
        for name in ("mark", "hedged"):
            run = experiment.run(name)
            found.add(FigureTable(lines=[Line.of(where, name, run)], checks=served(f"{where}, {name}", run)))
    return found


def served(where: str, run: RunResult) -> list[Check]:
    """Checks that each run of ours has to pass."""
    shed = shed_share(run)
    target = run.slo.target
    return [
        Check(f"{where}: attained", f"{run.attained:.4f}", f">= {target:g}", run.attained >= target),
        Check(f"{where}: shed", f"{shed:.3%}", f"<= {MOST_SHED:.1%}", shed <= MOST_SHED),
    ]


def gap_of(where: str, policy: str, journal: Plans, experiment: Experiment) -> Gap:
    """Greedy against the cheapest fleet of one type, over all plans of a run."""
    gaps = tuple(
        float(single_type_gap(plan, experiment.supply.offerings, experiment.supply.slo)) for plan in journal.plans
    )
    return Gap(where=where, policy=policy, gaps=gaps)


def _hedged(where: str, market: Market, runs: dict[str, RunResult], reference: float) -> list[Check]:
    hedged, most = runs["hedged"].cost.serving, HEDGED_OVER_REFERENCE[market]
    over_reference, over_mark = hedged / reference, hedged / runs["mark"].cost.serving
    return [
        Check(
            f"{where}: serving of hedged / reference",
            f"{over_reference:.3f}",
            f"<= {most:.2f}",
            over_reference <= most,
        ),
        Check(
            f"{where}: serving of hedged / mark",
            f"{over_mark:.3f}",
            f"<= {HEDGED_OVER_MARK:.2f}",
            over_mark <= HEDGED_OVER_MARK,
        ),
    ]


def _mark(where: str, runs: dict[str, RunResult], reference: float, floor: float) -> list[Check]:
    total = runs["mark"].cost.total
    serving = [reference, *(runs[name].cost.serving for name in ("greedy-oracle", "mark"))]
    dearer = {name: runs[name].cost.total for name in ("lambda-only", "sagemaker", "static-peak")}
    cheapest = min(dearer, key=lambda name: dearer[name])
    return [
        Check(
            f"{where}: serving cost of reference, greedy-oracle, mark",
            ", ".join(f"{usd:.2f}" for usd in serving),
            "rising",
            serving == sorted(serving),
        ),
        Check(
            f"{where}: total of mark",
            f"{total:.2f}",
            f"< {dearer[cheapest]:.2f} ({cheapest})",
            total < dearer[cheapest],
        ),
        Check(
            f"{where}: floor",
            f"{floor:.2f}",
            "<= serving cost of each run that attains its target",
            all(floor <= run.cost.serving for run in runs.values() if run.attained >= run.slo.target),
        ),
    ]
