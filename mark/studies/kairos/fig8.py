"""Kairos' figure 8: throughput of the pool that Kairos chooses over that of the best homogeneous pool."""

from __future__ import annotations

from collections.abc import Iterator

from mark.dispatch.central.policy import CentralRule
from mark.report.formatting import format_pool
from mark.simulator.fixed.fixed_pool import Arrivals
from mark.studies.kairos.cases import Case, Scope, assumptions, case
from mark.studies.plot import Plot
from mark.studies.study import Row, Study, StudyContext, View

CLAIM = "section 8.1: more than 1.25x for all five models, up to 2x (rm2)"

_VIEW = View(
    title="Queries/s within the objective, and over the homogeneous pool of the same budget",
    index=("model", "arrivals"),
    quantities=("homogeneous_qps", "kairos_qps", "ratio", "bound_qps", "of_bound"),
)


def kairos_fig8(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or Scope()
    kernel = context.central_kernel()
    rows: list[Row] = []
    plots: list[Plot] = []
    for place, model in enumerate(asked.models):
        for turn, arrivals in enumerate(Arrivals):
            context.progress(f"{model}: {arrivals} arrivals", (place + turn / 2) / len(asked.models))
            found = case(model, asked, kernel=kernel, seed=context.seed, arrivals=arrivals)
            rows.extend(_rows(model, arrivals, found))
            if arrivals is Arrivals.POISSON:
                plots.append(_plot(model, found))
    return Study(
        name="kairos-fig8",
        title="Kairos, figure 8: the chosen pool over the best homogeneous one",
        rows=tuple(rows),
        assumptions=assumptions(asked),
        views=(_VIEW,),
        series=tuple(plots),
    )


def _rows(model: str, arrivals: Arrivals, found: Case) -> Iterator[Row]:
    where = (("model", model), ("arrivals", str(arrivals)))
    chosen = found.chosen
    ours, rival = found.qps(chosen), found.homogeneous_qps()
    bound = float(found.space.ranked.bound_qps[found.chosen_rank])
    yield Row(where, "homogeneous_qps", rival)
    yield Row(where, "kairos_qps", ours, notes=(f"chosen: {format_pool(chosen)}",))
    yield Row(where, "ratio", ours / rival, claim=CLAIM)
    yield Row(where, "bound_qps", bound)
    yield Row(where, "of_bound", ours / bound)


def _plot(model: str, found: Case) -> Plot:
    homogeneous, _ = found.space.homogeneous(found.budget_usd_per_hour)
    top_qps = 1.2 * found.qps(found.chosen)
    return Plot(
        name=f"kairos-fig8-{model}",
        title=f"{model}: share of the queries in time",
        x_label="queries/s",
        y_label="share in time",
        curves=(
            found.attained_curve("Kairos' pool", found.chosen, CentralRule.KAIROS, top_qps),
            found.attained_curve("homogeneous, not scaled", homogeneous, CentralRule.FCFS, top_qps),
        ),
        level=(found.slo.target, "objective"),
    )
