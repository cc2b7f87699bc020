"""Judging a scheduler: jobs spread over the hours of days, the same queries and the same noise for every one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mark.dispatch.variants.qos import QosPool
from mark.domain.errors import Misconfigured
from mark.simulator.engine.compiled import VariantKernel
from mark.simulator.qos.drawn_load import HOUR_S, SCALED_H, DailyLoad
from mark.simulator.qos.episode import PAPER, Conditions, QosRun, Scheduler, serve_queries

PERIOD_H = 3
PERIODS = (SCALED_H[1] - SCALED_H[0]) // PERIOD_H


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Extent: so many jobs of `job_s` in each period of each day, evenly spread, and what they meet."""

    count: int = 3
    job_s: float = 600.0
    conditions: Conditions = PAPER

    def __post_init__(self) -> None:
        least_s, most_s = self.conditions.unit_s, PERIOD_H * HOUR_S / (2 * max(1, self.count))
        if self.count < 1 or not least_s <= self.job_s <= most_s:
            raise Misconfigured(
                f"jobs are at least one, and of {least_s:g} s to half of their part of {PERIOD_H} h, not "
                f"{self.count} of {self.job_s:g} s"
            )

    def begins_s(self, period: int, turn: int) -> float:
        """Second of the day at which a job begins."""
        return (SCALED_H[0] + PERIOD_H * (period + (turn + 0.5) / self.count)) * HOUR_S


class JudgedJob(NamedTuple):
    """A job's day, its period of the day, and its outcome."""

    day: int
    period: int
    run: QosRun


@dataclass(frozen=True, slots=True, kw_only=True)
class QosOutcome:
    """Outcome of many jobs: mean and standard deviation of response quality, and shares."""

    quality: float
    deviation: float
    #: of the answered queries, those that the least accurate variant answered
    small_percent: float
    #: queries that left without an answer
    dropped_percent: float
    decisions: int
    #: share of the decisions of a clock that asks every device each 10 ms that were not needed
    fewer_actions_percent: float


def judge_scheduler(
    scheduler: Scheduler,
    pool: QosPool,
    load: DailyLoad,
    jobs: Jobs,
    *,
    days: Iterable[int],
    qps: float,
    kernel: VariantKernel,
    seed: int,
) -> Iterator[JudgedJob]:
    """Run all jobs of these days that have a query; Misconfigured, at the end, where none has."""
    found = 0
    for day in days:
        for period in range(PERIODS):
            for turn in range(jobs.count):
                queries = load.job(day, jobs.begins_s(period, turn), jobs.job_s, qps, seed, jobs.conditions)
                if queries.sent_s.size:
                    found += 1
                    run = serve_queries(
                        pool, queries, scheduler, kernel=kernel, seed=seed, conditions=jobs.conditions
                    )
                    yield JudgedJob(day, period, run)
    if not found:
        raise Misconfigured(f"{load.name}: no query in any job: give a higher rate or longer jobs")


def outcome_of(jobs: Iterable[JudgedJob]) -> QosOutcome:
    """The outcome of these jobs together, each query counted once."""
    runs = [job.run for job in jobs]
    quality = np.concatenate([run.quality for run in runs])
    answered = sum(run.answered for run in runs)
    decisions = sum(run.decisions for run in runs)
    return QosOutcome(
        quality=float(quality.mean()),
        deviation=float(quality.std()),
        small_percent=100 * sum(run.small for run in runs) / max(1, answered),
        dropped_percent=100 * (1 - answered / quality.size),
        decisions=decisions,
        fewer_actions_percent=100 * (1 - decisions / max(1, sum(run.clock_decisions for run in runs))),
    )


def still_clock() -> float:
    """A clock that stands: a replay's decisions depend on no machine's speed."""
    return 0.0
