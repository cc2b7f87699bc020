"""Kairos' figure 12: the sizes of the queries change, and the pool has to.

rm2 is served on the pool chosen for the artifact's mix of sizes; then sizes become Gaussian. The paper does not
state the Gaussian's parameters: ours has the mean and the standard deviation of the mix, so that work stays equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from mark.dispatch.central.policy import CentralRule
from mark.domain.load.sizes import SizeDistribution, kairos_sizes, sizes_from_formula
from mark.planner.pool_search import PoolSearch, search_pools
from mark.report.formatting import format_pool
from mark.studies.kairos.cases import Case, Scope, assumptions, case
from mark.studies.plot import Curve, Plot
from mark.studies.study import Row, Study, StudyContext, View

MODEL = "rm2"
EARLY = 8
"""Measurements by which Kairos+ was done in the paper."""
BEST_CLAIM = "section 8.4: Kairos and Kairos+ within 15 % of the best pool after the change"
EARLY_CLAIM = "section 8.4: Kairos+ finishes by the 8th measurement"

_VIEW = View(
    title="rm2 after the sizes became Gaussian: queries/s within the objective, and of the best pool's",
    index=("pool",),
    quantities=("qps", "of_best", "evaluations"),
)


def gaussian_like(sizes: SizeDistribution) -> SizeDistribution:
    """Gaussian sizes of that mean and standard deviation, clipped where those sizes end."""
    spread = math.fsum(
        p * (size - sizes.mean) ** 2 for size, p in zip(sizes.sizes, sizes.probabilities, strict=True)
    )
    return sizes_from_formula(f"normal:{sizes.mean:.1f},{math.sqrt(spread):.1f},{sizes.sizes[0]},{sizes.largest}")


def kairos_fig12(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or Scope(models=(MODEL,))
    kernel = context.central_kernel()
    sizes = gaussian_like(kairos_sizes())
    rows: list[Row] = []
    plots: list[Plot] = []
    for model in asked.models:
        context.progress(f"{model}: Gaussian sizes", 0.0)
        before = case(model, asked, kernel=kernel, seed=context.seed)
        after = case(model, asked, kernel=kernel, seed=context.seed, sizes=sizes)
        search = search_pools(after.space.ranked, after.evaluate)
        rows.extend(_rows(before, after, search))
        plots.append(_plot(model, before, after, search))
    return Study(
        name="kairos-fig12",
        title="Kairos, figure 12: a change of the sizes",
        rows=tuple(rows),
        assumptions=(
            *assumptions(asked),
            f"After the change: {sizes.name}, the mean and the deviation of the mix; the paper states neither.",
        ),
        views=(_VIEW,),
        series=tuple(plots),
    )


def _rows(before: Case, after: Case, search: PoolSearch) -> Iterator[Row]:
    best = after.pool(search.best_rank)
    early_qps = max(search.measured_qps[:EARLY])
    early = after.pool(search.ranks[search.measured_qps.index(early_qps)])
    for name, pool, qps, evaluations in (
        ("chosen before the change", before.chosen, after.qps(before.chosen), 0),
        ("Kairos, chosen again", after.chosen, after.qps(after.chosen), 0),
        (f"Kairos+ after {EARLY}", early, early_qps, min(EARLY, len(search.ranks))),
        ("Kairos+ at its end", best, search.best_qps, len(search.ranks)),
        ("homogeneous", after.space.homogeneous(after.budget_usd_per_hour)[0], after.homogeneous_qps(), 0),
    ):
        where = (("pool", name),)
        yield Row(where, "qps", qps, notes=(format_pool(pool),))
        yield Row(where, "of_best", qps / search.best_qps, claim=BEST_CLAIM)
        yield Row(where, "evaluations", evaluations, unit="count", claim=EARLY_CLAIM)


def _plot(model: str, before: Case, after: Case, search: PoolSearch) -> Plot:
    x = tuple(float(turn) for turn in range(1, len(search.ranks) + 1))
    best_so_far = tuple(float(qps) for qps in np.maximum.accumulate(search.measured_qps))
    steady = ((after.chosen, "Kairos, chosen again"), (before.chosen, "chosen before the change"))
    return Plot(
        name=f"kairos-fig12-{model}",
        title=f"{model}: queries/s within the objective after the change",
        x_label="pools measured",
        y_label="queries/s",
        curves=(
            Curve(label="Kairos+, best so far", x=x, y=best_so_far),
            *(
                Curve(label=label, x=x, y=(after.qps(pool, CentralRule.KAIROS),) * len(x))
                for pool, label in steady
            ),
        ),
    )
