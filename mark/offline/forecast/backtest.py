"""`mark forecast backtest`: forecasters one after the other on the same span; what is finished is never lost.

A forecaster that raises, answers nonsense or is late is a failed run, and the others go on. After each one the
page is written anew.
"""

from __future__ import annotations

import shlex
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import typer

from mark.config.policies import usable_cache
from mark.config.settings import Settings
from mark.domain.demand import HORIZON
from mark.domain.errors import MarkError, Misconfigured, unknown
from mark.offline.forecast.forecasters import build, check_predictors, history_units, split_workload
from mark.plugins.deadline import DEADLINE_S, PunctualForecaster
from mark.report.files import make_folder
from mark.report.forecast.forecast_documents import BacktestRun, backtest_document, backtest_headline
from mark.report.forecast.forecast_page import write_backtest
from mark.report.forecast.forecast_table import backtest_table
from mark.report.terminal import INTERRUPTED, Report, note, progress, show, show_json
from mark.simulator.backtest import TARGETS, BacktestSpan, run_backtest
from mark.simulator.backtest_span import make_span
from mark.simulator.workload import Workload

PLANNING_LEAD = 5
"""The lead that is drawn where several are scored: what planners look at first."""
FIRST_S = 30.0
"""Real seconds that a first forecast may take: it may load libraries."""
DAY_MIN = 1440


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestOptions:
    """Flags of `mark forecast backtest` beside the settings.

    `leads` empty stands for all of them; windows are texts.
    """

    predictors: list[str]
    leads: tuple[float, ...]
    train_days: float | None
    target: str
    leave_out: list[str]
    every_min: int
    deadline_s: float = DEADLINE_S
    fresh: bool = False


@dataclass(slots=True)
class _Outcome:
    """Finished runs, failed ones included, and what ended the command early."""

    runs: list[BacktestRun] = field(default_factory=list)
    failure: MarkError | None = None
    page: Path | None = None
    interrupted: bool = False


def backtest_settings(settings: Settings, options: BacktestOptions, *, as_json: bool) -> None:
    """Score the forecasters and print the scores.

    Raises Misconfigured where one failed, and typer.Exit after Ctrl-C, both after what is finished was printed.
    """
    predictors = check_predictors(options.predictors, settings)
    leads = _leads(options.leads)
    _check(options)
    windows = [window for text in options.leave_out for window in parse_window(text)]
    units = history_units(options.train_days)
    workload = split_workload(settings, options.train_days)
    span = make_span(
        workload,
        history_units=units,
        leads=leads,
        drawn_lead=PLANNING_LEAD if PLANNING_LEAD in leads else leads[0],
        target=options.target,
        every=options.every_min,
        leave_out=windows,
    )
    if settings.out is not None:
        make_folder(settings.out)
    outcome = _Outcome()
    try:
        with ExitStack() as opened, progress() as report:
            cache = usable_cache()
            if options.fresh:
                cache = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="mark-fresh-")))
            for name in predictors:
                outcome.runs.append(_one(name, span, workload, options, cache, report))
                _write(settings.out, outcome, span, options)
    except KeyboardInterrupt:
        outcome.interrupted = True
    finally:  # a defect, too, leaves what is finished: it is printed, then the defect is shown
        _print(outcome, span, options, as_json=as_json)
    if outcome.interrupted:
        note(f"interrupted: {len(outcome.runs)} of {len(predictors)} forecasters finished")
        raise typer.Exit(INTERRUPTED)
    if outcome.failure is not None:
        raise outcome.failure
    failed = [run for run in outcome.runs if run.scores is None]
    if failed:
        names = ", ".join(run.predictor for run in failed)
        raise Misconfigured(f"{len(failed)} of {len(predictors)} forecasters failed, as noted above: {names}")


def parse_window(text: str) -> list[tuple[float, float]]:
    """`23:31-24:00` as seconds of the day; a window over midnight, `23:50-00:10`, is two."""
    from_s, to_s = (_seconds_of(part, text) for part in _halves(text))
    if from_s == to_s:
        raise Misconfigured(f"--leave-out {text!r} is empty")
    if from_s < to_s:
        return [(from_s, to_s)]
    return [(from_s, DAY_MIN * 60.0), *([(0.0, to_s)] if to_s else [])]


def _halves(text: str) -> tuple[str, str]:
    left, dash, right = text.partition("-")
    if not dash:
        raise Misconfigured(f"--leave-out {text!r} must read HH:MM-HH:MM, such as 23:31-24:00")
    return left, right


def _seconds_of(part: str, text: str) -> float:
    hours, colon, minutes = part.strip().partition(":")
    if not (colon and hours.isdigit() and minutes.isdigit()):
        raise Misconfigured(f"--leave-out {text!r} must read HH:MM-HH:MM, such as 23:31-24:00")
    minute = 60 * int(hours) + int(minutes)
    if int(minutes) >= 60 or minute > DAY_MIN:
        raise Misconfigured(f"--leave-out {text!r}: {part.strip()} is not a time of day")
    return 60.0 * minute


def _leads(options: Sequence[float]) -> tuple[int, ...]:
    for lead in options:
        if lead != round(lead) or not 1 <= lead <= HORIZON:
            raise Misconfigured(f"--lead-min must be whole minutes from 1 to {HORIZON}, not {lead:g}")
    return tuple(sorted({round(lead) for lead in options})) or tuple(range(1, HORIZON + 1))


def _check(options: BacktestOptions) -> None:
    if options.target not in TARGETS:
        raise unknown("--target", options.target, TARGETS)
    if options.every_min < 1:
        raise Misconfigured(f"--every-min must be 1 or more, not {options.every_min}")
    if not 0 < options.deadline_s < float("inf"):
        raise Misconfigured(f"--deadline-s must be above 0, not {options.deadline_s:g}")


def _one(
    name: str, span: BacktestSpan, workload: Workload, options: BacktestOptions, cache: Path, report: Report
) -> BacktestRun:
    """Build one forecaster and ask it; a failure is a run too."""
    try:
        built = build(name, span.history, workload=workload, cache_dir=cache, report=report)
    except MarkError as error:
        return _failed(name, span, error)
    took: list[float] = []
    first_s = max(FIRST_S, options.deadline_s)
    punctual = PunctualForecaster(
        built.forecaster, name=name, deadline_s=options.deadline_s, first_s=first_s, took=took.append
    )
    try:
        scores = run_backtest(span, punctual, lambda share: report(f"backtesting {name}", share))
    except MarkError as error:
        return _failed(name, span, error)
    finally:
        punctual.close()
    return BacktestRun(
        predictor=name,
        trace=span.trace,
        target=span.target,
        scores=scores,
        train_s=built.train_s,
        infer_ms=1000 * statistics.median(took),
        card=built.card,
    )


def _failed(name: str, span: BacktestSpan, error: MarkError) -> BacktestRun:
    note(f"{name} failed: {error}")
    return BacktestRun(predictor=name, trace=span.trace, target=span.target, error=str(error))


def _write(out: Path | None, outcome: _Outcome, span: BacktestSpan, options: BacktestOptions) -> None:
    """Write the page anew; the first failure to is kept, and ends the writing."""
    if out is None or outcome.failure is not None or all(run.scores is None for run in outcome.runs):
        return
    try:
        outcome.page = write_backtest(
            out, outcome.runs, span, leave_out=options.leave_out, command=shlex.join(["mark", *sys.argv[1:]])
        )
    except Misconfigured as error:
        outcome.failure = error


def _print(outcome: _Outcome, span: BacktestSpan, options: BacktestOptions, *, as_json: bool) -> None:
    if as_json:
        if outcome.runs or outcome.interrupted:
            show_json(backtest_document(outcome.runs, span, options.leave_out))
        return
    if all(run.scores is None for run in outcome.runs):
        return
    show(backtest_headline(outcome.runs), "", backtest_table(outcome.runs, span))
    if outcome.page is not None and outcome.failure is None:
        show("", f"page: {outcome.page}")
