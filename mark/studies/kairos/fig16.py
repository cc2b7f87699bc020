"""Kairos' figure 16: mispredicted latencies and a looser objective; beside them the budget of figure 15."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mark.report.formatting import format_pool
from mark.studies.kairos.cases import Case, Scope, assumptions, case
from mark.studies.plot import Curve, Plot
from mark.studies.study import Row, Study, StudyContext, View

NOISE = 0.05
"""Standard deviation of a query's time around the predicted one, as a share of it (section 8.6)."""
NOISES = (0.0, 0.025, NOISE, 0.1)
"""Noises of the plot."""
LOOSER = 1.2
"""Factor of the looser objective (section 8.6)."""
LARGER = 4.0
"""Factor of the larger budget (figure 15a)."""
CLAIM = {
    "noise of 5 %": "section 8.6: the improvement is kept under prediction noise of 5 %",
    "objective + 20 %": "section 8.6: similar improvement with an objective 20 % looser",
    "budget x 4": "figure 15a: the improvement holds for 10 USD/h",
}

_VIEW = View(
    title="Queries/s within the objective, and over the homogeneous pool of the same budget",
    index=("model", "case"),
    quantities=("homogeneous_qps", "kairos_qps", "ratio"),
)


def kairos_fig16(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or Scope()
    kernel = context.central_kernel()
    larger = replace(asked, budget_usd_per_hour=asked.budget_usd_per_hour * LARGER)
    rows: list[Row] = []
    curves: list[Curve] = []
    for place, model in enumerate(asked.models):
        context.progress(f"{model}: noise, objective, budget", place / len(asked.models))
        noisy = {noise: case(model, asked, kernel=kernel, seed=context.seed, noise=noise) for noise in NOISES}
        cases = {
            "as published": noisy[0.0],
            "noise of 5 %": noisy[NOISE],
            "objective + 20 %": case(model, asked, kernel=kernel, seed=context.seed, slo_factor=LOOSER),
            "budget x 4": case(model, larger, kernel=kernel, seed=context.seed),
        }
        for name, found in cases.items():
            rows.extend(_rows(model, name, found))
        curves.append(
            Curve(
                label=model,
                x=tuple(100 * noise for noise in NOISES),
                y=tuple(found.qps(found.chosen) / found.homogeneous_qps() for found in noisy.values()),
            )
        )
    return Study(
        name="kairos-fig16",
        title="Kairos, figure 16: noise, a looser objective, a larger budget",
        rows=tuple(rows),
        assumptions=(
            *assumptions(asked),
            (
                f"Noise is Gaussian with a deviation of {NOISE:.0%} of the predicted time. The larger budget is "
                f"{larger.budget_usd_per_hour:g} USD/h (figure 15a)."
            ),
        ),
        views=(_VIEW,),
        series=(
            Plot(
                name="kairos-fig16",
                title="Kairos' pool over the homogeneous one",
                x_label="deviation of a query's time from the predicted one, %",
                y_label="ratio of queries/s",
                curves=tuple(curves),
                level=(1.0, "homogeneous"),
            ),
        ),
    )


def _rows(model: str, name: str, found: Case) -> Iterator[Row]:
    where = (("model", model), ("case", name))
    ours, rival = found.qps(found.chosen), found.homogeneous_qps()
    chosen = f"chosen: {format_pool(found.chosen)}"
    yield Row(where, "homogeneous_qps", rival)
    yield Row(where, "kairos_qps", ours, notes=(chosen,))
    yield Row(where, "ratio", ours / rival, claim=CLAIM.get(name))
