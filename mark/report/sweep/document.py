"""The document of `mark sweep --json`; docs/json.md has its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mark.report.sweep.pareto import ParetoRow, Spread


def sweep_document(
    rows: Sequence[ParetoRow], *, cells: Sequence[Mapping[str, object]], failed: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    """`{"rows", "cells", "failed"}`: settings over their seeds, single replays, and what did not run."""
    return {
        "rows": [_row_object(row) for row in rows],
        "cells": [dict(cell) for cell in cells],
        "failed": [dict(cell) for cell in failed],
    }


def _row_object(row: ParetoRow) -> dict[str, object]:
    return {
        "group": row.group,
        "policy": row.policy,
        "settings": dict(row.settings),
        "seeds": list(row.seeds),
        "missing": row.missing,
        "total_usd": _spread_object(row.total_usd),
        "serving_usd": _spread_object(row.serving_usd),
        "attained": _spread_object(row.attained),
        "cost_over_bound": _spread_object(row.cost_over_bound),
        "target": row.target,
        "keeps_objective": row.keeps_objective,
        "foreseeing": row.uses_truth,
        "forecasts": row.forecasts,
        "stood_in": row.fallback_forecasts,
        "on_front": row.front > 0,
    }


def _spread_object(spread: Spread | None) -> dict[str, float] | None:
    return None if spread is None else {"mean": spread.mean, "low": spread.low, "high": spread.high}
