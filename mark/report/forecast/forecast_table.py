"""Forecasts in a terminal; tables fit 100 columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from mark.domain.demand import Demand, Forecast
from mark.report.forecast.forecast_documents import (
    TARGET_WORDS,
    BacktestRun,
    figure,
    format_leads,
    marked_scores,
    plain,
    scored_runs,
)
from mark.report.formatting import MISSING, format_duration
from mark.report.live.formatting import format_rps
from mark.report.tables import Column, figures, make_table, texts
from mark.simulator.backtest import SCORED, BacktestSpan

SHOWN_MINUTES = (1, 5, 15, 30, 60)
BEST = "*"


def backtest_table(runs: Sequence[BacktestRun], span: BacktestSpan) -> Table:
    """One row a forecaster, the best scores bold and marked, notes as its caption."""
    shares = "% at or below the quantile\n50 /   75 /   90 /   95"
    columns = [
        *texts("forecaster", min_width=14),
        *figures("wQL", "WAPE", "MASE", shares, "train\ns", "forecast\nms"),
    ]
    table = make_table(columns, gap=1, notes=_notes(runs, span))
    for run in runs:
        table.add_row(*_cells(run, runs))
    return table


def _cells(run: BacktestRun, runs: Sequence[BacktestRun]) -> tuple[str | Text, ...]:
    scores = run.scores
    if scores is None:
        return (escape(run.predictor), Text("failed", style="bold red"), *(MISSING,) * 5)
    return (
        escape(run.predictor),
        *(
            Text(text + (BEST if is_best else " "), style="bold" if is_best else "")
            for text, is_best in marked_scores(scores, runs)
        ),
        " / ".join(figure(100 * float(scores.coverage[column]), 1) for column in SCORED),
        figure(run.train_s, 1),
        f"{run.infer_ms:.3g}",
    )


def _notes(runs: Sequence[BacktestRun], span: BacktestSpan) -> list[str]:
    tested, learnt = (format_duration(len(part) * part.unit_s) for part in (span.future, span.history))
    what = (
        f"{TARGET_WORDS[span.target]}, {format_leads(span.leads)} ahead, over {tested} after {learnt} of history"
    )
    notes = [f"{what}; {len(span.origins):,} origins scored; {BEST} is the best"]
    by_note: dict[str, list[str]] = {}
    for run, scores in scored_runs(runs):
        for note in scores.notes:
            by_note.setdefault(note, []).append(run.predictor)
    return notes + [f"{', '.join(names)}: {note}" for note, names in by_note.items()]


def forecast_table(forecast: Forecast, actual: Demand) -> Table:
    """Some minutes of a forecast: means and highest rates by level, and what came where that is known."""
    levels = ("median" if level == 0.5 else f"{100 * level:g} %" for level in forecast.quantiles)
    table = make_table([Column(title="requests/s", whole=True), *figures("minute", *levels, "came")], gap=2)
    kinds = (("mean", forecast.mean_rps, actual.mean_rps), ("highest 5 s", forecast.max_rps, actual.max_rps))
    for name, rows, seen in kinds:
        for minute in SHOWN_MINUTES:
            known = seen[minute - 1] if minute <= len(seen) else math.nan
            rates = (format_rps(rate) for rate in rows[minute - 1])
            table.add_row(name if minute == SHOWN_MINUTES[0] else "", str(minute), *rates, format_rps(known))
    return table


def card_table(card: Mapping[str, object]) -> Table:
    """Table of a forecaster's card, a line a key."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for key, value in card_lines(card):
        grid.add_row(escape(key), Text(value))
    return grid


def card_lines(card: Mapping[str, object]) -> list[tuple[str, str]]:
    """Names and values of a card; a part of the card (`lstm_mean`) goes before its names."""
    lines = []
    for key, value in plain(card).items():
        if isinstance(value, Mapping):
            lines += [(f"{key}: {name}", format_card_value(item)) for name, item in value.items()]
        else:
            lines.append((key, format_card_value(value)))
    return lines


def format_card_value(value: Any) -> str:
    """One plain value of a card in a line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_card_value(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(format_card_value(item) for item in value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return MISSING if value is None else str(value)
