"""The comparison of policies in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from mark.report.formatting import (
    MISSING,
    compared_words,
    format_duration,
    monthly_usd,
    over_yardstick,
    percent,
    served_percent,
)
from mark.report.runs.comparison import (
    ComparedRun,
    comparison_notes,
    cost_ratio,
    format_accuracy,
    format_attainment,
    format_latency,
    format_quality,
    headline_run,
    outcomes,
    run_labels,
)
from mark.report.runs.rivals import usd_per_month
from mark.report.tables import Column, figures, make_table, texts


def comparison_table(runs: Sequence[ComparedRun]) -> Table:
    """One row a run, the notes as its caption. Misconfigured when nothing ran."""
    lead = headline_run(runs)
    rows = outcomes(runs)
    lead_label = next(label for label, run in zip(run_labels(runs), runs, strict=True) if run is lead)
    against = escape(lead_label).replace("-", "-\n")  # a narrow column leaves the others whole
    has_variants = any(run.result.accuracy is not None for run in runs)
    has_floor = any(run.cost_over_floor is not None for run in runs)
    columns = [
        *texts("policy", min_width=13),
        *figures("USD a\nmonth"),
        Column(title=f"vs\n{against}", is_figure=True, max_width=13),
        *figures("above ref./\nfloor" if has_floor else "above\nref."),
        Column(title=_kept_header(runs), whole=True),
        *(figures("accuracy/\nquality") if has_variants else ()),
        *figures("p50/p95/p99\nms", "served % inst/\nstby/Lambda/shed", "laun./\nlost"),
    ]
    # the box adds one more blank to the gap: 96 columns with the policies' own names
    table = make_table(columns, gap=1, notes=comparison_notes(runs))
    for label, run in rows:
        table.add_row(*_cells(label, run, lead, has_floor=has_floor, has_variants=has_variants))
    return table


def _kept_header(runs: Sequence[ComparedRun]) -> str:
    limits = {run.result.slo.latency_s for run in runs}
    return f"within\n{format_duration(limits.pop())}" if len(limits) == 1 else "within\nobjective"


def _cells(
    label: str, run: ComparedRun, lead: ComparedRun, *, has_floor: bool, has_variants: bool
) -> tuple[str | Text, ...]:
    result = run.result
    return (
        Text(label, style="bold" if run is lead else ""),
        monthly_usd(usd_per_month(result)),
        compared_words(cost_ratio(run, lead)) if run is not lead else "",
        _over_yardsticks(run, has_floor=has_floor),
        _attained(run),
        *([_worth(run)] if has_variants else []),
        "/".join(words.replace(",", "") for words in format_latency(run)),
        "/".join(f"{share:.1f}" for share in served_percent(result.served)),
        f"{result.launches:,}/{result.interruptions:,}",
    )


def _worth(run: ComparedRun) -> str:
    """Accuracy, and below it quality: one column, because the table has no room for two."""
    return "/\n".join(text or MISSING for text in (format_accuracy(run), format_quality(run)))


def _over_yardsticks(run: ComparedRun, *, has_floor: bool) -> str:
    over = (run.cost_over_reference, *([run.cost_over_floor] if has_floor else []))
    return "/".join(over_yardstick(value) for value in over)


def _attained(run: ComparedRun) -> Text:
    kept = format_attainment(run, digits=2)
    if run.keeps_objective:
        return Text(kept)
    # the sign and the target say it, the colour only repeats it
    return Text(f"{kept.removesuffix(' %')} < {percent(run.result.slo.target)}", style="bold red")
