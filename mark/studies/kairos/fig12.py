"""Kairos' figure 12: the sizes of the queries change, and the pool has to.

A model is served on the pool chosen for the artifact's mix of sizes; then sizes become Gaussian. The paper shows
rm2 and does not state the Gaussian's parameters: ours (`cases.SMALL_SIZES`) changes the pool of three models.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from mark.dispatch.central.policy import CentralRule
from mark.planner.kairos.pool_search import PoolSearch, search_pools
from mark.report.formatting import format_pool
from mark.studies.kairos.cases import SMALL_SIZES, SYSTEM, Case, Scope, assumptions, case
from mark.studies.kairos.fig10 import best_so_far
from mark.studies.plot import Curve, Plot
from mark.studies.study import Row, Study, StudyContext, View

MODELS = ("rm2", "mtwnd", "dien")
"""Models whose best pool changes; the paper shows rm2."""
EARLY = 8
"""Measurements by which Kairos+ was done in the paper."""
SHOWN = 20
"""Measurements of the figure."""
RIVALS = (CentralRule.FCFS, CentralRule.DRS, CentralRule.CLOCKWORK)
BEST_CLAIM = "section 8.4: Kairos and Kairos+ within 15 % of the oracle after the change"
EARLY_CLAIM = "section 8.4: Kairos+ finishes by the 8th measurement"
RIVAL_CLAIM = "section 8.4: Kairos, without a measurement, 2x Ribbon and DRS; CLKWRK takes 9 to reach Kairos"

_VIEW = View(
    title="After the sizes became Gaussian: queries/s within the objective, and of the best pool's",
    index=("model", "pool"),
    quantities=("qps", "of_best", "kairos_over_it", "evaluations"),
)


def kairos_fig12(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or Scope(models=MODELS)
    kernel = context.central_kernel()
    rows: list[Row] = []
    plots: list[Plot] = []
    for place, model in enumerate(asked.models):
        context.progress(f"{model}: Gaussian sizes", place / len(asked.models))
        before = case(model, asked, kernel=kernel, seed=context.seed)
        after = case(model, asked, kernel=kernel, seed=context.seed, sizes=SMALL_SIZES)
        search = search_pools(after.space.ranked, after.evaluate)
        rivals = {
            rule: search_pools(after.space.ranked, partial(after.evaluate, rule=rule), most_measured=SHOWN)
            for rule in RIVALS
        }
        rows.extend(_rows(model, before, after, search, rivals))
        plots.append(_plot(model, before, after, {CentralRule.KAIROS: search, **rivals}))
    return Study(
        name="kairos-fig12",
        title="Kairos, figure 12: a change of the sizes",
        rows=tuple(rows),
        assumptions=(
            *assumptions(asked),
            f"After the change: {SMALL_SIZES.name}; the paper states no parameters.",
            f"Rivals measure {SHOWN} pools under their own dispatch, the best bounds first.",
        ),
        views=(_VIEW,),
        series=tuple(plots),
    )


def _rows(
    model: str, before: Case, after: Case, search: PoolSearch, rivals: dict[CentralRule, PoolSearch]
) -> Iterator[Row]:
    early_qps = max(search.measured_qps[:EARLY])
    early = after.pool(search.ranks[search.measured_qps.index(early_qps)])
    chosen_qps = after.qps(after.chosen)
    ours = (
        ("chosen before the change", before.chosen, after.qps(before.chosen), 0),
        ("Kairos, chosen again", after.chosen, chosen_qps, 0),
        (f"Kairos+ after {EARLY}", early, early_qps, min(EARLY, len(search.ranks))),
        ("Kairos+ at its end", after.pool(search.best_rank), search.best_qps, len(search.ranks)),
        ("homogeneous", after.space.homogeneous(after.budget_usd_per_hour)[0], after.homogeneous_qps(), 0),
    )
    for name, pool, qps, evaluations in ours:
        where = (("model", model), ("pool", name))
        yield Row(where, "qps", qps, notes=(format_pool(pool),))
        yield Row(where, "of_best", qps / search.best_qps, claim=BEST_CLAIM)
        yield Row(where, "evaluations", evaluations, unit="count", claim=EARLY_CLAIM)
    for rule, found in rivals.items():
        where = (("model", model), ("pool", f"{SYSTEM[rule]}, best of {SHOWN}"))
        yield Row(where, "qps", found.best_qps, notes=(format_pool(after.pool(found.best_rank)),))
        yield Row(where, "kairos_over_it", chosen_qps / found.best_qps, claim=RIVAL_CLAIM)


def _plot(model: str, before: Case, after: Case, searches: dict[CentralRule, PoolSearch]) -> Plot:
    ends = (1.0, float(max(len(search.ranks) for search in searches.values())))
    steady = ((after.chosen, "Kairos, chosen again"), (before.chosen, "chosen before the change"))
    return Plot(
        name=f"kairos-fig12-{model}",
        title=f"{model}: best pool so far after the change",
        x_label="pools measured",
        y_label="queries/s within the objective",
        curves=(
            *(best_so_far(f"{SYSTEM[rule]}, best so far", search) for rule, search in searches.items()),
            *(Curve(label=label, x=ends, y=(after.qps(pool),) * 2) for pool, label in steady),
        ),
    )
