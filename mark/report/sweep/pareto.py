"""Many replays side by side: settings aggregated over seeds, and which of them nobody beats (the Pareto front).

A **group** is what does the same job under the same conditions: one trace, one model, one latency. Only within
it does a comparison mean something, so every group has a front of its own. A row is on the front when no other
row of its group costs less without missing more, or misses less without costing more. Rows that were told the
load to come, rows with replays missing and rows whose forecaster failed are shown beside it: nobody can rent the
first, the second compare other seeds, and the third are figures of the last value, which stood in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

Value = str | float | bool | None
Key = tuple[str, str, tuple[tuple[str, Value], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptModel:
    """One model of a service in a replay. total_usd: without what its models share."""

    model: str
    total_usd: float
    attained: float | None
    target: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptRun:
    """One finished replay of a sweep.

    `settings` are the swept settings that tell its row from others of its `group`, by dotted name. `attained` is
    None where no request was finished, `cost_over_reference` where there is no reference,
    `cost_over_floor` where there is no floor or the objective is missed, `accuracy` (the mean share of right
    answers) where the model has no variants. `models`: those of a service. `fallback_forecasts` counts those of
    the `forecasts` that are the last value because the forecaster failed.
    """

    group: str
    policy: str
    settings: tuple[tuple[str, Value], ...]
    seed: int
    total_usd: float
    serving_usd: float
    attained: float | None
    target: float
    cost_over_reference: float | None
    cost_over_floor: float | None
    accuracy: float | None = None
    uses_truth: bool = False
    forecasts: int = 0
    fallback_forecasts: int = 0
    models: tuple[SweptModel, ...] = ()

    @property
    def row(self) -> Key:
        """Key of its row: all but the seed."""
        return self.group, self.policy, self.settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean, lowest and highest value over the seeds."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """One model of a service under one choice of settings, over its seeds."""

    model: str
    total_usd: Spread
    attained: Spread | None
    target: float

    @property
    def keeps_objective(self) -> bool:
        """On average at least the target share of its requests was answered in time, or none came."""
        return self.attained is None or self.attained.mean >= self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoRow:
    """One choice of settings, over its seeds. `front` counts the front's rows from the cheapest, 0 is not on it.

    `missing` counts seeds without a replay, `forecasts` and `fallback_forecasts` are sums over the seeds. A spread
    is None where a replay has no such figure.
    """

    group: str
    policy: str
    settings: tuple[tuple[str, Value], ...]
    seeds: tuple[int, ...]
    missing: int
    total_usd: Spread
    serving_usd: Spread
    attained: Spread | None
    cost_over_reference: Spread | None
    cost_over_floor: Spread | None
    accuracy: Spread | None
    target: float
    uses_truth: bool
    forecasts: int = 0
    fallback_forecasts: int = 0
    front: int = 0
    models: tuple[ModelRow, ...] = ()

    @property
    def keeps_objective(self) -> bool:
        """On average at least the target share of the requests was answered in time."""
        return self.attained is not None and self.attained.mean >= self.target

    @property
    def comparable(self) -> bool:
        """True where it can be on the front."""
        return self.attained is not None and not (self.uses_truth or self.missing or self.fallback_forecasts)


def pareto_front(costs: Sequence[float], attained: Sequence[float]) -> tuple[bool, ...]:
    """For each point whether no other is as good in both and better in one (less cost, more attained)."""
    order = sorted(range(len(costs)), key=lambda i: (costs[i], -attained[i]))
    on_front = [False] * len(costs)
    best: tuple[float, float] | None = None
    for i in order:
        point = costs[i], attained[i]
        # a twin of the last one on the front is not beaten by it
        if best is None or attained[i] > best[1] or point == best:
            on_front[i] = True
            best = point
    return tuple(on_front)


def pareto_rows(runs: Sequence[SweptRun], seed_count: int) -> tuple[ParetoRow, ...]:
    """The rows, group by group in the order of the runs, within a group from the cheapest."""
    found: dict[Key, list[SweptRun]] = {}
    for run in runs:
        found.setdefault(run.row, []).append(run)
    groups: dict[str, list[ParetoRow]] = {run.group: [] for run in runs}
    for same in found.values():
        groups[same[0].group].append(_row(same, seed_count))
    return tuple(row for rows in groups.values() for row in _with_front(rows))


def cheapest_keeping(rows: Sequence[ParetoRow]) -> ParetoRow | None:
    """Of the comparable rows that keep their objective on average the cheapest, the first of equals."""
    able = [row for row in rows if row.comparable and row.keeps_objective]
    return min(able, key=lambda row: row.total_usd.mean, default=None)


def by_group(rows: Sequence[ParetoRow]) -> dict[str, tuple[ParetoRow, ...]]:
    """The rows of each group, in their order."""
    groups = dict.fromkeys(row.group for row in rows)
    return {group: tuple(row for row in rows if row.group == group) for group in groups}


def swept_keys(rows: Sequence[ParetoRow]) -> tuple[str, ...]:
    """The settings that tell some of the rows apart, in the order of their first row."""
    return tuple(dict.fromkeys(key for row in rows for key, _ in row.settings))


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """`policy.lead_min` is called lead_min, unless another key ends alike."""
    last = [key.rpartition(".")[2] for key in keys]
    return {key: name if last.count(name) == 1 else key for key, name in zip(keys, last, strict=True)}


def row_label(row: ParetoRow) -> str:
    """`mark, lead_min 3, market spot`."""
    names = short_names([key for key, _ in row.settings])
    return ", ".join([row.policy, *(f"{names[key]} {format_value(value)}" for key, value in row.settings)])


def format_value(value: Any) -> str:
    """A setting's value as a table shows it."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _row(runs: Sequence[SweptRun], seed_count: int) -> ParetoRow:
    first = runs[0]
    return ParetoRow(
        group=first.group,
        policy=first.policy,
        settings=first.settings,
        seeds=tuple(sorted(run.seed for run in runs)),
        missing=seed_count - len(runs),
        total_usd=_spread([run.total_usd for run in runs]),
        serving_usd=_spread([run.serving_usd for run in runs]),
        attained=_known([run.attained for run in runs]),
        cost_over_reference=_known([run.cost_over_reference for run in runs]),
        cost_over_floor=_known([run.cost_over_floor for run in runs]),
        accuracy=_known([run.accuracy for run in runs]),
        target=first.target,
        uses_truth=first.uses_truth,
        forecasts=sum(run.forecasts for run in runs),
        fallback_forecasts=sum(run.fallback_forecasts for run in runs),
        models=tuple(_model_row(same) for same in zip(*(run.models for run in runs), strict=True)),
    )


def _model_row(runs: Sequence[SweptModel]) -> ModelRow:
    return ModelRow(
        model=runs[0].model,
        total_usd=_spread([run.total_usd for run in runs]),
        attained=_known([run.attained for run in runs]),
        target=runs[0].target,
    )


def _with_front(rows: Sequence[ParetoRow]) -> list[ParetoRow]:
    """The rows of one group from the cheapest, those on the front numbered."""
    ordered = sorted(rows, key=lambda row: (row.total_usd.mean, -(row.attained.mean if row.attained else 0.0)))
    able = [row for row in ordered if row.comparable]
    attained = [row.attained.mean for row in able if row.attained is not None]
    on_front = iter(pareto_front([row.total_usd.mean for row in able], attained))
    numbered, number = [], 0
    for row in ordered:
        if row.comparable and next(on_front):
            number += 1
            numbered.append(replace(row, front=number))
        else:
            numbered.append(row)
    return numbered


def _spread(values: Sequence[float]) -> Spread:
    # the mean of equal values is that value, not its sum divided
    mean = values[0] if min(values) == max(values) else sum(values) / len(values)
    return Spread(mean=mean, low=min(values), high=max(values))


def _known(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return _spread(known) if len(known) == len(values) else None
