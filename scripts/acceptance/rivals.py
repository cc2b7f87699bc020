"""`hedged` beside the cheapest rival that keeps the objective, on judged days: the figures that MArk is named for.

Both sides choose from the same types. Rivals that teams tune are tuned on the day before the run. A task measures
one day and one set of types; which rival was the cheapest is known when all of them are there (`completed`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean
from typing import NamedTuple

from mark.catalog.load import model
from mark.catalog.type_sets import CPU, CURRENT, PAPER
from mark.cloudmodel.world import IDEAL, ROUGH, TYPICAL, World
from mark.domain.offerings.offering import Market
from mark.policies.bundles import PACKED, policy_names, tuning_grid
from mark.policies.overrides import OWN_POLICIES
from mark.policies.spec import Overrides
from mark.report.runs.rivals import best_of
from mark.simulator.experiment import Experiment, ExperimentSpec
from mark.simulator.results import RunResult
from scripts.acceptance.figures_page import Check, FigureTable, Line, Row, Tables, geometric_mean, part_tables
from scripts.acceptance.loads import (
    SEED,
    SEEDS,
    WEEK_LATER,
    AcceptanceLoad,
    Foretold,
    experiment_of,
    spec_of,
    twitter_day,
    twitter_second_week,
)

MODEL = "inception-v3"
DAYS: Mapping[str, Callable[[], AcceptanceLoad]] = {
    "Twitter day 5": lambda: twitter_day(5),
    "Twitter day 6": lambda: twitter_day(6),
    f"Twitter day {WEEK_LATER}": twitter_second_week,
}
"""Judged days by the label of their load."""
TYPE_SETS = {PAPER: (), CURRENT: ("assumed-current",), CPU: ()}
"""Sets of types, and further profiles: without the assumed ones Inception-v3 runs on no current type but c5."""
MARK = "mark"
IN_MARKET = ("autoscaler", "autoscaler-spill", "predictive", "ema-headroom", "spothedge")
"""Rivals that rent in the asked market."""
ON_DEMAND = tuple(name for name in policy_names() if name not in (*OWN_POLICIES, *IN_MARKET, *PACKED))
"""Those that cost the same in both."""
FULLY_TUNED = ("autoscaler", "autoscaler-spill")
"""Tuned on their whole grid; the others on each second setting of theirs, to save hours."""
GOALS = {
    (PAPER, Market.ON_DEMAND): 0.90,
    (PAPER, Market.SPOT): 0.84,
    (CURRENT, Market.ON_DEMAND): 0.95,
    (CURRENT, Market.SPOT): 0.86,
    (CPU, Market.ON_DEMAND): 0.97,
}
"""Total of `hedged` over the cheapest rival's, geometric mean over the days."""
OVER_REFERENCE = {
    ("ideal", Market.ON_DEMAND): 1.08,
    ("ideal", Market.SPOT): 1.33,
    ("typical", Market.ON_DEMAND): 1.13,
    ("typical", Market.SPOT): 1.45,
}
"""Serving cost of `hedged` over the reference on the paper's types, the same mean."""
SERVING, TOTAL = attrgetter("over_reference"), attrgetter("total_over_reference")
"""Ratios of a line to the reference."""
HEDGED, PERFECT, IN_IDEAL, IN_ROUGH = "hedged", "hedged, perfect forecast", "hedged, ideal", "hedged, rough"
LEAST_ATTAINED = {HEDGED: 0.99, IN_ROUGH: 0.98}
NEAR = 0.005
"""A rival that misses the target by no more with one seed may keep it in the mean: it is run with all seeds."""
HEAD: Row = ("load and types", "policy", "tuned to", "settings tried", "attained the day before")
TITLE = "Beside the cheapest rival that keeps the objective"
NOTE = f"""Total of `hedged` over that of the cheapest rival that keeps the objective, both choosing from the same
types, as a geometric mean over {", ".join(DAYS)}. Rivals are [all policies that are not
ours](decisions/0020-rivals.md), tuned on the day before; they have our zones, disks, addresses and nodes.
`{PAPER}` is the paper's types without quotas, `{CPU}` is c5, and `{CURRENT}` adds c7i and g4dn by assumed
profiles. "perfect" is the same ratio if the forecast knew each minute to come; it and "hedged / mark" are of seed
{SEED}. "serving" is the ratio to the same rival without the overhead.
"""


def of_day(day: str, types: str) -> FigureTable:
    """All rivals, and `hedged` in every world, on a day with a set of types, in both markets."""
    load, found = DAYS[day](), FigureTable()
    with ExitStack() as stack:
        # Bins that hold whole counts are the same load with every seed, and so is what is forecast of it.
        same = stack.enter_context(Foretold(load))
        foretold = dict.fromkeys(SEEDS, same)
        if not load.trace.whole_counts:
            others = (seed for seed in SEEDS if seed != SEED)
            foretold |= {seed: stack.enter_context(Foretold(replace(load, seed=seed))) for seed in others}
        for market in Market:
            found.extend(_in_market(replace(load, label=day), types, market, foretold))
    return found


def _in_market(load: AcceptanceLoad, types: str, market: Market, foretold: Mapping[int, Foretold]) -> FigureTable:
    """The same in one market. foretold: by seed."""
    found, where = FigureTable(), place(load.label, types, market)

    def experiment(seed: int, world: World = TYPICAL) -> Experiment:
        spec = _spec(replace(load, seed=seed), market, types, world)
        return experiment_of(spec, foretold[seed].build)

    usual = experiment(SEED)
    known = usual.yardsticks()
    for seed in SEEDS:  # of which the spot prices are, and so the yardsticks
        one, yardsticks = usual, known
        if seed != SEED:
            one = experiment(seed)
            yardsticks = one.yardsticks()
        found.add(FigureTable(lines=[Line.of(where, HEDGED, one.run("hedged"), yardsticks)]))
    perfect = usual.run("hedged", overrides=Overrides(forecaster="oracle", uses_truth=True))
    rough = experiment(SEED, ROUGH).run("hedged")
    found.add(FigureTable(lines=[Line.of(where, PERFECT, perfect, known), Line.of(where, IN_ROUGH, rough)]))
    if types == PAPER:
        kind = experiment(SEED, IDEAL)
        line = Line.of(where, IN_IDEAL, kind.run("hedged"), kind.yardsticks())
        found.add(FigureTable(lines=[line]))
    for name in (MARK, *IN_MARKET, *(ON_DEMAND if market is Market.ON_DEMAND else ())):
        found.add(_of_rival(where, name, usual, [experiment(seed) for seed in SEEDS if seed != SEED]))
    return found


def place(day: str, types: str, market: Market) -> str:
    """Where a line was measured."""
    return f"{day}, {types}, {market.value}"


def rival_run(experiment: Experiment, policy: str, *, fully: bool) -> RunResult:
    """A rival, tuned on all settings of its grid or on each second one, its highest utilisation among them."""
    return experiment.run(policy, grid=None if fully else tuning_grid(policy)[1::2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """`hedged` on one day beside the cheapest rival that keeps the objective; no ratio where none does."""

    rival: Seeds
    ratio: float | None
    #: The same ratio of what serving costs.
    serving: float | None
    perfect: float | None
    #: `hedged` beside `mark`.
    to_mark: float | None

    @property
    def cells(self) -> str:
        """The rival of the day for a reader."""
        if self.ratio is None:
            return f"no rival keeps it ({self.rival.policy} {self.rival.attained:.4f})"
        return f"{self.ratio:.3f} ({self.rival.policy} {self.rival.attained:.4f})"


@dataclass(frozen=True, slots=True)
class Seeds:
    """A policy's lines of one place, one a seed, the usual seed first: SEEDS of it, or that one alone."""

    lines: tuple[Line, ...]

    @property
    def policy(self) -> str:
        """Its name."""
        return self.lines[0].policy

    @property
    def attained(self) -> float:
        """The mean share that was answered in time."""
        return fmean(line.attained for line in self.lines)

    @property
    def usd(self) -> float:
        """The mean total, USD."""
        return fmean(line.total_usd for line in self.lines)

    @property
    def serving_usd(self) -> float:
        """The mean cost of serving, USD."""
        return fmean(line.serving_usd for line in self.lines)

    @property
    def usual_usd(self) -> float:
        """The total with the usual seed, USD: beside what is measured with that one alone."""
        return self.lines[0].total_usd


def _by_policy(lines: Iterable[Line]) -> dict[str, Seeds]:
    found: dict[str, tuple[Line, ...]] = {}
    for line in lines:
        found[line.policy] = (*found.get(line.policy, ()), line)
    return {policy: Seeds(of_policy) for policy, of_policy in found.items()}


def beside(lines: Sequence[Line], day: str, types: str, market: Market) -> Beside | None:
    """The comparison of one day; None where it was not measured."""
    here = _by_policy(line for line in lines if line.where == place(day, types, market))
    anywhere = place(day, types, Market.ON_DEMAND)
    rivals = [one for policy, one in here.items() if policy in IN_MARKET]
    rivals += _by_policy(line for line in lines if line.where == anywhere and line.policy in ON_DEMAND).values()
    ours, mark, perfect = here.get(HEDGED), here.get(MARK), here.get(PERFECT)
    target = model(MODEL).slo.target
    rival = best_of(
        rivals, lacking=lambda one: target - one.attained, usd=lambda one: one.usd, name=lambda one: one.policy
    )
    if ours is None or rival is None:
        return None
    kept = rival.attained >= target
    return Beside(
        rival=rival,
        ratio=ours.usd / rival.usd if kept else None,
        serving=ours.serving_usd / rival.serving_usd if kept else None,
        perfect=perfect.usual_usd / rival.usual_usd if kept and perfect else None,
        to_mark=ours.usual_usd / mark.usual_usd if mark else None,
    )


def completed(figures: FigureTable) -> FigureTable:
    """With the checks that only all tasks together tell."""
    checks = [*_ratio_checks(figures.lines), *_reference_checks(figures.lines), *_attained_checks(figures.lines)]
    return replace(figures, checks=[*figures.checks, *checks])


def tables(figures: FigureTable) -> Tables:
    """Tables of the part: the ratios, serving over the reference, then all runs."""
    head = ("types", "market", "hedged / rival", "wanted", "kept", "serving", "perfect", "hedged / mark", *DAYS)
    reference = ("types", "world", "market", "serving / reference", "wanted", "kept", "total / reference")
    return {
        "ratios": [head, *_rows(figures.lines)],
        "reference": [reference, *_reference_rows(figures.lines)],
        **part_tables(figures, "tuned", HEAD),
    }


def _spec(load: AcceptanceLoad, market: Market, types: str, world: World) -> ExperimentSpec:
    spec = spec_of(load, market, MODEL, types=(types,), world=world)
    return replace(spec, profile_sets=(*spec.profile_sets, *TYPE_SETS[types]))


def _of_rival(where: str, policy: str, experiment: Experiment, others: Sequence[Experiment]) -> FigureTable:
    """The rival with the usual seed, and with the others, as it was tuned, where their mean may keep it.

    Spot prices differ with the seed, so that ours with three seeds compare with nothing but the same three.
    """
    run = rival_run(experiment, policy, fully=policy in FULLY_TUNED)
    found = FigureTable(lines=[Line.of(where, policy, run)])
    setting = None
    if run.tuned is not None:
        trial = run.tuned.trial
        setting = trial.setting
        found.rows.append((where, policy, trial.setting.words, f"{run.tuned.replays}", f"{trial.attained:.4f}"))
    if policy in IN_MARKET and may_keep(run.attained, run.slo.target):
        again = [one.run(policy, overrides=Overrides(setting=setting)) for one in others]
        found.add(FigureTable(lines=[Line.of(where, policy, one) for one in again]))
    return found


def may_keep(attained: float, target: float) -> bool:
    """True where a share attained with one seed leaves open that the mean of all seeds keeps the objective."""
    return attained >= target - NEAR


class Means(NamedTuple):
    """Geometric means over the days; None without any."""

    ratio: float | None
    serving: float | None
    perfect: float | None
    to_mark: float | None


def _means(lines: Sequence[Line], types: str, market: Market) -> Means:
    days = [found for day in DAYS if (found := beside(lines, day, types, market)) is not None]
    return Means(*(_mean([getattr(day, name) for day in days]) for name in Means._fields))


def _mean(ratios: Iterable[float | None]) -> float | None:
    known = [ratio for ratio in ratios if ratio is not None]
    return geometric_mean(known) if known else None


def _rows(lines: Sequence[Line]) -> Iterator[Row]:
    for types, market in itertools.product(TYPE_SETS, Market):
        mean, serving, perfect, to_mark = _means(lines, types, market)
        goal = GOALS.get((types, market))
        days = (beside(lines, day, types, market) for day in DAYS)
        yield (
            *(types, market.value, _shown(mean), "" if goal is None else f"<= {goal:g}", _kept(mean, goal)),
            *(
                _shown(serving),
                _shown(perfect),
                _shown(to_mark),
                *("" if found is None else found.cells for found in days),
            ),
        )


def _ratio_checks(lines: Sequence[Line]) -> Iterator[Check]:
    for (types, market), goal in GOALS.items():
        mean = _means(lines, types, market).ratio
        if mean is not None:
            what = f"{types}, {market.value}: total, hedged / cheapest rival that keeps the objective"
            yield Check(what, f"{mean:.3f}", f"<= {goal:g}", mean <= goal)


def _over_reference(
    lines: Sequence[Line], types: str, world: str, market: Market, ratio: Callable[[Line], float | None]
) -> float | None:
    """Geometric mean of a ratio over the days, each the mean of its seeds."""
    policy = HEDGED if world == "typical" else IN_IDEAL
    days = []
    for day in DAYS:
        where = place(day, types, market)
        found = [ratio(line) for line in lines if (line.where, line.policy) == (where, policy)]
        known = [one for one in found if one is not None]
        if known:
            days.append(fmean(known))
    return _mean(days)


def _reference_rows(lines: Sequence[Line]) -> Iterator[Row]:
    for types, world, market in itertools.product(TYPE_SETS, ("ideal", "typical"), Market):
        mean = _over_reference(lines, types, world, market, SERVING)
        if mean is not None:
            goal = OVER_REFERENCE[world, market] if types == PAPER else None
            wanted = "" if goal is None else f"<= {goal:g}"
            total = _over_reference(lines, types, world, market, TOTAL)
            yield (types, world, market.value, f"{mean:.3f}", wanted, _kept(mean, goal), _shown(total))


def _reference_checks(lines: Sequence[Line]) -> Iterator[Check]:
    for (world, market), goal in OVER_REFERENCE.items():
        mean = _over_reference(lines, PAPER, world, market, SERVING)
        if mean is not None:
            what = f"{PAPER}, {market.value}, {world}: serving, hedged / reference"
            yield Check(what, f"{mean:.3f}", f"<= {goal:g}", mean <= goal)


def _attained_checks(lines: Sequence[Line]) -> Iterator[Check]:
    for line in lines:
        if line.policy in LEAST_ATTAINED:
            least = LEAST_ATTAINED[line.policy]
            what = f"{line.where}, {'rough' if line.policy == IN_ROUGH else 'typical'}: hedged attained"
            yield Check(what, f"{line.attained:.4f}", f">= {least:g}", line.attained >= least)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _kept(value: float | None, goal: float | None) -> str:
    if value is None or goal is None:
        return ""
    return "yes" if value <= goal else "no"
