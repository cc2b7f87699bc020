"""The order of the schedulers on loads that nothing was chosen or learned on: other sites, at several levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mark.simulator.qos.drawn_load import SCALED_H, DailyLoad, repeated_load
from mark.simulator.qos.judge import Jobs, judge_scheduler, outcome_of
from mark.studies.fang.cases import BETAS_TRIED, Contest, Scope, assumptions, contest, provenance
from mark.studies.fang.published import FIXED, HEURISTIC, LEARNED
from mark.studies.fang.tables import ONE
from mark.studies.study import Row, Study, StudyContext, View

LEVELS = 0.7, 1.0, 1.3
"""Loads that are judged, as shares of table 2's."""
SCOPE = Scope(jobs=Jobs(count=1, job_s=300.0), seeds=2, iterations=20)
ALL = "mean"
_QUALITY = View(title="Quality of responses", index=("load", "scheduler"), quantities=("quality", "small_percent"))
_ORDER = View(
    title="The order; `least`: of the worst training",
    index=("load",),
    quantities=("heuristic_over_fixed", "learned_over_heuristic", "least_learned_over_heuristic"),
)


@dataclass(frozen=True, slots=True)
class _Judged:
    """Outcome of a scheduler on a load: quality by training, and the share of the small model."""

    quality: tuple[float, ...]
    small_percent: float

    @property
    def mean(self) -> float:
        return float(np.mean(self.quality))


def fang_loads(context: StudyContext, scope: Scope = SCOPE) -> Study:
    """Judge the schedulers on the trace's later days, and on other traces."""
    found = contest(context, ONE, scope)
    loads = [(found.load, found.load.judged)]
    loads += [(other := repeated_load(trace), other.judged) for trace in context.others]
    rows: list[Row] = []
    seen: list[Mapping[str, _Judged]] = []
    for place, (load, days) in enumerate(loads):
        for turn, level in enumerate(LEVELS):
            context.progress(f"judging {load.name}", 0.7 + 0.3 * (place + turn / len(LEVELS)) / len(loads))
            judged = _judge(context, found, scope, load, days, level)
            seen.append(judged)
            rows += _rows(f"{load.name} x{level:g}", judged)
    margins = [_margins(judged) for judged in seen]
    rows += [Row((("load", ALL),), name, float(np.mean([one[name] for one in margins]))) for name in margins[0]]
    rows += [
        Row((("load", ALL), ("scheduler", name)), "quality", float(np.mean([one[name].mean for one in seen])))
        for name in seen[0]
    ]
    return Study(
        name="fang-loads",
        title="Fang et al.: the order of the schedulers on other loads, one p2.xlarge",
        rows=(*rows, *found.betas),
        assumptions=(
            *assumptions(found.load, found.qps),
            (
                f"other traces: their last days, scaled alike between {SCALED_H[0]} and {SCALED_H[1]} h; a "
                "trace of less than two days repeats. Their later half is judged."
            ),
        ),
        provenance=provenance(found.load, scope),
        views=(_QUALITY, _ORDER, BETAS_TRIED),
    )


def _judge(
    context: StudyContext, found: Contest, scope: Scope, load: DailyLoad, days: range, level: float
) -> dict[str, _Judged]:
    def judged(name: str) -> _Judged:
        outcomes = [
            outcome_of(
                judge_scheduler(
                    scheduler,
                    found.pool,
                    load,
                    scope.jobs,
                    days=days,
                    qps=level * found.qps,
                    kernel=context.variant_kernel(),
                    seed=context.seed,
                )
            )
            for scheduler in found.schedulers[name]
        ]
        small = float(np.mean([outcome.small_percent for outcome in outcomes]))
        return _Judged(tuple(outcome.quality for outcome in outcomes), small)

    return {name: judged(name) for name in found.schedulers}


def _margins(judged: Mapping[str, _Judged]) -> dict[str, float]:
    usual = judged[HEURISTIC].mean
    return {
        "heuristic_over_fixed": usual - judged[FIXED].mean,
        "learned_over_heuristic": judged[LEARNED].mean - usual,
        "least_learned_over_heuristic": min(judged[LEARNED].quality) - usual,
    }


def _rows(load: str, judged: Mapping[str, _Judged]) -> Iterator[Row]:
    for name, one in judged.items():
        where = (("load", load), ("scheduler", name))
        yield Row(where, "quality", one.mean)
        yield Row(where, "small_percent", one.small_percent)
    for name, margin in _margins(judged).items():
        yield Row((("load", load),), name, margin)
