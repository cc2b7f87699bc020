"""Parts that the studies of Fang et al. share: load, schedulers, jobs that are judged, rows and assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mark.dispatch.variants.qos import HARD_S, SOFT_S, QosPool, fixed_choice, heuristic_choice
from mark.dispatch.variants.qos_policy import LearnedScheduler
from mark.domain.errors import Misconfigured
from mark.simulator.qos.drawn_load import (
    DAYS,
    LEARNED_H,
    LEARNED_LEVELS,
    SCALED_H,
    DailyLoad,
    daily_load,
    level_for,
)
from mark.simulator.qos.episode import NOISE_CV, UPSTREAM_LEAST_S, UPSTREAM_SHAPE, Scheduler
from mark.simulator.qos.judge import Jobs, JudgedJob, judge_scheduler, outcome_of, still_clock
from mark.simulator.qos.learned import Lesson, learn
from mark.studies.fang.equation2 import BETAS, Equation2, Reading
from mark.studies.fang.figures import figures
from mark.studies.fang.published import (
    FEWER_ACTIONS_PERCENT,
    FIXED,
    HEURISTIC,
    LEARNED,
    PERIODS,
    SCHEDULERS,
    TABLE2,
    Reported,
    pool_of,
)
from mark.studies.study import Row, Study, StudyContext, View

QPS_BETWEEN = (10.0, 60.0)
"""Loads of one device between which the study's is searched: none and hardly any response is late."""
_VIEW = View(
    title="Response quality: ours (published); days not learned from",
    index=("scheduler", "hours"),
    quantities=("quality", "quality_deviation", "small_percent"),
)
_SUMMARY = View(
    title="Over all hours: ours (published)",
    index=("scheduler",),
    quantities=("quality", "over_fixed", "over_heuristic", "fewer_actions_percent"),
)
BETAS_TRIED = View(
    title="Eq. 2 on the days learned from; the best beta is judged",
    index=("scheduler", "beta"),
    quantities=("quality",),
)
_MARGINS = View(
    title="Each training on each judged day", index=("training", "day"), quantities=("learned_over_heuristic",)
)
Judged = dict[str, list[JudgedJob]]
"""Judged jobs by scheduler; of the learned one those of every training, one after the other."""
LEVEL_JOBS = Jobs(count=1, job_s=300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Extent of a study: jobs that are judged, trainings, and jobs that the load is found with."""

    jobs: Jobs = field(default_factory=Jobs)
    #: Trainings, each with a seed of its own.
    seeds: int = 3
    iterations: int = 20
    learned_job_s: float = 600.0
    level_jobs: Jobs = LEVEL_JOBS
    #: Jobs that beta is found with.
    tuned_jobs: Jobs = LEVEL_JOBS


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A table's devices. load: times the load of one. reported: the table. fewer: of its actions, percent."""

    name: str
    title: str
    devices: Mapping[str, int]
    load: float
    reported: Mapping[str, tuple[Reported, ...]]
    fewer: float | None = None


@dataclass(frozen=True, kw_only=True)
class Contest:
    """Schedulers of a pool, chosen and trained on a load's learned days at `qps`.

    schedulers: of the learned one one a training. betas: what each reading of Eq. 2 attained there.
    """

    pool: QosPool
    load: DailyLoad
    qps: float
    schedulers: Mapping[str, Sequence[Scheduler]]
    betas: tuple[Row, ...]


def contest(context: StudyContext, cluster: Cluster, scope: Scope) -> Contest:
    """Find the load, tune the readings of Eq. 2, and train."""
    if context.trace is None:
        raise Misconfigured(
            "studies of Fang et al. need a trace of eight real days: --trace FILE (docs/papers.md names one)"
        )
    load, pool = daily_load(context.trace), pool_of(cluster.devices)
    context.progress("load of the study", 0.0)
    qps = cluster.load * _level(context, load, scope)
    betas = tuple(_betas(context, pool, load, qps, scope))

    def attained(row: Row) -> float:
        return row.ours or 0.0

    readings: dict[str, list[Scheduler]] = {}
    for reading in Reading:
        tried = [row for row in betas if dict(row.where)["scheduler"] == reading]
        readings[reading] = [Equation2(reading, float(dict(max(tried, key=attained).where)["beta"]))]
    learned = list(_learned(context, pool, load, qps, scope))
    schedulers: dict[str, Sequence[Scheduler]] = {
        FIXED: [fixed_choice],
        **readings,
        HEURISTIC: [heuristic_choice],
        LEARNED: learned,
    }
    return Contest(pool=pool, load=load, qps=qps, schedulers=schedulers, betas=betas)


def fang_study(context: StudyContext, cluster: Cluster, scope: Scope) -> Study:
    """Judge the fixed baseline, the paper's heuristic as it can be read, ours, and the learned scheduler."""
    found = contest(context, cluster, scope)
    load, judged = found.load, Judged()
    for place, (name, many) in enumerate(found.schedulers.items()):
        context.progress(f"judging {name}", 0.7 + 0.05 * place)
        judged[name] = [
            job
            for scheduler in many
            for job in judge_scheduler(
                scheduler,
                found.pool,
                load,
                scope.jobs,
                days=load.judged,
                qps=found.qps,
                kernel=context.variant_kernel(),
                seed=context.seed,
            )
        ]
    first = {name: many[0] for name, many in found.schedulers.items() if name in SCHEDULERS}
    return Study(
        name=cluster.name,
        title=cluster.title,
        rows=(
            *_summary_rows(cluster, judged, scope.seeds),
            *_margin_rows(judged, scope.seeds),
            *_period_rows(cluster, judged),
            *found.betas,
        ),
        assumptions=assumptions(load, found.qps),
        provenance=provenance(load, scope),
        views=(_SUMMARY, BETAS_TRIED, _MARGINS, _VIEW),
        series=figures(
            cluster.name, judged, first, found.pool, load, found.qps, context.variant_kernel(), scope.jobs
        ),
    )


def _level(context: StudyContext, load: DailyLoad, scope: Scope) -> float:
    """Queries/s at which the fixed baseline on one device has its published mean, on the learned days."""
    pool = pool_of({"p2.xlarge": 1})
    target = float(np.mean([line.quality for line in TABLE2[FIXED]]))

    def quality_at(qps: float) -> float:
        return _on_learned_days(context, fixed_choice, pool, load, qps, scope.level_jobs)

    return level_for(target, quality_at, QPS_BETWEEN)


def _on_learned_days(
    context: StudyContext, scheduler: Scheduler, pool: QosPool, load: DailyLoad, qps: float, jobs: Jobs
) -> float:
    kernel, seed = context.variant_kernel(), context.seed
    found = judge_scheduler(scheduler, pool, load, jobs, days=load.learned, qps=qps, kernel=kernel, seed=seed)
    return outcome_of(found).quality


def _betas(context: StudyContext, pool: QosPool, load: DailyLoad, qps: float, scope: Scope) -> Iterator[Row]:
    for reading in Reading:
        context.progress(f"beta of {reading}", 0.05)
        for beta in BETAS:
            quality = _on_learned_days(context, Equation2(reading, beta), pool, load, qps, scope.tuned_jobs)
            yield Row((("scheduler", reading), ("beta", f"{beta:g}")), "quality", quality)


def _learned(
    context: StudyContext, pool: QosPool, load: DailyLoad, qps: float, scope: Scope
) -> Iterator[LearnedScheduler]:
    for turn in range(scope.seeds):
        lesson = Lesson(
            pool=pool,
            load=load,
            qps=qps,
            job_s=scope.learned_job_s,
            iterations=scope.iterations,
            seed=context.seed + turn,
        )
        path = None if context.cache_dir is None else context.cache_dir / lesson.file_name
        label = f"learning, seed {lesson.seed}"
        network = learn(
            lesson,
            context.variant_kernel(),
            path,
            lambda share, turn=turn, label=label: context.progress(  # type: ignore[misc]  # defaults bind the turn
                label, 0.1 + 0.6 * (turn + share) / scope.seeds
            ),
        ).best
        yield LearnedScheduler(network, clock=still_clock)


def _summary_rows(cluster: Cluster, judged: Judged, seeds: int) -> Iterator[Row]:
    published = {
        name: float(np.mean([line.quality for line in lines])) for name, lines in cluster.reported.items()
    }
    outcomes = {name: outcome_of(jobs) for name, jobs in judged.items()}
    for name, outcome in outcomes.items():
        where = (("scheduler", name),)
        # the paper's own heuristic is one of its readings
        told = published[name if name in published else HEURISTIC]
        notes = (f"mean of {seeds} trainings",) if name == LEARNED else ()
        yield Row(where, "quality", outcome.quality, published=told, notes=notes)
        for rival, quantity in ((FIXED, "over_fixed"), (HEURISTIC, "over_heuristic")):
            if name != rival and not (name == FIXED and rival == HEURISTIC):
                margin = None if told == published[rival] else told - published[rival]
                yield Row(where, quantity, outcome.quality - outcomes[rival].quality, published=margin)
        fewer = cluster.fewer if name == LEARNED else None
        yield Row(where, "fewer_actions_percent", outcome.fewer_actions_percent, published=fewer)


def _margin_rows(judged: Judged, seeds: int) -> Iterator[Row]:
    """The learned scheduler over the heuristic, by training and judged day: the least can be counted on."""
    each = len(judged[LEARNED]) // seeds
    for turn in range(seeds):
        part = judged[LEARNED][turn * each : (turn + 1) * each]
        for day in sorted({job.day for job in part}):
            ours, rival = (outcome_of(job for job in jobs if job.day == day) for jobs in (part, judged[HEURISTIC]))
            yield Row((("training", turn), ("day", day)), "learned_over_heuristic", ours.quality - rival.quality)


def _period_rows(cluster: Cluster, judged: Judged) -> Iterator[Row]:
    for name, jobs in judged.items():
        for period, hours in enumerate(PERIODS):
            part = [job for job in jobs if job.period == period]
            if not part:  # hours without a query
                continue
            line = cluster.reported[name if name in cluster.reported else HEURISTIC][period]
            outcome = outcome_of(part)
            for quantity, ours, published in (
                ("quality", outcome.quality, line.quality),
                ("quality_deviation", outcome.deviation, line.deviation),
                ("small_percent", outcome.small_percent, line.small_percent),
            ):
                yield Row((("scheduler", name), ("hours", hours)), quantity, ours, published=published)


def provenance(load: DailyLoad, scope: Scope) -> tuple[str, ...]:
    """Sources of the figures."""
    low, high = LEARNED_LEVELS
    return (
        (
            "published: throughputs by batch (Table 1), weights 1 and 0.5, deadlines, alpha, the threshold of 8, "
            "the fixed batch of 32, the numbers in brackets. Measured here: every number outside of them."
        ),
        (
            f"measured here: {scope.seeds} trainings of {scope.iterations} iterations on jobs of "
            f"{scope.learned_job_s:g} s between {LEARNED_H[0]} and {LEARNED_H[1]} h of the first "
            f"{len(load.learned)} days, at {low:g} to {high:g} times the load; {len(BETAS)} values of beta on the "
            f"same days; judged on other days, {scope.jobs.count} jobs of {scope.jobs.job_s:g} s in each period."
        ),
        "measured here: fewer_actions_percent, against a clock that asks every device each 10 ms.",
        f"published: {FEWER_ACTIONS_PERCENT:g} % fewer actions, of the learned scheduler on one device.",
    )


def assumptions(load: DailyLoad, qps: float) -> tuple[str, ...]:
    """Assumptions that the paper does not state, and parts that are not its own."""
    return (
        (
            f"the load. The paper's curve (SogouQ) is drawn only. Ours is {load.name}, its last "
            f"{len(load.rates)} whole days (at most {DAYS}), each scaled to {qps:.4g} queries/s between "
            f"{SCALED_H[0]} and {SCALED_H[1]} h: times the size of the cluster the load at which the fixed "
            "baseline on one device has the published mean quality, found on days that are learned from. Hours "
            "are the trace's, so that one period is not the paper's."
        ),
        (
            f"a network delay before arrival, Pareto from {UPSTREAM_LEAST_S * 1000:g} ms with shape "
            f"{UPSTREAM_SHAPE:g}; batches vary by {NOISE_CV:.0%}; batches between two measured sizes take what "
            "the line between them says; queries wait in the order of their deadlines, not of bins of 200 ms."
        ),
        (
            f"a query that cannot be answered before its hard deadline ({HARD_S:g} s; soft {SOFT_S:g} s) "
            "any more leaves, and its quality is 0. Full YOLO has no batch of 64 on g2.2xlarge."
        ),
        (
            "the fixed baseline's model: tiny YOLO above 8. The paper says what it batches, not by which model; "
            "its shares of tiny YOLO are those of a choice by size."
        ),
        (
            "`heuristic` is ours; `heuristic-literal` and `heuristic-above-8` are Eq. 2, with the beta that is "
            "best on the days learned from. `learned` corrects ours, and learns by what a decision loses of "
            "quality in the next seconds; the paper's learns from nothing, by the mean of the last 1000 responses."
        ),
    )
