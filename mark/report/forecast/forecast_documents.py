"""Backtests of forecasters: which is best, and the document of all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mark.report.formatting import MISSING, finite
from mark.simulator.backtest import KEPT_LEVELS, SCORED, BacktestScores, BacktestSpan
from mark.simulator.scores import SCORED_LEVELS, Floats

DIGITS = {"wql": 4, "wape": 4, "mase": 2}
"""The scores that are compared, and how many digits of each are worth printing."""
TARGET_WORDS = {"mean": "mean rate of a minute", "max": "highest 5 s rate of a minute"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestRun:
    """One forecaster's backtest. Where it failed `scores` is None and `error` says why.

    `train_s` is how long it took to make, `infer_ms` the median of a forecast, `card` what it says of itself.
    """

    predictor: str
    trace: str
    target: str
    scores: BacktestScores | None = None
    train_s: float = math.nan
    infer_ms: float = math.nan
    card: Mapping[str, object] | None = None
    error: str | None = None


def scored_runs(runs: Sequence[BacktestRun]) -> list[tuple[BacktestRun, BacktestScores]]:
    """The runs that did not fail, with their scores."""
    return [(run, run.scores) for run in runs if run.scores is not None]


def least_of(runs: Sequence[BacktestRun], score: str) -> float:
    """The least `wql`, `wape` or `mase` of the runs; NaN, which equals nothing, where no run has one."""
    found = (float(getattr(scores, score)) for _, scores in scored_runs(runs))
    return min((value for value in found if math.isfinite(value)), default=math.nan)


def marked_scores(scores: BacktestScores, runs: Sequence[BacktestRun]) -> list[tuple[str, bool]]:
    """wQL, WAPE and MASE of one of `runs` in words, and whether no run has less."""
    found = ((float(getattr(scores, score)), digits, least_of(runs, score)) for score, digits in DIGITS.items())
    return [(figure(value, digits), value == least) for value, digits, least in found]


def backtest_headline(runs: Sequence[BacktestRun]) -> str:
    """The outcome in a sentence; only for runs of which one has scores."""
    able = {run.predictor: scores.wql for run, scores in scored_runs(runs) if math.isfinite(scores.wql)}
    if not able:
        return "Nothing arrived in the span: there is no scale for an error."
    (first, least), *others = sorted(able.items(), key=lambda item: item[1])
    sentence = f"{first} has a weighted quantile loss of {figure(least)}"
    if not others:
        return f"{sentence}."
    second, loss = others[0]
    if loss == least:
        return f"{sentence}, and so has {second}."
    return (
        f"{first} forecasts best: its weighted quantile loss is {figure(least)}, {apart(least, loss)} {second}'s."
    )


def apart(least: float, loss: float) -> str:
    """`3.1 % below`, which of two losses is the lesser being known."""
    return f"{100 * (1 - least / loss):.1f} % below"


def figure(value: float, digits: int = 4) -> str:
    """A score as `0.0412`."""
    return f"{value:.{digits}f}" if math.isfinite(value) else MISSING


def format_leads(leads: Sequence[int]) -> str:
    """`1 to 60 min`, `5 min`, `1, 5, 15 min`."""
    if len(leads) > 2 and leads == tuple(range(leads[0], leads[-1] + 1)):
        return f"{leads[0]} to {leads[-1]} min"
    return f"{', '.join(str(lead) for lead in leads)} min"


def backtest_document(
    runs: Sequence[BacktestRun], span: BacktestSpan, leave_out: Sequence[str] = ()
) -> dict[str, object]:
    """`{"runs": [...], "span": {...}}`; what is not a finite number is null (docs/json.md)."""
    return {"runs": [_run_object(run) for run in runs], "span": _span_object(span, leave_out)}


def _run_object(run: BacktestRun) -> dict[str, object]:
    found: dict[str, object] = {
        "predictor": run.predictor,
        "trace": run.trace,
        "target": run.target,
        **_scores_object(run.scores),
        "train_s": finite(run.train_s),
        "infer_ms": finite(run.infer_ms),
        "card": plain(run.card),
        "error": run.error,
    }
    return found


def _scores_object(scores: BacktestScores | None) -> dict[str, object]:
    if scores is None:
        empty = dict.fromkeys(
            ("wape", "wql", "mase", "coverage", "levels", "origins", "pairs", "by_lead", "by_day")
        )
        return {**empty, "notes": []}
    return {
        "wape": finite(scores.wape),
        "wql": finite(scores.wql),
        "mase": finite(scores.mase),
        "coverage": _coverage_object(scores.coverage),
        "levels": scores.levels,
        "origins": scores.origins,
        "pairs": scores.pairs,
        "by_lead": [
            {"lead_min": item.lead, "wape": finite(item.wape), "wql": finite(item.wql)} for item in scores.by_lead
        ],
        "by_day": [
            {"day": item.day, "pairs": item.pairs, "coverage": _coverage_object(item.coverage)}
            for item in scores.by_day
        ],
        "notes": list(scores.notes),
    }


def _span_object(span: BacktestSpan, leave_out: Sequence[str]) -> dict[str, object]:
    return {
        "start_s": span.history.end_at,
        "duration_s": len(span.future) * span.future.unit_s,
        "history_days": len(span.history) / span.day_units,
        "leads_min": list(span.leads),
        "every_min": span.every,
        "leave_out": list(leave_out),
    }


def _coverage_object(coverage: Floats) -> dict[str, float | None]:
    """coverage: shape (kept levels,)."""
    return {f"{level:g}": finite(coverage[column]) for level, column in zip(SCORED_LEVELS, SCORED, strict=True)}


def observed_shares(scores: BacktestScores) -> tuple[tuple[float, float], ...]:
    """Pairs of a kept level and the share of the actuals at or below its quantile."""
    return tuple((level, float(share)) for level, share in zip(KEPT_LEVELS, scores.coverage, strict=True))


def plain(value: Any) -> Any:
    """A card as JSON: texts for all values that JSON does not know."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return finite(value)
    return str(value)
