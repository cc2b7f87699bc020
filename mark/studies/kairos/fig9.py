"""Kairos' figure 9: against Ribbon's, DeepRecSys' and Clockwork's way to serve, each on its own best pool."""

from __future__ import annotations

from collections.abc import Iterator

from mark.dispatch.central.policy import CentralRule, TooLate
from mark.report.formatting import format_pool
from mark.studies.kairos.cases import SYSTEM, Case, Scope, assumptions, case
from mark.studies.plot import Plot
from mark.studies.study import Row, Study, StudyContext, View

PUBLISHED = {TooLate.HOLD: "Kairos, Eq. 8 as printed", TooLate.COMMIT: "the same, late pairs start too"}
"""Not in the paper's figure: its own costs on Kairos' pool, and what the paper leaves open of late pairs."""
CLAIM = {
    CentralRule.FCFS: "section 8.2: around 1.5x over Ribbon for all models",
    CentralRule.DRS: "section 8.2: up to 1.44x over DRS and CLKWRK",
    CentralRule.CLOCKWORK: "section 8.2: up to 1.44x over DRS and CLKWRK",
}

_VIEW = View(
    title="Queries/s within the objective on the best pool of each, and Kairos' chosen pool over it",
    index=("model", "system"),
    quantities=("qps", "kairos_over_it"),
)


def kairos_fig9(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or Scope()
    kernel = context.central_kernel()
    rows: list[Row] = []
    plots: list[Plot] = []
    for place, model in enumerate(asked.models):
        found = case(model, asked, kernel=kernel, seed=context.seed)
        pools = {CentralRule.KAIROS: found.chosen}
        for turn, rule in enumerate(SYSTEM):
            if rule not in pools:
                context.progress(f"{model}: best pool of {SYSTEM[rule]}", (place + turn / 5) / len(asked.models))
                pools[rule] = found.best_pool(rule)
        rows.extend(_rows(model, found, pools))
        plots.append(_plot(model, found, pools))
    return Study(
        name="kairos-fig9",
        title="Kairos, figure 9: against its rivals, each on its own best pool",
        rows=tuple(rows),
        assumptions=(
            *assumptions(asked),
            (
                "Kairos serves on the pool it chooses without a measurement; each rival on the best of all pools, "
                "which no team could know beforehand. DeepRecSys' threshold is the one its hill climbing finds."
            ),
        ),
        views=(_VIEW,),
        series=tuple(plots),
    )


def _rows(model: str, found: Case, pools: dict[CentralRule, dict[str, int]]) -> Iterator[Row]:
    ours = found.qps(pools[CentralRule.KAIROS])
    for rule, pool in pools.items():
        where = (("model", model), ("system", SYSTEM[rule]))
        qps = found.qps(pool, rule)
        yield Row(where, "qps", qps, notes=(f"pool: {format_pool(pool)}",))
        if rule is not CentralRule.KAIROS:
            yield Row(where, "kairos_over_it", ours / qps, claim=CLAIM.get(rule))
    for too_late, name in PUBLISHED.items():
        qps = found.qps(found.chosen, CentralRule.KAIROS_PUBLISHED, too_late)
        yield Row((("model", model), ("system", name)), "qps", qps)
        yield Row((("model", model), ("system", name)), "kairos_over_it", ours / qps if qps else None)


def _plot(model: str, found: Case, pools: dict[CentralRule, dict[str, int]]) -> Plot:
    top_qps = 1.2 * found.qps(pools[CentralRule.KAIROS])
    return Plot(
        name=f"kairos-fig9-{model}",
        title=f"{model}: share of the queries in time, each on its pool",
        x_label="queries/s",
        y_label="share in time",
        curves=tuple(
            found.attained_curve(SYSTEM[rule], pool, rule, top_qps)
            for rule, pool in pools.items()
            if rule is not CentralRule.ORACLE
        ),
        level=(found.slo.target, "objective"),
    )
