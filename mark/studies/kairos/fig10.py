"""Kairos' figure 10: how many pools a search measures, and where the best one stands among the bounds."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import numpy as np

from mark.planner.pool_search import PoolSearch, search_pools
from mark.report.formatting import format_pool
from mark.simulator.pool_rivals import KAIROS_PLUS, SEARCHES, proposals
from mark.simulator.rng import stream
from mark.studies.kairos.cases import Case, Scope, assumptions, case
from mark.studies.plot import Curve, Plot
from mark.studies.study import Row, Study, StudyContext, View

RUNS = 5
"""Runs of each search that draws; its numbers are their means."""
SCOPE = Scope(queries=5_000, seeds=1)
"""Short measurements: the searches that draw measure hundreds of pools."""
SPACE_CLAIM = "section 8.3: Kairos+ measures less than 1 % of the search space, Ribbon and DRS often 5 to 30 %"
RANK_CLAIM = "section 8.5: the best pool is always within the top 10 upper bounds"

_SEARCHES = View(
    title="Pools measured by each search, with the same prunings",
    index=("model", "search"),
    quantities=("evaluations", "percent_of_space", "until_best"),
)
_CHOICE = View(
    title="Kairos' choice without a measurement",
    index=("model",),
    quantities=("pools", "best_bound_rank", "best_qps", "chosen_qps", "chosen_over_best", "best_over_bound"),
)


def kairos_fig10(context: StudyContext, scope: Scope | None = None, runs: int = RUNS) -> Study:
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
        rows.extend(_choice_rows(model, found, max(_best(many) for many in searches.values())))
        plots.append(_plot(model, searches))
    return Study(
        name="kairos-fig10",
        title="Kairos, figure 10: pools measured until the search ends",
        rows=tuple(rows),
        assumptions=(
            *assumptions(asked),
            (
                f"Searches that draw: means of {runs} runs. Every search drops pools whose bound is at most the "
                "best measured throughput, and pools within a measured one; it ends when none is left."
            ),
        ),
        views=(_SEARCHES, _CHOICE),
        series=tuple(plots),
    )


def _best(searches: list[PoolSearch]) -> tuple[float, int]:
    """The most that any run measured, with the pool's rank."""
    return max((search.best_qps, search.best_rank) for search in searches)


def _search_rows(model: str, found: Case, searches: dict[str, list[PoolSearch]]) -> Iterator[Row]:
    for method, many in searches.items():
        where = (("model", model), ("search", method))
        evaluations = fmean(len(search.ranks) for search in many)
        share = 100 * evaluations / len(found.space.ranked)
        until_best = fmean(search.best + 1 for search in many)
        yield Row(where, "evaluations", evaluations)
        yield Row(where, "percent_of_space", share, claim=SPACE_CLAIM)
        yield Row(where, "until_best", until_best)


def _choice_rows(model: str, found: Case, best: tuple[float, int]) -> Iterator[Row]:
    best_qps, rank = best
    chosen_qps = found.qps(found.chosen)
    bound = float(found.space.ranked.bound_qps[rank])
    for quantity, ours, claim, note in (
        ("pools", len(found.space.ranked), None, None),
        ("best_bound_rank", rank + 1, RANK_CLAIM, f"best: {format_pool(found.pool(rank))}"),
        ("best_qps", best_qps, None, None),
        ("chosen_qps", chosen_qps, None, f"chosen: {format_pool(found.chosen)}"),
        ("chosen_over_best", chosen_qps / best_qps, None, None),
        ("best_over_bound", best_qps / bound, None, None),
    ):
        yield Row((("model", model),), quantity, ours, claim=claim, notes=(note,) if note else ())


def _plot(model: str, searches: dict[str, list[PoolSearch]]) -> Plot:
    """The best so far by the number of measurements; of a search that draws, its first run."""
    return Plot(
        name=f"kairos-fig10-{model}",
        title=f"{model}: best pool so far",
        x_label="pools measured",
        y_label="queries/s within the objective",
        curves=tuple(
            Curve(
                label=method,
                x=tuple(float(turn) for turn in range(1, len(many[0].ranks) + 1)),
                y=tuple(float(qps) for qps in np.maximum.accumulate(many[0].measured_qps)),
            )
            for method, many in searches.items()
        ),
        log_x=True,
    )
