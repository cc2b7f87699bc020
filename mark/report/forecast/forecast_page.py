"""Backtests as a page that needs nothing beside it, in the style of the report."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mark.report.files import write_json, write_whole
from mark.report.forecast.forecast_documents import (
    TARGET_WORDS,
    BacktestRun,
    backtest_document,
    backtest_headline,
    figure,
    format_leads,
    marked_scores,
    scored_runs,
)
from mark.report.forecast.forecast_table import card_lines
from mark.report.formatting import format_duration
from mark.report.html import make_environment, trusted
from mark.simulator.backtest import SCORED, BacktestSpan

BACKTEST_PAGE = "forecasts.html"
BACKTEST_DOCUMENT = "forecasts.json"


def write_backtest(
    out_dir: Path, runs: Sequence[BacktestRun], span: BacktestSpan, *, leave_out: Sequence[str], command: str
) -> Path:
    """Write `forecasts.json`, then `forecasts.html`, each whole or not at all; returns the page's path.

    Raises Misconfigured with one line when the folder cannot be written.
    """
    write_json(out_dir / BACKTEST_DOCUMENT, backtest_document(runs, span, leave_out))
    write_whole(out_dir / BACKTEST_PAGE, render_backtest(runs, span, leave_out=leave_out, command=command))
    return out_dir / BACKTEST_PAGE


def render_backtest(
    runs: Sequence[BacktestRun], span: BacktestSpan, *, leave_out: Sequence[str] = (), command: str
) -> str:
    """The page as text, for runs of which one has scores. `command` repeats them."""
    # matplotlib takes a second to import and only a page needs it
    from mark.report.figures import wide_and_narrow  # noqa: PLC0415
    from mark.report.forecast import plots  # noqa: PLC0415

    end_rps = plots.top_rps(runs)
    drawn = {
        id(run): wide_and_narrow(
            partial(plots.path_figure, run, scores.path, number=number, end_rps=end_rps), f"path{number}"
        )
        for number, run in enumerate(runs)
        for scores in (run.scores,)
        if scores is not None
    }
    sections = [
        {
            "anchor": f"run-{number}",
            "predictor": run.predictor,
            "error": run.error,
            "cells": _cells(run, runs),
            "notes": run.scores.notes if run.scores else (),
            "card": card_lines(run.card or {}),
            "path": trusted(drawn.get(id(run), "")),
        }
        for number, run in enumerate(runs)
    ]
    return (
        make_environment()
        .get_template("forecasts.html.j2")
        .render(
            title="How good the forecasts are",
            headline=backtest_headline(runs),
            facts=_facts(span, leave_out),
            sections=sections,
            leads=trusted(wide_and_narrow(partial(plots.lead_figure, runs), "lead")),
            honesty=trusted(wide_and_narrow(partial(plots.honesty_figure, runs), "honesty"))
            if _has_quantiles(runs)
            else None,
            drawn_lead=span.drawn_lead,
            target=TARGET_WORDS[span.target],
            command=command,
        )
    )


def _cells(run: BacktestRun, runs: Sequence[BacktestRun]) -> dict[str, object] | None:
    scores = run.scores
    if scores is None:
        return None
    return {
        "scores": marked_scores(scores, runs),
        "coverage": [figure(100 * float(scores.coverage[column]), 1) for column in SCORED],
        "train": figure(run.train_s, 1),
        "infer": f"{run.infer_ms:.3g}",
    }


def _has_quantiles(runs: Sequence[BacktestRun]) -> bool:
    return any(scores.levels > 1 for _, scores in scored_runs(runs))


def _facts(span: BacktestSpan, leave_out: Sequence[str]) -> tuple[tuple[str, str], ...]:
    every = "every minute" if span.every == 1 else f"every {span.every} min"
    left_out = (("Left out", ", ".join(leave_out)),) if leave_out else ()
    return (
        ("Trace", span.trace),
        ("Forecast", TARGET_WORDS[span.target]),
        ("Leads", format_leads(span.leads)),
        ("Origins", f"{len(span.origins):,}, {every}"),
        ("Span", format_duration(len(span.future) * span.future.unit_s)),
        ("History before it", format_duration(len(span.history) * span.history.unit_s)),
        *left_out,
    )
