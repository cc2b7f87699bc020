"""Robustness of the ranking on other loads and models: `hedged` no dearer than `mark`, or `sagemaker`."""

from __future__ import annotations

import math

from mark.domain.offering import Market
from mark.simulator.experiment import Experiment
from mark.simulator.results import RunResult
from mark.studies.setups import SETUPS
from scripts.acceptance.figures_page import Check, FigureTable, Row, over_yardsticks, part_text, table
from scripts.acceptance.loads import ELSEWHERE, AcceptanceLoad, Foretold, experiment_of, spec_of

KEEPING = " that keeps the objective"
OTHERS = ("mark", "sagemaker")
CASES = {
    "all": ("", ""),
    "those where the other keeps the objective": ("", KEEPING),
    "Inception-v3, on demand": (", inception-v3, on-demand", ""),
    "Inception-v3, spot": (", inception-v3, spot", ""),
    "Inception-v3, on demand, the other keeps the objective": (", inception-v3, on-demand", KEEPING),
    "Inception-v3, spot, the other keeps the objective": (", inception-v3, spot", KEEPING),
}
"""A mean over all mixes models, and cases that the other misses. What names of such cases hold and end with."""
MOST = 1.02
"""Of the other's cost."""
HEAD = (
    *(
        "load",
        "model",
        "market",
        "hedged serving USD",
        "/ mark",
        "x reference",
        "x floor",
        "hedged total USD",
        "/ sagemaker",
    ),
    *("attained: hedged", "mark", "sagemaker"),
)
TITLE = "The same direction elsewhere"
NOTE = f"""Serving cost of `hedged` over `mark`'s, at most {MOST}, and its total over `sagemaker`'s, at most
{MOST} where that one attains its target (in brackets where it does not); and `hedged` attains its target, or no
less than `mark` where that one misses it, too. Four models as the studies set them up (for NASNet and OpenNMT
Lambda answers beyond the objective, so that what overflows is late). Twitter's day 12 and the World Cup slices
are whole days of minute means; the Azure traces, an hour each, are scaled up to 100 requests/s and their first
ten minutes are all the history; MMPP is `mark trace generate mmpp` with seed 1, six hours after eighteen. Only
what misses is listed before the table.
"""


def on_load(name: str) -> FigureTable:
    """All models on one load; its forecasts are made once."""
    load, foretold, found = ELSEWHERE[name](), Foretold(), FigureTable()
    for model_name in SETUPS:
        found.extend(compare(model_name, load, foretold))
    return found


def compare(model_name: str, load: AcceptanceLoad, foretold: Foretold) -> FigureTable:
    """One model on one load in both markets. The managed service is not on spot: it is asked once."""
    found = FigureTable()
    managed: RunResult | None = None
    for market in Market:
        experiment = experiment_of(spec_of(load, market, model_name), foretold.build)
        managed = managed or experiment.run("sagemaker")
        found.add(_row(load.label, experiment, managed))
    return found


def summary(figures: FigureTable) -> str:
    """The part of the page."""
    head = ("cases", *(f"hedged / {other}" for other in OTHERS))
    means = "Geometric means, and of how many cases:\n\n" + table(head, (_means(kind, figures) for kind in CASES))
    return part_text(TITLE, f"{NOTE}\n{means}", figures, HEAD, every_check=False)


def _means(kind: str, figures: FigureTable) -> Row:
    """Geometric means over the cases of a kind."""
    part, ending = CASES[kind]
    cells = []
    for other in OTHERS:
        end = f" / {other}{ending}"
        found = [value for name, value in figures.numbers.items() if part in name and name.endswith(end)]
        cells.append(f"{_geometric(found):.3f} ({len(found)})" if found else "")
    return (kind, *cells)


def _row(where: str, experiment: Experiment, managed: RunResult) -> FigureTable:
    hedged, mark = experiment.run("hedged"), experiment.run("mark")
    spec = experiment.spec
    case = f"{where}, {spec.model.name}, {spec.market.value}"
    beside_mark = hedged.cost.serving / mark.cost.serving
    beside_managed = hedged.cost.total / managed.cost.total
    is_judged = managed.attained >= managed.slo.target
    wanted = min(hedged.slo.target, mark.attained)
    cells = (
        *(where, spec.model.name, spec.market.value, f"{hedged.cost.serving:.2f}", f"{beside_mark:.3f}"),
        *over_yardsticks(hedged, experiment.yardsticks()),
        f"{hedged.cost.total:.2f}",
        f"{beside_managed:.3f}" if is_judged else f"({beside_managed:.3f})",
        *(f"{run.attained:.4f}" for run in (hedged, mark, managed)),
    )
    checks = [
        Check(f"{case}: serving, hedged / mark", f"{beside_mark:.3f}", f"<= {MOST}", beside_mark <= MOST),
        Check(f"{case}: hedged attained", f"{hedged.attained:.4f}", f">= {wanted:.4f}", hedged.attained >= wanted),
    ]
    if is_judged:
        checks.append(
            Check(
                f"{case}: total, hedged / sagemaker", f"{beside_managed:.3f}", f"<= {MOST}", beside_managed <= MOST
            )
        )
    numbers = {f"{case} / mark": beside_mark, f"{case} / sagemaker": beside_managed}
    if mark.attained >= mark.slo.target:
        numbers[f"{case} / mark{KEEPING}"] = beside_mark
    if is_judged:
        numbers[f"{case} / sagemaker{KEEPING}"] = beside_managed
    return FigureTable(rows=[cells], checks=checks, numbers=numbers)


def _geometric(values: list[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else math.nan
