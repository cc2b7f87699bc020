"""Parts that both tables of Fang et al. share: load, schedulers, jobs that are judged, rows and assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from mark.dispatch.qos import HARD_S, SOFT_S, QosPool, fixed_choice, heuristic_choice
from mark.dispatch.qos_policy import LearnedScheduler, QosNetwork
from mark.domain.errors import Misconfigured
from mark.simulator.qos.drawn_load import DAYS, LEARNED_H, SCALED_H, DailyLoad, daily_load, level_for
from mark.simulator.qos.episode import NOISE_CV, UPSTREAM_LEAST_S, UPSTREAM_SHAPE, Scheduler
from mark.simulator.qos.judge import Jobs, JudgedJob, judge_scheduler, outcome_of, still_clock
from mark.simulator.qos.learned import Lesson, learn
from mark.studies.fang.published import FIXED, HEURISTIC, LEARNED, PERIODS, SCHEDULERS, TABLE2, Reported, pool_of
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
    iterations: int = 40
    learned_job_s: float = 300.0
    level_jobs: Jobs = LEVEL_JOBS


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A table's devices. load: times the load of one device. reported: the table."""

    name: str
    title: str
    devices: Mapping[str, int]
    load: float
    reported: Mapping[str, tuple[Reported, ...]]


def fang_study(context: StudyContext, cluster: Cluster, scope: Scope) -> Study:
    """Judge the fixed baseline, the heuristic and the learned scheduler."""
    if context.trace is None:
        raise Misconfigured(
            f"{cluster.name} needs a trace of real days, eight or more: --trace FILE (docs/papers.md names one)"
        )
    load = daily_load(context.trace)
    context.progress("load of the study", 0.0)
    qps = cluster.load * _level(context, load, scope)
    pool = pool_of(cluster.devices)
    networks = list(_networks(context, pool, load, qps, scope))
    judged: Judged = {}
    schedulers: dict[str, list[Scheduler]] = {
        FIXED: [fixed_choice],
        HEURISTIC: [heuristic_choice],
        LEARNED: [LearnedScheduler(network, clock=still_clock) for network in networks],
    }
    for place, (name, many) in enumerate(schedulers.items()):
        context.progress(f"judging {name}", 0.7 + 0.1 * place)
        judged[name] = [
            job
            for scheduler in many
            for job in judge_scheduler(
                scheduler,
                pool,
                load,
                scope.jobs,
                days=load.judged,
                qps=qps,
                kernel=context.variant_kernel(),
                seed=context.seed,
            )
        ]
    return Study(
        name=cluster.name,
        title=cluster.title,
        rows=(
            *_summary_rows(cluster, judged, len(networks)),
            *_margin_rows(judged, len(networks)),
            *_period_rows(cluster, judged),
        ),
        assumptions=_assumptions(load, qps),
        provenance=_provenance(load, scope),
        views=(_SUMMARY, _MARGINS, _VIEW),
    )


def _level(context: StudyContext, load: DailyLoad, scope: Scope) -> float:
    """Queries/s at which the fixed baseline on one device has its published mean, on the learned days."""
    pool = pool_of({"p2.xlarge": 1})
    target = float(np.mean([line.quality for line in TABLE2[FIXED]]))

    def quality_at(qps: float) -> float:
        found = judge_scheduler(
            fixed_choice,
            pool,
            load,
            scope.level_jobs,
            days=load.learned,
            qps=qps,
            kernel=context.variant_kernel(),
            seed=context.seed,
        )
        return outcome_of(found).quality

    return level_for(target, quality_at, QPS_BETWEEN)


def _networks(
    context: StudyContext, pool: QosPool, load: DailyLoad, qps: float, scope: Scope
) -> Iterator[QosNetwork]:
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
        yield learn(
            lesson,
            context.variant_kernel(),
            path,
            lambda share, turn=turn, label=label: context.progress(  # type: ignore[misc]  # defaults bind the turn
                label, 0.1 + 0.6 * (turn + share) / scope.seeds
            ),
        ).best


def _summary_rows(cluster: Cluster, judged: Judged, seeds: int) -> Iterator[Row]:
    published = {
        name: float(np.mean([line.quality for line in lines])) for name, lines in cluster.reported.items()
    }
    outcomes = {name: outcome_of(jobs) for name, jobs in judged.items()}
    for name, outcome in outcomes.items():
        where = (("scheduler", name),)
        yield Row(
            where,
            "quality",
            outcome.quality,
            published=published[name],
            notes=(f"mean of {seeds} trainings",) if name == LEARNED else (),
        )
        for rival, quantity in ((FIXED, "over_fixed"), (HEURISTIC, "over_heuristic")):
            if SCHEDULERS.index(rival) < SCHEDULERS.index(name):
                yield Row(
                    where,
                    quantity,
                    outcome.quality - outcomes[rival].quality,
                    published=published[name] - published[rival],
                )
        yield Row(where, "fewer_actions_percent", outcome.fewer_actions_percent)


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
            line, outcome = cluster.reported[name][period], outcome_of(part)
            for quantity, ours, published in (
                ("quality", outcome.quality, line.quality),
                ("quality_deviation", outcome.deviation, line.deviation),
                ("small_percent", outcome.small_percent, line.small_percent),
            ):
                yield Row((("scheduler", name), ("hours", hours)), quantity, ours, published=published)


def _provenance(load: DailyLoad, scope: Scope) -> tuple[str, ...]:
    return (
        (
            "published: throughputs by batch (Table 1), weights 1 and 0.5, deadlines, alpha, beta, the threshold "
            "of 8, the fixed batch of 32, the numbers in brackets. Measured here: every number outside of them."
        ),
        (
            f"measured here: {scope.seeds} trainings of {scope.iterations} iterations on jobs of "
            f"{scope.learned_job_s:g} s between {LEARNED_H[0]} and {LEARNED_H[1]} h of the first "
            f"{len(load.learned)} days; judged on the last {len(load.judged)}, {scope.jobs.count} jobs "
            f"of {scope.jobs.job_s:g} s in each period."
        ),
        "measured here: fewer_actions_percent, against a clock that asks every device each 10 ms.",
    )


def _assumptions(load: DailyLoad, qps: float) -> tuple[str, ...]:
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
            "the line between them says; queries wait in the order of their deadlines."
        ),
        (
            f"a query that cannot be answered before its hard deadline ({HARD_S:g} s; soft {SOFT_S:g} s) "
            "any more leaves, and its quality is 0. Full YOLO has no batch of 64 on g2.2xlarge."
        ),
        (
            "the heuristic's formula, a reconstruction. It takes what waits, up to 8, by full YOLO; a "
            "larger batch of tiny YOLO, the smallest that is enough, where full YOLO's throughput is below the "
            "device's share of alpha x arrival rate + beta x queue / (soft deadline - time of 8 on full YOLO)."
        ),
    )
