"""Kairos' figures 15 and 16: a larger budget, a looser objective, Gaussian sizes, and times not predicted well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from mark.report.formatting import format_pool
from mark.simulator.fixed.fixed_pool import ServiceTimes
from mark.studies.kairos.cases import LARGE_SIZES, SMALL_SIZES, Case, Scope, assumptions, case
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
AS_BEFORE, LARGER_BUDGET, LOOSER_SLO = "as in figure 8", "budget x 4", "objective + 20 %"
NOISY, LEARNED = "noise of 5 %", "latencies learned"
GAUSSIAN = {"small Gaussian sizes": SMALL_SIZES, "large Gaussian sizes": LARGE_SIZES}
SIZES_CLAIM = "section 8.6: significant benefits on Gaussian sizes, smaller ones for some models"
CLAIM = {
    LARGER_BUDGET: "section 8.6: substantial improvement over homogeneous where the budget is scaled by 4",
    LOOSER_SLO: "section 8.6: similar improvement with an objective 20 % looser",
    **dict.fromkeys(GAUSSIAN, SIZES_CLAIM),
    NOISY: "section 8.6: similar improvement under prediction noise of 5 %",
    LEARNED: "section 5.1: all results include the overhead of learning latencies online",
}

_VIEW = View(
    title="Queries/s within the objective, and over the homogeneous pool of the same budget",
    index=("model", "case"),
    quantities=("homogeneous_qps", "kairos_qps", "ratio"),
)


def kairos_fig15(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or Scope(queries=10_000, seeds=1)
    kernel, seed = context.central_kernel(), context.seed
    larger = replace(asked, budget_usd_per_hour=asked.budget_usd_per_hour * LARGER)
    rows: list[Row] = []
    for place, model in enumerate(asked.models):
        context.progress(f"{model}: budget, objective", place / len(asked.models))
        cases = {
            AS_BEFORE: case(model, asked, kernel=kernel, seed=seed),
            LARGER_BUDGET: case(model, larger, kernel=kernel, seed=seed),
            LOOSER_SLO: case(model, asked, kernel=kernel, seed=seed, slo_factor=LOOSER),
        }
        rows.extend(_rows(model, cases))
    return Study(
        name="kairos-fig15",
        title="Kairos, figure 15: a larger budget, a looser objective",
        rows=tuple(rows),
        assumptions=(*assumptions(asked), f"The larger budget is {larger.budget_usd_per_hour:g} USD/h."),
        views=(_VIEW,),
    )


def kairos_fig16(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or Scope()
    kernel, seed = context.central_kernel(), context.seed
    rows: list[Row] = []
    curves: list[Curve] = []
    for place, model in enumerate(asked.models):
        context.progress(f"{model}: sizes, noise, learning", place / len(asked.models))
        noisy = {noise: case(model, asked, kernel=kernel, seed=seed, noise=noise) for noise in NOISES}
        gaussian = {
            name: case(model, asked, kernel=kernel, seed=seed, sizes=sizes) for name, sizes in GAUSSIAN.items()
        }
        learned = case(model, asked, kernel=kernel, seed=seed, latency=ServiceTimes.LEARNED)
        cases = {AS_BEFORE: noisy[0.0], **gaussian, NOISY: noisy[NOISE], LEARNED: learned}
        rows.extend(_rows(model, cases))
        rows.extend(_change_rows(model, noisy[0.0].chosen, gaussian))
        curves.append(
            Curve(
                label=model,
                x=tuple(100 * noise for noise in NOISES),
                y=tuple(found.qps(found.chosen) / found.homogeneous_qps() for found in noisy.values()),
            )
        )
    return Study(
        name="kairos-fig16",
        title="Kairos, figure 16: Gaussian sizes, noise",
        rows=tuple(rows),
        assumptions=(
            *assumptions(asked),
            f"Gaussian sizes: {SMALL_SIZES.name} and {LARGE_SIZES.name}; the paper states no parameters.",
            f"Noise is Gaussian with a deviation of {NOISE:.0%} of the predicted time, on what a query takes.",
            "Latencies learned: no rule knows one but from this run's answers; pools are chosen from profiles.",
        ),
        views=(
            _VIEW,
            View(
                title="After the change to Gaussian sizes: the pool of before, over the one chosen again",
                index=("model", "sizes"),
                quantities=("before_over_again",),
            ),
        ),
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


def _rows(model: str, cases: Mapping[str, Case]) -> Iterator[Row]:
    for name, found in cases.items():
        where = (("model", model), ("case", name))
        ours, rival = found.qps(found.chosen), found.homogeneous_qps()
        yield Row(where, "homogeneous_qps", rival)
        yield Row(where, "kairos_qps", ours, notes=(f"chosen: {format_pool(found.chosen)}",))
        yield Row(where, "ratio", ours / rival, claim=CLAIM.get(name))


def _change_rows(model: str, before: dict[str, int], cases: Mapping[str, Case]) -> Iterator[Row]:
    for name, after in cases.items():
        ratio = after.qps(before) / after.qps(after.chosen)
        notes = (f"before: {format_pool(before)}", f"again: {format_pool(after.chosen)}")
        yield Row((("model", model), ("sizes", name)), "before_over_again", ratio, notes=notes)
