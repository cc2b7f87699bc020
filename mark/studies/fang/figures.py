"""Figures 6a, 6b and 7 of Fang et al.: when answers end, what they are worth, and which actions were taken."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from mark.dispatch.variants.qos import QosChoice, QosPool
from mark.simulator.engine.compiled import VariantKernel
from mark.simulator.qos.drawn_load import DailyLoad
from mark.simulator.qos.episode import Floats, QosEpisode, Scheduler
from mark.simulator.qos.judge import Jobs, JudgedJob
from mark.studies.fang.published import LARGE, SMALL
from mark.studies.plot import Curve, Plot

SHARES = np.linspace(0.0, 1.0, 201)


def figures(
    name: str,
    judged: Mapping[str, list[JudgedJob]],
    schedulers: Mapping[str, Scheduler],
    pool: QosPool,
    load: DailyLoad,
    qps: float,
    kernel: VariantKernel,
    jobs: Jobs,
) -> tuple[Plot, ...]:
    """The plots of a study. The actions are those of its first judged job."""
    over_s = {one: np.concatenate([job.run.over_s for job in judged[one]]) for one in schedulers}
    quality = {one: np.concatenate([job.run.quality for job in judged[one]]) for one in schedulers}
    day = load.judged[0]
    queries = load.job(day, jobs.begins_s(0, 0), jobs.job_s, qps, 0, jobs.conditions)
    actions = {one: list(_actions(QosEpisode(pool, queries, kernel, 0), two)) for one, two in schedulers.items()}
    return (
        _shares(f"{name}-fig6a", "End of answers after the soft deadline", "s after the soft deadline", over_s),
        _shares(f"{name}-fig6b", "Quality of responses", "quality", quality),
        *(_batches(f"{name}-fig7-{one}", one, taken) for one, taken in actions.items()),
    )


def _shares(name: str, title: str, label: str, values: Mapping[str, Floats]) -> Plot:
    curves = (
        Curve(label=one, x=tuple(np.nanquantile(found, SHARES).tolist()), y=tuple(SHARES.tolist()))
        for one, found in values.items()
        if np.isfinite(found).any()
    )
    return Plot(name=name, title=title, x_label=label, y_label="share of responses", curves=tuple(curves))


def _batches(name: str, scheduler: str, taken: list[tuple[float, int, int]]) -> Plot:
    curves = (
        Curve(
            label=model,
            x=tuple(at_s for at_s, _, _ in taken),
            y=tuple(float(batch) if variant == number else math.nan for _, batch, variant in taken),
        )
        for number, model in enumerate((SMALL, LARGE))
    )
    return Plot(
        name=name, title=f"Actions: {scheduler}", x_label="s", y_label="queries in a batch", curves=tuple(curves)
    )


def _actions(episode: QosEpisode, scheduler: Scheduler) -> Iterator[tuple[float, int, int]]:
    """Instant, queries and model of each batch."""
    asks = episode.advance()
    while asks:
        state = episode.state()
        batch, variant = scheduler(state, episode.pool)
        if batch:
            yield episode.now, min(batch, state.queued), variant
        asks, _ = episode.decide(QosChoice(batch, variant))
