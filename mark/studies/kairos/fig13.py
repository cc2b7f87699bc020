"""Kairos' figures 13 and 14: what the pools of the best bounds truly serve, under Kairos and under its rivals."""

from __future__ import annotations

from collections.abc import Iterator

from mark.dispatch.central.policy import CentralRule
from mark.report.formatting import format_pool
from mark.studies.kairos.cases import SYSTEM, Case, Scope, assumptions, case
from mark.studies.plot import Curve, Plot
from mark.studies.study import Row, Study, StudyContext, View

SCOPE = Scope(queries=10_000, seeds=1)
SHOWN = 20
"""Bounds of figure 13."""
TOP = 10
"""Bounds of figure 14; the optimum is always among them (section 8.5)."""
RULES = (CentralRule.KAIROS, CentralRule.FCFS, CentralRule.DRS, CentralRule.CLOCKWORK)
RANK_CLAIM = f"section 8.5: the best pool is always among the top {TOP} bounds"
BOUND_CLAIM = "section 8.5: bound and observed throughput are close, and follow the same trend"
RIVAL_CLAIM = "section 8.5: with any other dispatch the throughput is far from the bound"
ORACLE_CLAIM = "section 8.5: the bound is lower than, but close to the oracle's throughput"

_CHOICE = View(
    title=f"Kairos' choice beside the best of the {SHOWN} best bounds",
    index=("model",),
    quantities=("pools", "best_bound_rank", "best_qps", "chosen_qps", "chosen_over_best", "best_over_bound"),
)
_POOLS = View(
    title="Pools by their bound, queries/s; * is Kairos' choice",
    index=("model", "rank"),
    quantities=("bound_qps", "qps", "of_bound"),
)
_RULES = View(
    title=f"Mean over the {TOP} best bounds of what a pool serves, as a share of its bound",
    index=("model", "system"),
    quantities=("of_bound", "qps"),
)


def kairos_fig13(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or SCOPE
    rows: list[Row] = []
    plots: list[Plot] = []
    for model, found in _cases(context, asked):
        ranks = range(min(SHOWN, len(found.space.ranked)))
        rates = [found.qps(found.pool(rank)) for rank in ranks]
        rows.extend(_choice_rows(model, found, rates))
        rows.extend(_pool_rows(model, found, rates))
        plots.append(_plot("kairos-fig13", model, found, {"actual": rates}))
    return Study(
        name="kairos-fig13",
        title="Kairos, figure 13: actual throughput of the best bounds",
        rows=tuple(rows),
        assumptions=assumptions(asked),
        views=(_CHOICE, _POOLS),
        series=tuple(plots),
    )


def kairos_fig14(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or SCOPE
    rows: list[Row] = []
    plots: list[Plot] = []
    for model, found in _cases(context, asked):
        ranks = range(min(TOP, len(found.space.ranked)))
        rates = {rule: [found.qps(found.pool(rank), rule) for rank in ranks] for rule in RULES}
        oracle_qps = found.qps(found.best_pool(CentralRule.ORACLE), CentralRule.ORACLE)
        rows.extend(_rule_rows(model, found, rates, oracle_qps))
        plots.append(
            _plot(
                "kairos-fig14",
                model,
                found,
                {SYSTEM[rule]: many for rule, many in rates.items()},
                level=(oracle_qps, "oracle"),
            )
        )
    return Study(
        name="kairos-fig14",
        title="Kairos, figure 14: the best bounds under other dispatch",
        rows=tuple(rows),
        assumptions=assumptions(asked),
        views=(_RULES,),
        series=tuple(plots),
    )


def _cases(context: StudyContext, asked: Scope) -> Iterator[tuple[str, Case]]:
    kernel = context.central_kernel()
    for place, model in enumerate(asked.models):
        context.progress(f"{model}: pools by bound", place / len(asked.models))
        yield model, case(model, asked, kernel=kernel, seed=context.seed)


def _choice_rows(model: str, found: Case, rates: list[float]) -> Iterator[Row]:
    ranked = found.space.ranked
    best_qps = max(rates)
    best, chosen = rates.index(best_qps), found.chosen_rank
    chosen_qps = found.qps(found.chosen)
    for quantity, ours, claim, note in (
        ("pools", len(ranked), None, None),
        ("best_bound_rank", best + 1, RANK_CLAIM, f"best: {format_pool(found.pool(best))}"),
        ("best_qps", best_qps, None, None),
        ("chosen_qps", chosen_qps, None, f"chosen, rank {chosen + 1}: {format_pool(found.chosen)}"),
        ("chosen_over_best", chosen_qps / best_qps, None, None),
        ("best_over_bound", best_qps / float(ranked.bound_qps[best]), BOUND_CLAIM, None),
    ):
        yield Row((("model", model),), quantity, ours, claim=claim, notes=(note,) if note else ())


def _pool_rows(model: str, found: Case, rates: list[float]) -> Iterator[Row]:
    for rank, qps in enumerate(rates):
        where = (("model", model), ("rank", f"{rank + 1}{'*' * (rank == found.chosen_rank)}"))
        bound = float(found.space.ranked.bound_qps[rank])
        yield Row(where, "bound_qps", bound, notes=(format_pool(found.pool(rank)),))
        yield Row(where, "qps", qps)
        yield Row(where, "of_bound", qps / bound)


def _rule_rows(model: str, found: Case, rates: dict[CentralRule, list[float]], oracle_qps: float) -> Iterator[Row]:
    bounds = [float(bound) for bound in found.space.ranked.bound_qps[:TOP]]
    for rule, many in rates.items():
        where = (("model", model), ("system", SYSTEM[rule]))
        claim = BOUND_CLAIM if rule is CentralRule.KAIROS else RIVAL_CLAIM
        shares = [qps / bound for qps, bound in zip(many, bounds, strict=True)]
        yield Row(where, "of_bound", sum(shares) / len(shares), claim=claim)
        yield Row(where, "qps", max(many), notes=("the best of them",))
    where = (("model", model), ("system", SYSTEM[CentralRule.ORACLE]))
    yield Row(where, "of_bound", oracle_qps / bounds[0], claim=ORACLE_CLAIM)
    yield Row(where, "qps", oracle_qps)


def _plot(
    study: str,
    model: str,
    found: Case,
    rates: dict[str, list[float]],
    level: tuple[float, str] | None = None,
) -> Plot:
    count = len(next(iter(rates.values())))
    x = tuple(float(rank + 1) for rank in range(count))
    bounds = tuple(float(bound) for bound in found.space.ranked.bound_qps[:count])
    return Plot(
        name=f"{study}-{model}",
        title=f"{model}: pools by their bound",
        x_label="rank of the bound",
        y_label="queries/s within the objective",
        curves=(
            Curve(label="bound", x=x, y=bounds),
            *(Curve(label=label, x=x, y=tuple(many)) for label, many in rates.items()),
        ),
        level=level,
        marks=((float(found.chosen_rank + 1), "chosen"),),
    )
