"""Training and judging of quality-aware schedulers on a user's trace."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from mark.config.policies import chosen_policies, chosen_variants, usable_cache
from mark.config.settings import Settings
from mark.dispatch.variants.qos import QosPool, QosRule, fixed_choice, heuristic_choice
from mark.dispatch.variants.qos_policy import LearnedScheduler
from mark.dispatch.variants.serving import VariantDispatch
from mark.domain.errors import Misconfigured, unknown
from mark.domain.models.latency_table import parse_pool
from mark.offline.trace_source import given_trace
from mark.policies.assemble import profiles_and_variants
from mark.policies.spec import VariantWishes
from mark.report.terminal import note, progress, show, show_json
from mark.simulator.engine.compiled import compiled_variant_kernel
from mark.simulator.qos.checkpoint import read_checkpoint, train_command
from mark.simulator.qos.drawn_load import DailyLoad, daily_load
from mark.simulator.qos.episode import PAPER, Conditions, Scheduler
from mark.simulator.qos.judge import Jobs, judge_scheduler, outcome_of, still_clock
from mark.simulator.qos.learned import Lesson, learn
from mark.studies.fang.published import pool_of

USUAL_POOL = "p2.xlarge=1"
LEARNED_JOB, JUDGED_JOB = 600.0, 600.0
"""Lengths of streams, in soft deadlines."""
JOB_BETWEEN = 10.0, 3600.0
"""Bounds of a stream to learn from, in soft deadlines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """Input of `mark qos train`. qps: mean of each day from 12 to 24 h."""

    #: Whose instances it is trained for; None for devices of the paper.
    model: str | None
    #: None for one device: p2.xlarge, or an instance of the model's.
    pool: str | None
    qps: float
    out: Path
    iterations: int
    #: Length of a stream; None for LEARNED_JOB of the pool's seconds.
    job_s: float | None
    #: Whether it learns by the paper's reward.
    windowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions:
    """Input of `mark qos evaluate`. policy: a checkpoint, for the learned scheduler; the rest as in training."""

    model: str | None
    pool: str | None
    qps: float
    scheduler: str
    policy: Path
    jobs: int
    #: None for JUDGED_JOB of the pool's seconds.
    job_s: float | None


class TrainDocument(TypedDict):
    """The document of `mark qos train --json` (docs/json.md)."""

    #: Devices by type.
    pool: dict[str, int]
    trace: str
    #: Mean queries/s.
    qps: float
    seed: int
    #: Iterations in all.
    iterations: int
    #: Mean quality lost a decision, by iteration.
    lost: list[float]
    #: The checkpoint's file.
    policy: str


class QosDocument(TypedDict):
    """The document of `mark qos evaluate --json` (docs/json.md)."""

    #: Devices by type.
    pool: dict[str, int]
    trace: str
    #: Mean queries/s.
    qps: float
    scheduler: str
    seed: int
    #: Mean quality of responses.
    quality: float
    #: Its standard deviation.
    quality_deviation: float
    #: Answers by the small model.
    small_percent: float
    #: Queries without an answer.
    dropped_percent: float
    decisions: int
    #: Decisions of the heuristic, because the network gave no number or had not learned from such a state.
    fallback_decisions: int
    #: How many fewer than of a clock that asks every device each hundredth of a soft deadline.
    fewer_actions_percent: float


def train_scheduler(options: TrainOptions, settings: Settings, *, as_json: bool) -> None:
    """Train, with a checkpoint every few iterations, and say what was learned from."""
    (pool, conditions), load = _pool(options.model, options.pool, settings), _load(settings)
    _check_rate(options.qps)
    if options.iterations < 1:
        raise Misconfigured(f"--iterations must be 1 or more, not {options.iterations}")
    unit_s = conditions.unit_s
    job_s = LEARNED_JOB * unit_s if options.job_s is None else options.job_s
    least_s, most_s = (bound * unit_s for bound in JOB_BETWEEN)
    if not least_s <= job_s <= most_s:
        raise Misconfigured(f"--job-s must be {least_s:g} to {most_s:g} s, not {job_s:g}")
    lesson = Lesson(
        pool=pool,
        load=load,
        qps=options.qps,
        job_s=job_s,
        iterations=options.iterations,
        seed=settings.seed,
        conditions=conditions,
        windowed=options.windowed,
    )
    with progress() as report:
        state = learn(
            lesson,
            compiled_variant_kernel(usable_cache()),
            options.out,
            lambda share: report(f"training for {pool_name(pool)}", share),
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
    (pool, conditions), load = _pool(options.model, options.pool, settings), _load(settings)
    _check_rate(options.qps)
    scheduler = _scheduler(options, pool, load)
    job_s = JUDGED_JOB * conditions.unit_s if options.job_s is None else options.job_s
    jobs = Jobs(count=options.jobs, job_s=job_s, conditions=conditions)
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
    if options.scheduler not in list(QosRule):
        raise unknown("scheduler", options.scheduler, list(QosRule))
    if options.scheduler == QosRule.LEARNED:
        state, made = read_checkpoint(options.policy, pool, train_command(options.model))
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
    return fixed_choice if options.scheduler == QosRule.FIXED else heuristic_choice


def _pool(model: str | None, devices: str | None, settings: Settings) -> tuple[QosPool, Conditions]:
    """The pool, and what it meets: devices of the paper, or one instance of a model with variants."""
    if model is None:
        return pool_of(parse_pool(devices or USUAL_POOL)), PAPER
    chosen = chosen_policies(settings)
    profiles, serving = profiles_and_variants(replace(chosen, variants=_by_heuristic(settings)))
    assert serving is not None, "a rule that chooses variants is refused for a model without any"
    pool = serving.learned_pool()
    if devices is not None and parse_pool(devices) != dict(pool.devices):
        raise Misconfigured(
            f"an instance of {model} has a queue of its own, so a policy is trained for one: --pool "
            f"{pool_name(pool)}, or leave it out"
        )
    (instance_type,) = pool.kinds
    measured = next(one.cv for one in profiles.profiles if one.instance_type == instance_type)
    soft_s = serving.deadlines.soft_s
    return pool, Conditions(
        unit_s=soft_s,
        network_s=chosen.world.network_s / soft_s,
        noise_cv=chosen.world.cv_of(measured),
        drop_late=False,
    )


def _by_heuristic(settings: Settings) -> VariantWishes:
    return replace(chosen_variants(settings), dispatch=VariantDispatch(QosRule.HEURISTIC))


def pool_name(pool: QosPool) -> str:
    """A pool as it is written: TYPE=COUNT,..."""
    return ",".join(f"{kind}={count}" for kind, count in pool.devices.items())


def _load(settings: Settings) -> DailyLoad:
    trace = given_trace(settings)
    if trace is None:
        raise Misconfigured("name a trace of two whole days or more with --trace")
    return daily_load(trace)


def _check_rate(qps: float) -> None:
    if not (math.isfinite(qps) and qps > 0):
        raise Misconfigured(f"--qps must be above 0, not {qps:g}")
