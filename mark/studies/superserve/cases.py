"""Parts that the studies of SuperServe share: workers, policies, and what is asked of SlackFit in a case.

SuperServe: A. Khare, D. Garg, S. Kalra, S. Grandhi, I. Stoica, A. Tumanov, NSDI 2025 (arXiv 2312.16733). Its text
has few numbers of single cases; they stand beside ours in the summary, and `claim` quotes the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.catalog.variant_tables import load_variants
from mark.cloudmodel.world import ROUGH
from mark.dispatch.slackfit import VariantRule
from mark.domain.objective import Slo
from mark.simulator.fixed_workers import CHEAPEST, FixedWorkers, VariantRun, variant_policy
from mark.simulator.rng import stream
from mark.studies.plot import Curve, Plot
from mark.studies.study import Row, Study, StudyContext, View

Floats = NDArray[np.float64]

MODEL, WORKER = "superserve-cnn", "rtx-2080-ti"
WORKERS = 8
"""Section 6.1."""
SLO = Slo(latency_s=0.036, target=0.999)
"""Section 6.2.1; the share that its figures are read at."""
SLACKFIT = str(VariantRule.SLACKFIT)
RIVALS = (str(VariantRule.MAXBATCH), str(VariantRule.MAXACC))
NOISES = {"none": 0.0, "rough": ROUGH.service_cv}
"""Coefficient of variation of a batch's time, by name: the rough world's is the larger."""
GAIN_CLAIM = "section 6.2.1: 4.33 points above INFaaS and Clipper+ at an attainment of 0.9999"
QUANTITIES = (
    "attained",
    "accuracy",
    "mean_batch",
    "over_cheapest",
    "over_same_accuracy",
    "same_accuracy_bound",
    "dominated_by",
)
SUMMARY = View(
    title="Over all cases",
    index=("noise", "policy"),
    quantities=("least_attained", "most_over_cheapest", "most_over_same_accuracy", "dominated_cases", "cases"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Numbers of the text over all cases of a figure: least attainment, points and attainment gained at most."""

    attained: float
    points: float | None = None
    ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Extent of a study's measurements."""

    duration_s: float = 10.0
    noises: tuple[str, ...] = tuple(NOISES)


class Case:
    """One stream under every policy, with and without noise. `where` are the columns that name it."""

    def __init__(self, where: tuple[tuple[str, str | int], ...], arrived_s: Floats) -> None:
        self.where, self.arrived_s = where, arrived_s
        self.runs: dict[str, dict[str, VariantRun]] = {}

    def rows(self) -> Iterator[Row]:
        """Attainment of each policy, and SlackFit's gain."""
        for noise, runs in self.runs.items():
            for name, run in runs.items():
                where = (*self.where, ("noise", noise), ("policy", name))
                percent = None if run.accuracy is None else 100 * run.accuracy
                yield Row(where, "attained", run.attained)
                yield Row(where, "accuracy", percent)
                yield Row(where, "mean_batch", run.mean_batch)
            where = (*self.where, ("noise", noise), ("policy", SLACKFIT))
            yield Row(where, "over_cheapest", points(runs), claim=GAIN_CLAIM)
            twin = same_accuracy(runs)
            yield Row(
                where,
                "over_same_accuracy",
                None if twin is None else ratio(runs, twin),
                notes=(f"least accurate variant that is no less accurate: {twin}",) if twin else (),
            )
            yield Row(where, "same_accuracy_bound", None if twin is None else self.bound(twin))
            yield Row(where, "dominated_by", len(dominating(runs)))

    def bound(self, name: str) -> float:
        """The largest share that a variant alone could answer, always busy with full batches: most in overload."""
        table = load_variants(MODEL).table
        number = variant_policy(name, table).fixed or 0
        capacity_rps = WORKERS * table.max_batch / table.rows(WORKER)[number][-1]
        return min(1.0, capacity_rps / (self.arrived_s.size / float(self.arrived_s[-1])))


def policies() -> tuple[str, ...]:
    """All policies: rules, the cheapest variant, and each other variant alone."""
    names = load_variants(MODEL).table.names
    free = [str(rule) for rule in VariantRule if rule is not VariantRule.FIXED]
    return (*free, CHEAPEST, *(f"fixed:{name}" for name in names[1:]))


def serve(
    context: StudyContext, scope: Scope, cases: list[Case], *, until_s: Floats | None = None
) -> tuple[Case, ...]:
    """Run every case under every policy. The same stream and the same noise meet all of them."""
    table, names = load_variants(MODEL).table, policies()
    for place, noise in enumerate(scope.noises):
        workers = FixedWorkers(
            table,
            WORKER,
            workers=WORKERS,
            slo=SLO,
            kernel=context.variant_kernel(),
            noise_cv=NOISES[noise],
            seed=context.seed,
        )
        for turn, case in enumerate(cases):
            share = (place + turn / len(cases)) / len(scope.noises)
            context.progress(f"noise {noise}, {len(names)} policies", share)
            case.runs[noise] = {name: workers.run(name, case.arrived_s, until_s) for name in names}
    return tuple(cases)


def case_rng(context: StudyContext, name: str) -> np.random.Generator:
    """The random numbers of a case's stream."""
    return stream(context.seed, f"superserve {name}")


def points(runs: Mapping[str, VariantRun]) -> float | None:
    """Percentage points that SlackFit's answers are more accurate than the cheapest variant's."""
    ours, cheapest = runs[SLACKFIT].accuracy, runs[CHEAPEST].accuracy
    return None if ours is None or cheapest is None else 100 * (ours - cheapest)


def same_accuracy(runs: Mapping[str, VariantRun]) -> str | None:
    """The least accurate variant alone that is at least as accurate as SlackFit; None where none is."""
    ours = runs[SLACKFIT].accuracy
    fixed = {name: run.accuracy for name, run in _fixed(runs).items() if run.accuracy is not None}
    at_least = {name: found for name, found in fixed.items() if ours is not None and found >= ours}
    return min(at_least, key=lambda name: at_least[name], default=None)


def ratio(runs: Mapping[str, VariantRun], other: str) -> float | None:
    """SlackFit's attainment over another policy's."""
    return runs[SLACKFIT].attained / runs[other].attained if runs[other].attained else None


def dominating(runs: Mapping[str, VariantRun]) -> list[str]:
    """Rivals that are no worse than SlackFit in attainment and accuracy, and better in one."""
    ours = (runs[SLACKFIT].attained, runs[SLACKFIT].accuracy or 0.0)
    pairs = {name: (runs[name].attained, runs[name].accuracy or 0.0) for name in RIVALS}
    return [name for name, it in pairs.items() if it != ours and it[0] >= ours[0] and it[1] >= ours[1]]


def _summary(cases: tuple[Case, ...], published: Published) -> Iterator[Row]:
    """Rows over all cases, by noise: what the text states numbers of."""
    for noise in cases[0].runs:
        where = (("noise", noise), ("policy", SLACKFIT))
        runs = [case.runs[noise] for case in cases]
        # A case that no single variant can serve says nothing about the choice among them.
        kept = [one for one in runs if max(run.attained for run in _fixed(one).values()) >= SLO.target]
        twins = [(one, same_accuracy(one)) for one in kept]
        ratios = [found for one, twin in twins if twin and (found := ratio(one, twin)) is not None]
        gained = [found for one in kept if (found := points(one)) is not None]
        yield Row(
            where,
            "least_attained",
            min((one[SLACKFIT].attained for one in kept), default=None),
            published=published.attained,
            notes=(f"{len(kept)} of {len(runs)} cases, in which some variant alone attains {SLO.target:g}",),
        )
        yield Row(where, "most_over_cheapest", max(gained, default=None), published=published.points)
        yield Row(where, "most_over_same_accuracy", max(ratios, default=None), published=published.ratio)
        yield Row(where, "dominated_cases", sum(bool(dominating(one)) for one in runs))
        yield Row(where, "cases", len(runs))


def study_of(
    name: str,
    title: str,
    cases: tuple[Case, ...],
    scope: Scope,
    *,
    published: Published,
    views: tuple[View, ...],
    assumed: tuple[str, ...],
    more: Iterable[Row] = (),
) -> Study:
    """A figure of the paper: its cases, of which the last one is drawn, what is published of them, `more` rows."""
    return Study(
        name=f"superserve-{name}",
        title=f"SuperServe, figure {name.removeprefix('fig')}: {title}",
        rows=(*_summary(cases, published), *(row for case in cases for row in case.rows()), *more),
        assumptions=(*_assumptions(scope), *assumed),
        views=(SUMMARY, *views),
        series=_second_plots(f"superserve-{name}", cases[-1]),
    )


def _second_plots(name: str, case: Case, noise: str = "none") -> tuple[Plot, ...]:
    """Requests, attainment and accuracy of each second of a case."""
    runs = {policy: case.runs[noise][policy] for policy in (SLACKFIT, *RIVALS, CHEAPEST)}
    load = runs[SLACKFIT].arrived
    where = ", ".join(f"{column} {value}" for column, value in case.where)
    at = tuple(float(second) for second in range(len(load)))

    def plot(suffix: str, label: str, curves: Mapping[str, Floats]) -> Plot:
        return Plot(
            name=f"{name}-{suffix}",
            title=f"{label}; {where}",
            x_label="s",
            y_label=label,
            curves=tuple(Curve(label=one, x=at, y=tuple(map(float, found))) for one, found in curves.items()),
        )

    return (
        plot("load", "requests/s", {"arrivals": load.astype(np.float64)}),
        plot("attained", "share in time", {one: run.attained_by_second for one, run in runs.items()}),
        plot("accuracy", "accuracy in time, %", {one: 100 * run.accuracy_by_second for one, run in runs.items()}),
    )


def _assumptions(scope: Scope) -> tuple[str, ...]:
    """Assumptions of every study of SuperServe."""
    rough = NOISES["rough"]
    return (
        *load_variants(MODEL).notes,
        (
            f"{WORKERS} workers, {SLO.latency_s * 1000:g} ms, batches up to "
            f"{load_variants(MODEL).table.max_batch}. Changing a variant takes no time. One queue by deadline; a "
            "request that no variant of the policy can answer in time any more is dropped, and counts as missed."
        ),
        (
            "`attained` is the share of all requests that are answered in time, `accuracy` the mean over those. "
            f"Streams last {scope.duration_s:g} s; every policy meets the same one."
        ),
        (
            f"Noise `rough`: batches vary by {rough:.0%} (the rough world's). Every policy then plans with "
            f"the time that {(1 + SLO.target) / 2:.2%} of the batches keep below; none knows a batch's own."
        ),
        "`cheapest` is s1 alone: INFaaS without a floor of accuracy. `fixed:V` is one variant alone: Clipper+.",
        (
            "`slackfit` has buckets that end at the slack, `slackfit-published` the paper's fixed ones "
            "(docs/papers.md)."
        ),
    )


def _fixed(runs: Mapping[str, VariantRun]) -> dict[str, VariantRun]:
    return {name: run for name, run in runs.items() if name == CHEAPEST or name.startswith("fixed:")}
