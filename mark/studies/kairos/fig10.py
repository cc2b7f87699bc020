"""Kairos' figure 10: pools that each system measures under its own dispatch, all with Kairos+' search.

The paper gives every rival the search of Kairos+, bounds and prunings included. A rule that serves less than the
bound promises prunes less by it, and measures more.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from mark.dispatch.central.policy import CentralRule
from mark.planner.kairos.pool_search import PoolSearch, search_pools
from mark.report.formatting import format_pool
from mark.studies.kairos.cases import SYSTEM, Case, Scope, assumptions, case
from mark.studies.plot import Curve, Plot
from mark.studies.study import Row, Study, StudyContext, View

SCOPE = Scope(queries=5_000, seeds=1)
"""Short measurements: rivals measure a third of all pools."""
RULES = (CentralRule.KAIROS, CentralRule.FCFS, CentralRule.DRS, CentralRule.CLOCKWORK)
RIVALS_CLAIM = "section 8.3: Ribbon and DRS often need to evaluate 5 to 30 % of the search space"
CLAIM = {
    CentralRule.KAIROS: "section 8.3: Kairos+ consistently evaluates less than 1 % of the search space",
    CentralRule.FCFS: RIVALS_CLAIM,
    CentralRule.DRS: RIVALS_CLAIM,
}

_VIEW = View(
    title="Pools measured by each system under its own dispatch, until none is left",
    index=("model", "system"),
    quantities=("evaluations", "percent_of_space", "until_best", "best_qps"),
)


def kairos_fig10(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or SCOPE
    kernel = context.central_kernel()
    rows: list[Row] = []
    plots: list[Plot] = []
    for place, model in enumerate(asked.models):
        found = case(model, asked, kernel=kernel, seed=context.seed)
        searches: dict[CentralRule, PoolSearch] = {}
        for turn, rule in enumerate(RULES):
            context.progress(f"{model}: {SYSTEM[rule]}", (place + turn / len(RULES)) / len(asked.models))
            searches[rule] = search_pools(found.space.ranked, partial(found.evaluate, rule=rule))
        rows.extend(_rows(model, found, searches))
        plots.append(_plot(model, searches))
    return Study(
        name="kairos-fig10",
        title="Kairos, figure 10: pools that each system measures",
        rows=tuple(rows),
        assumptions=(
            *assumptions(asked),
            (
                "Every system measures the best bound of Eq. 15 next, drops pools whose bound is at most its own "
                "best measurement, and pools within a measured one; it ends when none is left. DeepRecSys climbs "
                "to a threshold in each pool, which counts as one measurement."
            ),
        ),
        views=(_VIEW,),
        series=tuple(plots),
    )


def _rows(model: str, found: Case, searches: dict[CentralRule, PoolSearch]) -> Iterator[Row]:
    for rule, search in searches.items():
        where = (("model", model), ("system", SYSTEM[rule]))
        count = len(search.ranks)
        best = f"best: {format_pool(found.pool(search.best_rank))}"
        yield Row(where, "evaluations", count)
        yield Row(where, "percent_of_space", 100 * count / len(found.space.ranked), claim=CLAIM.get(rule))
        yield Row(where, "until_best", search.best + 1)
        yield Row(where, "best_qps", search.best_qps, notes=(best,))


def _plot(model: str, searches: dict[CentralRule, PoolSearch]) -> Plot:
    return Plot(
        name=f"kairos-fig10-{model}",
        title=f"{model}: best pool so far, each under its own dispatch",
        x_label="pools measured",
        y_label="queries/s within the objective",
        curves=tuple(best_so_far(SYSTEM[rule], search) for rule, search in searches.items()),
        log_x=True,
    )


def best_so_far(label: str, search: PoolSearch) -> Curve:
    """The most that was measured, by the number of measurements."""
    best = [max(search.measured_qps[: turn + 1]) for turn in range(len(search.ranks))]
    return Curve(label=label, x=tuple(float(turn + 1) for turn in range(len(best))), y=tuple(map(float, best)))
