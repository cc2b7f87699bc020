"""Kairos' figure 11: how many pools a search measures under Kairos' own dispatch."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from mark.planner.kairos.pool_search import PoolSearch, search_pools
from mark.simulator.fixed.pool_rivals import KAIROS_PLUS, SEARCHES, proposals
from mark.simulator.rng import stream
from mark.studies.kairos.cases import Case, Scope, assumptions, case
from mark.studies.kairos.fig10 import best_so_far
from mark.studies.plot import Plot
from mark.studies.study import Row, Study, StudyContext, View

RUNS = 5
"""Runs of each search that draws; its numbers are their means."""
SCOPE = Scope(queries=5_000, seeds=1)
"""Short measurements: the searches that draw measure hundreds of pools."""
CLAIM = "section 8.3: other searches, with the same prunings, need significantly more measurements than Kairos+"

_SEARCHES = View(
    title="Pools measured by each search, with the same prunings",
    index=("model", "search"),
    quantities=("evaluations", "percent_of_space", "until_best"),
)


def kairos_fig11(context: StudyContext, scope: Scope | None = None, runs: int = RUNS) -> Study:
    """Run it."""
    asked = scope or SCOPE
    kernel = context.central_kernel()
    rows: list[Row] = []
    plots: list[Plot] = []
    for place, model in enumerate(asked.models):
        found = case(model, asked, kernel=kernel, seed=context.seed)
        searches: dict[str, list[PoolSearch]] = {}
        for turn, method in enumerate(SEARCHES):
            context.progress(f"{model}: {method}", (place + turn / len(SEARCHES)) / len(asked.models))
            searches[method] = [
                search_pools(
                    found.space.ranked,
                    found.evaluate,
                    proposals(method, stream(context.seed, f"{method} {run}")),
                )
                for run in range(1 if method == KAIROS_PLUS else runs)
            ]
        rows.extend(_search_rows(model, found, searches))
        plots.append(_plot(model, searches))
    return Study(
        name="kairos-fig11",
        title="Kairos, figure 11: pools that each search measures",
        rows=tuple(rows),
        assumptions=(
            *assumptions(asked),
            (
                f"Searches that draw: means of {runs} runs. Every search drops pools whose bound is at most the "
                "best measured throughput, and pools within a measured one; it ends when none is left."
            ),
        ),
        views=(_SEARCHES,),
        series=tuple(plots),
    )


def _search_rows(model: str, found: Case, searches: dict[str, list[PoolSearch]]) -> Iterator[Row]:
    for method, many in searches.items():
        where = (("model", model), ("search", method))
        evaluations = fmean(len(search.ranks) for search in many)
        share = 100 * evaluations / len(found.space.ranked)
        until_best = fmean(search.best + 1 for search in many)
        yield Row(where, "evaluations", evaluations)
        yield Row(where, "percent_of_space", share, claim=CLAIM)
        yield Row(where, "until_best", until_best)


def _plot(model: str, searches: dict[str, list[PoolSearch]]) -> Plot:
    """The best so far by the number of measurements; of a search that draws, its first run."""
    return Plot(
        name=f"kairos-fig11-{model}",
        title=f"{model}: best pool so far",
        x_label="pools measured",
        y_label="queries/s within the objective",
        curves=tuple(best_so_far(method, many[0]) for method, many in searches.items()),
        log_x=True,
    )
