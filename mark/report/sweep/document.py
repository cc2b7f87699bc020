"""The document of `mark sweep --json`; docs/json.md has its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from mark.report.sweep.pareto import ParetoRow, Spread


class SpreadDocument(TypedDict):
    """A figure over the seeds."""

    mean: float
    low: float
    high: float


class SweepModelDocument(TypedDict):
    """One model of a service, over the seeds."""

    model: str
    #: Without shared instances and what stands around all fleets.
    total_usd: SpreadDocument | None
    #: Share of its requests in time; null where a seed has none.
    attained: SpreadDocument | None
    #: Share that must be in time.
    target: float


class SweepRowDocument(TypedDict):
    """One choice of settings, over its seeds."""

    #: What runs are compared within.
    group: str
    policy: str
    #: Swept settings that make a difference.
    settings: dict[str, object]
    #: Seeds that were replayed.
    seeds: list[int]
    #: Seeds that were not.
    missing: int
    #: Total cost; null where a replay has none.
    total_usd: SpreadDocument | None
    serving_usd: SpreadDocument | None
    #: Share in time; of a service that of the model with the least margin to its target.
    attained: SpreadDocument | None
    cost_over_reference: SpreadDocument | None
    cost_over_floor: SpreadDocument | None
    #: Share of right answers; null for a model without variants.
    accuracy: SpreadDocument | None
    #: Share that must be in time; of a service the strictest.
    target: float
    #: Whether the mean is at least that.
    keeps_objective: bool
    #: Whether it knew the load to come; never on the front then.
    foreseeing: bool
    #: Forecasts, over the seeds.
    forecasts: int
    #: Forecasts replaced by the last value because the forecaster failed; such a row is never on the front.
    stood_in: int
    #: Whether nothing beats it.
    on_front: bool
    #: Of a service, a row a model; empty where one model is swept.
    models: list[SweepModelDocument]


class SweepDocument(TypedDict):
    """Settings over their seeds, single replays, and what did not run."""

    #: One choice of settings, over its seeds.
    rows: list[SweepRowDocument]
    #: Single replays: a run of `mark simulate` with `group` and `settings`; a service's also has sums of its
    #: models under the keys of one model's run.
    cells: list[dict[str, object]]
    #: What did not run: `label` and `reason`.
    failed: list[dict[str, object]]


def sweep_document(
    rows: Sequence[ParetoRow], *, cells: Sequence[Mapping[str, object]], failed: Sequence[Mapping[str, object]]
) -> SweepDocument:
    """The rows and cells of a sweep as plain JSON."""
    return {
        "rows": [_row_object(row) for row in rows],
        "cells": [dict(cell) for cell in cells],
        "failed": [dict(cell) for cell in failed],
    }


def _row_object(row: ParetoRow) -> SweepRowDocument:
    return {
        "group": row.group,
        "policy": row.policy,
        "settings": dict(row.settings),
        "seeds": list(row.seeds),
        "missing": row.missing,
        "total_usd": _spread_object(row.total_usd),
        "serving_usd": _spread_object(row.serving_usd),
        "attained": _spread_object(row.attained),
        "cost_over_reference": _spread_object(row.cost_over_reference),
        "cost_over_floor": _spread_object(row.cost_over_floor),
        "accuracy": _spread_object(row.accuracy),
        "target": row.target,
        "keeps_objective": row.keeps_objective,
        "foreseeing": row.uses_truth,
        "forecasts": row.forecasts,
        "stood_in": row.fallback_forecasts,
        "on_front": row.front > 0,
        "models": [
            {
                "model": model.model,
                "total_usd": _spread_object(model.total_usd),
                "attained": _spread_object(model.attained),
                "target": model.target,
            }
            for model in row.models
        ],
    }


def _spread_object(spread: Spread | None) -> SpreadDocument | None:
    return None if spread is None else {"mean": spread.mean, "low": spread.low, "high": spread.high}
