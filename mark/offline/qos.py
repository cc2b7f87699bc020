"""Training and judging of quality-aware schedulers on a user's trace."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from mark.config.policies import usable_cache
from mark.config.settings import Settings
from mark.dispatch.qos import QosPool, fixed_choice, heuristic_choice
from mark.dispatch.qos_policy import LearnedScheduler
from mark.domain.errors import Misconfigured, unknown
from mark.domain.latency_table import parse_pool
from mark.offline.trace_source import given_trace
from mark.report.terminal import note, progress, show, show_json
from mark.simulator.engine.compiled import compiled_variant_kernel
from mark.simulator.qos.checkpoint import read_checkpoint
from mark.simulator.qos.episode import Scheduler
from mark.simulator.qos.judge import Jobs, judge_scheduler, outcome_of, still_clock
from mark.simulator.qos.learned import Lesson, learn
from mark.simulator.qos.load import DailyLoad, daily_load
from mark.studies.fang.published import FIXED, HEURISTIC, LEARNED, SCHEDULERS, pool_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """Input of `mark qos train`. qps: mean of each day from 12 to 24 h; job_s: length of a stream."""

    pool: str
    qps: float
    out: Path
    iterations: int
    job_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions:
    """Input of `mark qos evaluate`. policy: a checkpoint, for the learned scheduler."""

    pool: str
    qps: float
    scheduler: str
    policy: Path
    jobs: int
    job_s: float


class TrainDocument(TypedDict):
    """The document of `mark qos train --json` (docs/json.md)."""

    pool: dict[str, int]
    trace: str
    qps: float
    seed: int
    iterations: int
    #: Mean loss a decision, by iteration.
    lost: list[float]
    policy: str


class QosDocument(TypedDict):
    """The document of `mark qos evaluate --json` (docs/json.md)."""

    pool: dict[str, int]
    trace: str
    qps: float
    scheduler: str
    seed: int
    quality: float
    quality_deviation: float
    small_percent: float
    dropped_percent: float
    decisions: int
    #: Of these, the heuristic's because the network gave no number.
    fallback_decisions: int
    fewer_actions_percent: float


def train_scheduler(options: TrainOptions, settings: Settings, *, as_json: bool) -> None:
    """Train, with a checkpoint every few iterations, and say what was learned from."""
    pool, load = _pool(options.pool), _load(settings)
    _check_rate(options.qps)
    if options.iterations < 1:
        raise Misconfigured(f"--iterations must be 1 or more, not {options.iterations}")
    if not 10 <= options.job_s <= 3600:
        raise Misconfigured(f"--job-s must be 10 to 3600 s, not {options.job_s:g}")
    lesson = Lesson(
        pool=pool,
        load=load,
        qps=options.qps,
        job_s=options.job_s,
        iterations=options.iterations,
        seed=settings.seed,
    )
    with progress() as report:
        state = learn(
            lesson,
            compiled_variant_kernel(usable_cache()),
            options.out,
            lambda share: report(f"training for {options.pool}", share),
        )
    document: TrainDocument = {
        "pool": dict(pool.devices),
        "trace": load.name,
        "qps": options.qps,
        "seed": settings.seed,
        "iterations": state.iterations,
        "lost": list(state.lost),
        "policy": str(options.out),
    }
    if as_json:
        show_json(document)
    else:
        show(
            f"{options.out}: {state.iterations} iterations on {len(load.learned)} days of {load.name}; mean "
            f"loss a decision {state.lost[0]:.3f} at first, {state.lost[-1]:.3f} at last"
        )


def evaluate_scheduler(options: EvaluateOptions, settings: Settings, *, as_json: bool) -> None:
    """Judge a scheduler on the trace's judged days and print its quality."""
    pool, load = _pool(options.pool), _load(settings)
    _check_rate(options.qps)
    scheduler = _scheduler(options, pool, load)
    jobs = Jobs(count=options.jobs, job_s=options.job_s)
    with progress() as report:
        report(f"judging {options.scheduler}", 0.0)
        outcome = outcome_of(
            judge_scheduler(
                scheduler,
                pool,
                load,
                jobs,
                days=load.judged,
                qps=options.qps,
                kernel=compiled_variant_kernel(usable_cache()),
                seed=settings.seed,
            )
        )
    document: QosDocument = {
        "pool": dict(pool.devices),
        "trace": load.name,
        "qps": options.qps,
        "scheduler": options.scheduler,
        "seed": settings.seed,
        "quality": outcome.quality,
        "quality_deviation": outcome.deviation,
        "small_percent": outcome.small_percent,
        "dropped_percent": outcome.dropped_percent,
        "decisions": outcome.decisions,
        "fallback_decisions": scheduler.fallbacks if isinstance(scheduler, LearnedScheduler) else 0,
        "fewer_actions_percent": outcome.fewer_actions_percent,
    }
    if as_json:
        show_json(document)
    else:
        show(
            f"{options.scheduler}: quality {outcome.quality:.3f} (standard deviation {outcome.deviation:.3f}), "
            f"{outcome.small_percent:.1f} % by the small model, {outcome.dropped_percent:.1f} % without an answer"
        )
        if document["fallback_decisions"]:
            show(f"{document['fallback_decisions']:,} of its {outcome.decisions:,} decisions were the heuristic's")


def _scheduler(options: EvaluateOptions, pool: QosPool, load: DailyLoad) -> Scheduler:
    if options.scheduler not in SCHEDULERS:
        raise unknown("scheduler", options.scheduler, SCHEDULERS)
    if options.scheduler == LEARNED:
        state, made = read_checkpoint(options.policy, pool)
        known = sum(day in made.days for day in load.day_hashes(load.judged))
        # its own trace is parted by place: a judged day may well look like a learned one
        if known and made.load != load.fingerprint:
            raise Misconfigured(
                f"{options.policy} learned from {known} of the days that it would be judged on: name the trace "
                "that it was trained on, which is parted, or other days"
            )
        if made.qps != options.qps:
            note(f"trained at {made.qps:g} queries/s, judged at {options.qps:g}")
        return LearnedScheduler(state.best, clock=still_clock)
    plain: dict[str, Scheduler] = {FIXED: fixed_choice, HEURISTIC: heuristic_choice}
    return plain[options.scheduler]


def _pool(text: str) -> QosPool:
    return pool_of(parse_pool(text))


def _load(settings: Settings) -> DailyLoad:
    trace = given_trace(settings)
    if trace is None:
        raise Misconfigured("name a trace of two whole days or more with --trace")
    return daily_load(trace)


def _check_rate(qps: float) -> None:
    if not (math.isfinite(qps) and qps > 0):
        raise Misconfigured(f"--qps must be above 0, not {qps:g}")
