"""Parts that the studies of SuperServe share: workers, policies, and what is asked of two rules in a case.

SuperServe: A. Khare, D. Garg, S. Kalra, S. Grandhi, I. Stoica, A. Tumanov, NSDI 2025 (arXiv 2312.16733). Its text
has few numbers of single cases; they stand beside SlackFit's in the summary, and `claim` quotes the rest. The
policy `slackfit-published` is SlackFit; `slackfit` is our rule after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from mark.catalog.variant_tables import load_variants
from mark.cloudmodel.world import ROUGH
from mark.dispatch.variants.slackfit import BUCKETS, FREE, VariantRule
from mark.domain.models.objective import Slo
from mark.simulator.fixed.fixed_workers import CHEAPEST, FixedWorkers, VariantRun
from mark.simulator.rng import stream
from mark.studies.plot import Curve, Plot
from mark.studies.study import Row, Study, StudyContext, View

Floats = NDArray[np.float64]

MODEL, WORKER = "superserve-cnn", "rtx-2080-ti"
WORKERS = 8
"""Section 6.1."""
SLO = Slo(latency_s=0.036, target=0.999)
"""Section 6.2.1; the share that its figures are read at."""
OURS, SLACKFIT = str(VariantRule.SLACKFIT), str(VariantRule.PUBLISHED)
NAMES = {OURS: "slackfit (ours)", SLACKFIT: "slackfit-published (SlackFit)"}
"""Labels of the two in tables."""
FULL_PREFIX = f"{VariantRule.FULL}:"
RIVALS = (str(VariantRule.MAXBATCH), str(VariantRule.MAXACC))
NOISES = {"none": 0.0, "rough": ROUGH.service_cv}
"""Coefficient of variation of a batch's time, by name: the rough world's is the larger."""
QUANTITIES = (
    "attained",
    "accuracy",
    "mean_batch",
    "over_cheapest",
    "over_same_accuracy",
    "dominated_by",
)
SUMMARY = View(
    title="Over all cases",
    index=("noise", "policy"),
    quantities=("least_attained", "most_over_cheapest", "most_over_same_accuracy", "dominated_cases", "cases"),
    names=NAMES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Numbers of the text over all cases of a figure: least attainment, points and attainment gained at most."""

    attained: float | None
    points: float | None = None
    ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Extent of a study's measurements, the workers and the objective."""

    duration_s: float = 10.0
    noises: tuple[str, ...] = tuple(NOISES)
    workers: int = WORKERS
    slo: Slo = SLO


class Case:
    """One stream under every policy, with and without noise. `where` are the columns that name it."""

    def __init__(self, where: tuple[tuple[str, str | int], ...], arrived_s: Floats) -> None:
        self.where, self.arrived_s = where, arrived_s
        self.runs: dict[str, dict[str, VariantRun]] = {}

    def rows(self) -> Iterator[Row]:
        """Attainment of each policy, and the gains of the two rules."""
        for noise, runs in self.runs.items():
            for name, run in runs.items():
                where = (*self.where, ("noise", noise), ("policy", name))
                percent = None if run.accuracy is None else 100 * run.accuracy
                yield Row(where, "attained", run.attained)
                yield Row(where, "accuracy", percent)
                yield Row(where, "mean_batch", run.mean_batch)
            for name in (OURS, SLACKFIT):
                where = (*self.where, ("noise", noise), ("policy", name))
                yield Row(where, "over_cheapest", points(runs, name))
                twin = same_accuracy(runs, name)
                yield Row(
                    where,
                    "over_same_accuracy",
                    None if twin is None else ratio(runs, name, twin),
                    notes=(f"the least accurate variant that is no less accurate: {twin}",) if twin else (),
                )
                yield Row(where, "dominated_by", len(dominating(runs, name)))


def policies() -> tuple[str, ...]:
    """All policies: rules, the cheapest variant, each one alone with what is in time, and in full batches."""
    names = load_variants(MODEL).table.names
    alone = (*(f"fixed:{name}" for name in names[1:]), *(f"{FULL_PREFIX}{name}" for name in names))
    return (*map(str, FREE), CHEAPEST, *alone)


def serve(
    context: StudyContext, scope: Scope, cases: list[Case], *, until_s: Floats | None = None
) -> tuple[Case, ...]:
    """Run every case under every policy. The same stream and the same noise meet all of them."""
    table, names = load_variants(MODEL).table, policies()
    for place, noise in enumerate(scope.noises):
        workers = FixedWorkers(
            table,
            WORKER,
            workers=scope.workers,
            slo=scope.slo,
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


def points(runs: Mapping[str, VariantRun], name: str) -> float | None:
    """Percentage points that a policy's answers are more accurate than the cheapest variant's."""
    found, cheapest = runs[name].accuracy, runs[CHEAPEST].accuracy
    return None if found is None or cheapest is None else 100 * (found - cheapest)


def same_accuracy(runs: Mapping[str, VariantRun], name: str) -> str | None:
    """The least accurate variant alone, in full batches, that is as accurate as a policy; None where none is."""
    least = runs[name].accuracy
    fixed = {one: run.accuracy for one, run in runs.items() if one.startswith(FULL_PREFIX) and run.accuracy}
    at_least = {one: found for one, found in fixed.items() if least is not None and found >= least}
    return min(at_least, key=lambda one: at_least[one], default=None)


def ratio(runs: Mapping[str, VariantRun], name: str, other: str) -> float | None:
    """A policy's attainment over another one's."""
    return runs[name].attained / runs[other].attained if runs[other].attained else None


def dominating(runs: Mapping[str, VariantRun], name: str, rivals: Iterable[str] = RIVALS) -> list[str]:
    """Rivals that are no worse than a policy in attainment and accuracy, and better in one."""
    found = (runs[name].attained, runs[name].accuracy or 0.0)
    pairs = {one: (runs[one].attained, runs[one].accuracy or 0.0) for one in rivals}
    return [one for one, it in pairs.items() if it != found and it[0] >= found[0] and it[1] >= found[1]]


def _summary(cases: tuple[Case, ...], scope: Scope, published: Published) -> Iterator[Row]:
    """Rows over all cases, by noise: what the text states numbers of, beside SlackFit's."""
    for noise, name in product(cases[0].runs, (OURS, SLACKFIT)):
        where = (("noise", noise), ("policy", name))
        printed = published if name == SLACKFIT else Published(attained=None)
        runs = [case.runs[noise] for case in cases]
        # A case that no single variant can serve says little about the choice among them.
        able = [one for one in runs if max(run.attained for run in _alone(one)) >= scope.slo.target]
        said = (
            f"in which some variant alone attains {scope.slo.target:g}" if able else "none of which one can serve"
        )
        kept = able or runs
        twins = [(one, same_accuracy(one, name)) for one in kept]
        ratios = [found for one, twin in twins if twin and (found := ratio(one, name, twin)) is not None]
        gained = [found for one in kept if (found := points(one, name)) is not None]
        yield Row(
            where,
            "least_attained",
            min((one[name].attained for one in kept), default=None),
            published=printed.attained,
            notes=(f"{len(kept)} of {len(runs)} cases, {said}",),
        )
        yield Row(where, "most_over_cheapest", max(gained, default=None), published=printed.points)
        yield Row(where, "most_over_same_accuracy", max(ratios, default=None), published=printed.ratio)
        yield Row(where, "dominated_cases", sum(bool(dominating(one, name)) for one in runs))
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
        title=f"SuperServe, {title}",
        rows=(*_summary(cases, scope, published), *(row for case in cases for row in case.rows()), *more),
        assumptions=(*_assumptions(scope), *assumed),
        views=(SUMMARY, *views),
        series=_second_plots(f"superserve-{name}", cases[-1]),
    )


def _second_plots(name: str, case: Case, noise: str = "none") -> tuple[Plot, ...]:
    """Requests, attainment and accuracy of each second of a case."""
    runs = {policy: case.runs[noise][policy] for policy in (OURS, SLACKFIT, *RIVALS, CHEAPEST)}
    load = runs[OURS].arrived
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
    return (
        *load_variants(MODEL).notes,
        (
            f"{scope.workers} workers, {scope.slo.latency_s * 1000:g} ms, batches up to "
            f"{load_variants(MODEL).table.max_batch}. Changing a variant takes no time. One queue by deadline; a "
            "request that no variant of the policy can answer in time any more is dropped, and counts as missed."
        ),
        (
            "`attained` is the share of all requests that are answered in time, `accuracy` the mean over those. "
            f"Streams last {scope.duration_s:g} s; every policy meets the same one."
        ),
        (
            f"Noise `rough`: batches vary by {NOISES['rough']:.0%} (the rough world's). Every policy then plans "
            f"with a time that {(1 + scope.slo.target) / 2:.2%} of the batches keep below; none knows its own."
        ),
        (
            "`cheapest` is s1 alone: INFaaS without a floor of accuracy. `fixed:V` is one variant alone, as many "
            "as are in time for the most urgent (Clipper+); `fixed-full:V` takes as many as wait, and drops "
            "whoever has not the time for such a batch. `over_same_accuracy` is the attainment over the latter's."
        ),
        (
            f"`slackfit-published` is SlackFit, with {BUCKETS} buckets: the text does not state their number. "
            "`slackfit` is ours: its buckets end at the slack, and their width follows the queue (docs/papers.md)."
        ),
    )


def _alone(runs: Mapping[str, VariantRun]) -> list[VariantRun]:
    return [run for name, run in runs.items() if name == CHEAPEST or name.startswith("fixed")]
