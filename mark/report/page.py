"""The report as one page that needs nothing else: no script, no style sheet, no image beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape

from mark.domain.billing.costs import BillLine
from mark.domain.errors import unknown
from mark.domain.figures import figure
from mark.policies.present import SAGEMAKER, Present
from mark.report.files import write_json, write_whole
from mark.report.formatting import (
    compared_words,
    format_duration,
    monthly_usd,
    over_yardstick,
    percent,
    served_percent,
    unbroken,
    usd,
)
from mark.report.html import make_environment, trusted
from mark.report.runs.comparison import (
    ComparedRun,
    accuracy_sentence,
    comparison_notes,
    cost_ratio,
    format_accuracy,
    format_attainment,
    format_latency,
    format_quality,
    headline_run,
    outcomes,
)
from mark.report.runs.rivals import usd_per_month
from mark.report.runs.run_documents import simulate_document
from mark.report.runs.run_verdict import verdict_of

PUBLISHED_COLD_START_RATE = 0.0023
"""MArk, section 4.5: never exceeded over more than 3 million requests."""
LEAST_SHARE = 0.001
"""Of a bill: a smaller line is not read."""
FIGURES = ("cost", "load")
"""What `render_notebook` can draw: what each policy cost, by component; each one's load and capacity over time."""
REPORT_NAME = "report.html"
DOCUMENT_NAME = "runs.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The lines of a bill that are worth reading, and how many others there are, USD together."""

    lines: tuple[BillLine, ...]
    others: int
    others_usd: float


def folded_bill(lines: Sequence[BillLine]) -> Bill:
    """The bill with the lines below a thousandth of its total in one."""
    least = LEAST_SHARE * sum(line.usd for line in lines)
    small = [line for line in lines if abs(line.usd) < least]
    return Bill(
        lines=tuple(line for line in lines if abs(line.usd) >= least),
        others=len(small),
        others_usd=sum(line.usd for line in small),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """One run as the templates print it."""

    label: str
    run: ComparedRun
    anchor: str
    is_lead: bool
    cells: dict[str, str]
    served: tuple[str, ...]


def render_report(
    runs: Sequence[ComparedRun],
    *,
    title: str,
    command: str,
    assumptions: Sequence[str] = (),
    now: Present = SAGEMAKER,
) -> str:
    """The page as text. `command` repeats the runs; `assumptions` join the runs' own notes.

    Raises Misconfigured when nothing ran.
    """
    # matplotlib takes a second to import and only a page needs it
    from mark.report.figures import wide_and_narrow  # noqa: PLC0415
    from mark.report.runs import plots  # noqa: PLC0415

    labelled = outcomes(runs)
    loads = _load_figures(runs)
    bills = [folded_bill(run.result.bill) for _, run in labelled]
    compared = _compared(runs, now)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            compared,
            title=title,
            facts=_facts(runs),
            parts=tuple(zip(compared["sections"], loads, bills, strict=True)),
            has_parts=True,
            costs=_cost_figures(runs),
            is_small=plots.is_small(runs),
            latency=trusted(wide_and_narrow(partial(plots.latency_figure, labelled), "latency")),
            missed=trusted(wide_and_narrow(partial(plots.missed_figure, labelled), "missed")),
            notes=tuple(dict.fromkeys((*comparison_notes(runs), *assumptions))),
            command=escape(command),
            published_cold=percent(PUBLISHED_COLD_START_RATE),
        )
    )


def render_notebook(runs: Sequence[ComparedRun], now: Present = SAGEMAKER, *, drawn: str = "") -> str:
    """Verdict, table and notes as a part of another page, such as a notebook, whose style it leaves alone.

    drawn: a figure of FIGURES instead. Raises Misconfigured when nothing ran.
    """
    labels = [label for label, _ in outcomes(runs)]
    match drawn:
        case "cost":
            figures = [("", _cost_figures(runs))]
        case "load":
            figures = list(zip(labels, _load_figures(runs), strict=True))
        case "":
            figures = []
        case _:
            raise unknown("figure", drawn, FIGURES)
    return (
        _environment()
        .get_template("notebook.html.j2")
        .render(
            _compared(runs, now),
            table="runs_table.html.j2",
            has_parts=False,
            figures=figures,
            notes=comparison_notes(runs),
        )
    )


def _load_figures(runs: Sequence[ComparedRun]) -> list[Markup]:
    """Load and capacity of each run, on axes that they share."""
    # matplotlib takes a second to import and only a figure needs it
    from mark.report.figures import wide_and_narrow  # noqa: PLC0415
    from mark.report.runs import plots  # noqa: PLC0415

    offerings, end_rps = plots.named_offerings(runs), plots.top_rps(runs)
    return [
        trusted(
            wide_and_narrow(
                partial(plots.load_figure, label, run, offerings=offerings, end_rps=end_rps), f"load{number}"
            )
        )
        for number, (label, run) in enumerate(outcomes(runs))
    ]


def _cost_figures(runs: Sequence[ComparedRun]) -> Markup:
    # matplotlib takes a second to import and only a figure needs it
    from mark.report.figures import wide_and_narrow  # noqa: PLC0415
    from mark.report.runs import plots  # noqa: PLC0415

    return trusted(wide_and_narrow(partial(plots.cost_figure, outcomes(runs)), "cost"))


def _compared(runs: Sequence[ComparedRun], now: Present) -> dict[str, Any]:
    """The verdict and the table's rows."""
    lead, verdict = headline_run(runs), verdict_of(runs, now)
    sections = [
        _Section(
            label=label,
            run=run,
            anchor=f"run-{number}",
            is_lead=run is lead,
            cells=_cells(run, lead),
            served=tuple(f"{share:.1f}" for share in served_percent(run.result.served)),
        )
        for number, (label, run) in enumerate(outcomes(runs))
    ]
    return {
        "headline": verdict.parts[0],
        "others": verdict.parts[1],
        "how": verdict.how,
        "bought": accuracy_sentence(runs),
        "changes_at": verdict.changes_at,
        "has_floor": any(run.cost_over_floor is not None for run in runs),
        "has_variants": any(run.result.accuracy is not None for run in runs),
        "sections": sections,
        "lead": next(section.label for section in sections if section.is_lead),
    }


def write_report(
    out_dir: Path,
    runs: Sequence[ComparedRun],
    *,
    title: str,
    command: str,
    assumptions: Sequence[str] = (),
    now: Present = SAGEMAKER,
) -> Path:
    """Writes `runs.json`, then `report.html`, each whole or not at all; returns the page's path.

    The figures come first, so that a page which cannot be drawn or stored loses nothing already computed.
    Raises Misconfigured with one line when the folder cannot be written.
    """
    write_runs(out_dir, runs, now)
    page = render_report(runs, title=title, command=command, assumptions=assumptions, now=now)
    write_whole(out_dir / REPORT_NAME, page)
    return out_dir / REPORT_NAME


def write_runs(out_dir: Path, runs: Sequence[ComparedRun], now: Present = SAGEMAKER) -> None:
    """Write `runs.json` whole; Misconfigured with one line when the folder cannot be written."""
    write_json(out_dir / DOCUMENT_NAME, simulate_document(runs, now))


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
        "month": monthly_usd(usd_per_month(result)),
        "times": compared_words(cost_ratio(run, lead)) if run is not lead else "",
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
