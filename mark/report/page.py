"""The report as one page that needs nothing else: no script, no style sheet, no image beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup, escape

from mark.domain.figures import figure
from mark.report.files import write_json, write_whole
from mark.report.formatting import format_duration, over_yardstick, percent, ratio, served_percent, unbroken, usd
from mark.report.html import make_environment, trusted
from mark.report.runs.comparison import (
    ComparedRun,
    accuracy_sentence,
    break_even_sentence,
    comparison_notes,
    cost_ratio,
    format_accuracy,
    format_attainment,
    format_latency,
    format_quality,
    headline,
    headline_run,
    run_labels,
)
from mark.report.runs.run_documents import simulate_document

PUBLISHED_COLD_START_RATE = 0.0023
"""MArk, section 4.5: never exceeded over more than 3 million requests."""
REPORT_NAME = "report.html"
DOCUMENT_NAME = "runs.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """One run as the template prints it."""

    label: str
    run: ComparedRun
    anchor: str
    is_lead: bool
    cells: dict[str, str]
    served: tuple[str, ...]
    load: Markup


def render_report(
    runs: Sequence[ComparedRun], *, title: str, command: str, assumptions: Sequence[str] = ()
) -> str:
    """The page as text. `command` repeats the runs; `assumptions` join the runs' own notes.

    Raises Misconfigured when nothing ran.
    """
    # matplotlib takes a second to import and only a page needs it
    from mark.report.runs import plots  # noqa: PLC0415

    lead = headline_run(runs)
    labelled = tuple(zip(run_labels(runs), runs, strict=True))
    offerings, end_rps = plots.named_offerings(runs), plots.top_rps(runs)
    sections = [
        _Section(
            label=label,
            run=run,
            anchor=f"run-{number}",
            is_lead=run is lead,
            cells=_cells(run, lead),
            served=tuple(f"{share:.1f}" for share in served_percent(run.result.served)),
            load=trusted(
                plots.load_figure(label, run, offerings=offerings, end_rps=end_rps, prefix=f"load{number}")
            ),
        )
        for number, (label, run) in enumerate(labelled)
    ]
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            title=title,
            headline=headline(runs),
            bought=accuracy_sentence(runs),
            pays_from=break_even_sentence(runs),
            has_variants=any(run.result.accuracy is not None for run in runs),
            facts=_facts(runs),
            sections=sections,
            lead=next(section.label for section in sections if section.is_lead),
            costs=trusted(plots.cost_figure(labelled, prefix="cost")),
            latency=trusted(plots.latency_figure(labelled, prefix="latency")),
            missed=trusted(plots.missed_figure(labelled, prefix="missed")),
            notes=tuple(dict.fromkeys((*comparison_notes(runs), *assumptions))),
            command=escape(command),
            published_cold=percent(PUBLISHED_COLD_START_RATE),
        )
    )


def write_report(
    out_dir: Path, runs: Sequence[ComparedRun], *, title: str, command: str, assumptions: Sequence[str] = ()
) -> Path:
    """Writes `runs.json`, then `report.html`, each whole or not at all; returns the page's path.

    The figures come first, so that a page which cannot be drawn or stored loses nothing already computed.
    Raises Misconfigured with one line when the folder cannot be written.
    """
    write_runs(out_dir, runs)
    page = render_report(runs, title=title, command=command, assumptions=assumptions)
    write_whole(out_dir / REPORT_NAME, page)
    return out_dir / REPORT_NAME


def write_runs(out_dir: Path, runs: Sequence[ComparedRun]) -> None:
    """Write `runs.json` whole; Misconfigured with one line when the folder cannot be written."""
    write_json(out_dir / DOCUMENT_NAME, simulate_document(runs))


def _environment() -> Environment:
    environment = make_environment(usd=usd, quantity=partial(figure, digits=3))
    environment.finalize = _finished
    return environment


def _finished(value: object) -> object:
    """Finish a printed value: texts keep their units beside the numbers; figures stay as they are."""
    return unbroken(value) if type(value) is str else value


def _cells(run: ComparedRun, lead: ComparedRun) -> dict[str, str]:
    result = run.result
    p50, p95, p99 = format_latency(run)
    return {
        "total": usd(result.cost.total),
        "times": ratio(cost_ratio(run, lead)),
        "over_reference": over_yardstick(run.cost_over_reference),
        "over_floor": "" if run.cost_over_floor is None else over_yardstick(run.cost_over_floor),
        "attained": format_attainment(run, digits=2),
        "accuracy": format_accuracy(run),
        "quality": format_quality(run),
        "target": percent(result.slo.target),
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "cold": percent(result.cold_start_rate, digits=2) if result.lambda_invocations else "",
    }


def _facts(runs: Sequence[ComparedRun]) -> tuple[tuple[str, str], ...]:
    """Facts that all runs share; what differs between them stands in their names."""
    results = [run.result for run in runs]
    columns = {
        "Model": [r.model for r in results],
        "Market": [r.market for r in results],
        "Objective": [f"{percent(r.slo.target)} within {format_duration(r.slo.latency_s)}" for r in results],
        "Trace": [r.trace for r in results],
        "Length": [format_duration(r.duration_s) for r in results],
        "Requests": [f"{r.requests:,}" for r in results],
        "Seed": [str(r.seed) for r in results],
    }
    return tuple((name, ", ".join(dict.fromkeys(values))) for name, values in columns.items())
