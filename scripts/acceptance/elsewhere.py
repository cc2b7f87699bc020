"""Robustness of the ranking on other loads and models: `hedged` beside its rivals, `mark` among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mark.cloudmodel.world import TYPICAL
from mark.domain.offerings.offering import Market
from mark.report.runs.rivals import best_of, keeps_objective
from mark.simulator.experiment import Experiment
from mark.simulator.results import RunResult
from scripts.acceptance.figures_page import (
    Check,
    FigureTable,
    Row,
    Tables,
    geometric_mean,
    over_yardsticks,
    part_tables,
)
from scripts.acceptance.loads import ELSEWHERE, AcceptanceLoad, Foretold, experiment_of, spec_of
from scripts.acceptance.rivals import rival_run

KEEPING = " that keeps the objective"
OTHERS = {"rival": "cheapest rival that keeps the objective", "mark": "mark", "sagemaker": "sagemaker"}
"""Yardsticks of `hedged`, as the page calls them."""
CASES = {
    "all": ("", ""),
    "on demand": (f", {Market.ON_DEMAND}", ""),
    "spot": (f", {Market.SPOT}", ""),
    "those where the other keeps the objective": ("", KEEPING),
    "Inception-v3, on demand": (", inception-v3, on-demand", ""),
    "Inception-v3, spot": (", inception-v3, spot", ""),
    "Inception-v3, on demand, the other keeps the objective": (", inception-v3, on-demand", KEEPING),
    "Inception-v3, spot, the other keeps the objective": (", inception-v3, spot", KEEPING),
}
"""A mean over all mixes models, and cases that the other misses. What names of such cases hold and end with."""
GOALS = {Market.ON_DEMAND: 0.80, Market.SPOT: 0.65}
"""Total over the cheapest rival's, geometric mean over all loads and models."""
MOST = 1.02
"""Of the other's total, on any load."""
MANAGED, ON_LAMBDA = ("sagemaker", "sagemaker-fast"), ("serverless",)
"""Rivals that cost the same in both markets."""
SPILLING = "autoscaler-spill"
WORLD = replace(TYPICAL, quotas=())
"""Some of these loads need more than a default account's 256 vCPUs."""
HEAD: Row = (
    *("load", "model", "market", "hedged total USD", "cheapest rival", "/ rival", "/ mark", "/ sagemaker"),
    *("hedged serving USD", "x reference", "x floor", "attained: hedged", "rival", "mark", "sagemaker"),
)
TITLE = "The same direction elsewhere"
NOTE = f"""Four models on seven loads, on current types: total of `hedged` over that of the cheapest rival, of
`mark` and of `sagemaker`. Rivals are `{"`, `".join((*MANAGED, *ON_LAMBDA))}`,
`autoscaler` and `{SPILLING}`. For NASNet and OpenNMT Lambda is too slow to help. Numbers in brackets count the
cases. The Azure traces are scaled to 100 requests/s and have ten minutes of history. The account has no quotas.
"""


def on_load(name: str, model_name: str) -> FigureTable:
    """One model on one load."""
    load = ELSEWHERE[name]()
    with Foretold(load) as foretold:
        return compare(model_name, load, foretold)


def compare(model_name: str, load: AcceptanceLoad, foretold: Foretold) -> FigureTable:
    """One model on one load in both markets. What is not on spot is asked once."""
    found = FigureTable()
    fixed: dict[str, RunResult] = {}
    for market in Market:
        experiment = experiment_of(spec_of(load, market, model_name, world=WORLD), foretold.build)
        in_time = _lambda_in_time(experiment)
        for name in (*MANAGED, *(ON_LAMBDA if in_time else ())):
            fixed[name] = fixed.get(name) or rival_run(experiment, name, fully=False)
        rented = ("mark", "autoscaler", *((SPILLING,) if in_time else ()))
        runs = fixed | {name: rival_run(experiment, name, fully=False) for name in rented}
        found.add(_row(load.label, experiment, runs))
    return found


def completed(figures: FigureTable) -> FigureTable:
    """With the means over all loads and models."""
    return replace(figures, checks=[*figures.checks, *_mean_checks(figures)])


def tables(figures: FigureTable) -> Tables:
    """Tables of the part."""
    head = ("cases", *(f"hedged / {other}" for other in OTHERS.values()))
    return {"means": [head, *(_means(kind, figures) for kind in CASES)], **part_tables(figures, "cases", HEAD)}


def _lambda_in_time(experiment: Experiment) -> bool:
    overflow = experiment.supply.overflow
    return overflow is not None and overflow.latency_s <= experiment.supply.slo.latency_s


def _means(kind: str, figures: FigureTable) -> Row:
    """Geometric means over the cases of a kind."""
    part, ending = CASES[kind]
    cells = []
    for other in OTHERS:
        found = _ratios(figures, part, f" / {other}{ending}")
        cells.append(f"{geometric_mean(found):.3f} ({len(found)})" if found else "")
    return (kind, *cells)


def _ratios(figures: FigureTable, part: str, ending: str) -> list[float]:
    return [value for name, value in figures.numbers.items() if part in name and name.endswith(ending)]


def _mean_checks(figures: FigureTable) -> Iterator[Check]:
    for market, goal in GOALS.items():
        ratios = _ratios(figures, f", {market}", " / rival")
        if ratios:
            mean = geometric_mean(ratios)
            what = f"total, hedged / cheapest rival that keeps the objective, all loads and models, {market}"
            yield Check(what, f"{mean:.3f} ({len(ratios)})", f"<= {goal:g}", mean <= goal)


def _row(where: str, experiment: Experiment, runs: dict[str, RunResult]) -> FigureTable:
    hedged, mark, managed = experiment.run("hedged"), runs["mark"], runs["sagemaker"]
    rival = best_of(
        (run for name, run in runs.items() if name != "mark"),
        lacking=lambda run: run.slo.target - run.attained,
        usd=lambda run: run.cost.total,
        name=lambda run: run.policy,
    )
    assert rival is not None, "there are managed ones on every load"
    kept = keeps_objective(rival)
    spec = experiment.spec
    case = f"{where}, {spec.model.name}, {spec.market.value}"
    others = {"rival": rival, "mark": mark, "sagemaker": managed}
    ratios = {other: hedged.cost.total / run.cost.total for other, run in others.items()}
    cells = (
        *(where, spec.model.name, spec.market.value, f"{hedged.cost.total:.2f}"),
        rival.policy if kept else f"({rival.policy})",
        f"{ratios['rival']:.3f}" if kept else f"({ratios['rival']:.3f})",
        f"{ratios['mark']:.3f}",
        f"{ratios['sagemaker']:.3f}" if keeps_objective(managed) else f"({ratios['sagemaker']:.3f})",
        f"{hedged.cost.serving:.2f}",
        *over_yardsticks(hedged, experiment.yardsticks()),
        *(f"{run.attained:.4f}" for run in (hedged, rival, mark, managed)),
    )
    target = hedged.slo.target
    checks = [
        Check(f"{case}: total, hedged / mark", f"{ratios['mark']:.3f}", f"<= {MOST}", ratios["mark"] <= MOST),
        Check(f"{case}: hedged attained", f"{hedged.attained:.4f}", f">= {target:g}", hedged.attained >= target),
    ]
    if kept:
        what = f"{case}: total, hedged / cheapest rival ({rival.policy})"
        checks.append(Check(what, f"{ratios['rival']:.3f}", f"<= {MOST}", ratios["rival"] <= MOST))
    numbers = {f"{case} / {other}": ratio for other, ratio in ratios.items() if other != "rival" or kept}
    for other, run in others.items():
        if keeps_objective(run):
            numbers[f"{case} / {other}{KEEPING}"] = ratios[other]
    return FigureTable(rows=[cells], checks=checks, numbers=numbers)
