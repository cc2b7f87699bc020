"""The comparison of policies in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from mark.report.formatting import duration_words, percent, ratio, served_percent, usd
from mark.report.runs.comparison import (
    ComparedRun,
    comparison_notes,
    cost_ratio,
    kept_words,
    latency_words,
    reference_run,
    run_labels,
)


def comparison_table(runs: Sequence[ComparedRun]) -> Table:
    """One row a run, the notes as its caption. Misconfigured when nothing ran."""
    reference = reference_run(runs)
    labels = run_labels(runs)
    reference_label = next(label for label, run in zip(labels, runs, strict=True) if run is reference)
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),  # the box adds one more blank: 96 columns with the policies' own names
        pad_edge=False,
        show_edge=False,
        caption=Text("\n".join(f"- {note}" for note in comparison_notes(runs))),
        caption_justify="left",
    )
    table.add_column("policy", overflow="fold", min_width=13)
    table.add_column("total\nUSD", justify="right", no_wrap=True)
    against = escape(reference_label).replace("-", "-\n")  # a narrow column leaves the others whole
    table.add_column(f"vs\n{against}", justify="right", max_width=13)
    table.add_column("cost/\nbound", justify="right", no_wrap=True)
    table.add_column(_kept_header(runs), justify="left", no_wrap=True)
    table.add_column("p50/p95/p99\nms", justify="right", no_wrap=True)
    table.add_column("served % inst/\nstby/Lambda/shed", justify="right", no_wrap=True)
    table.add_column("laun-\nches", justify="right", no_wrap=True)
    table.add_column("spot\nlost", justify="right", no_wrap=True)
    for label, run in zip(labels, runs, strict=True):
        table.add_row(*_cells(label, run, reference))
    return table


def _kept_header(runs: Sequence[ComparedRun]) -> str:
    limits = {run.result.slo.latency_s for run in runs}
    return f"within\n{duration_words(limits.pop())}" if len(limits) == 1 else "within\nobjective"


def _cells(label: str, run: ComparedRun, reference: ComparedRun) -> tuple[str | Text, ...]:
    result = run.result
    return (
        Text(label, style="bold" if run is reference else ""),
        usd(result.cost.total),
        ratio(cost_ratio(run, reference)),
        ratio(run.cost_over_bound),
        _kept(run),
        "/".join(words.replace(",", "") for words in latency_words(run)),
        "/".join(f"{share:.1f}" for share in served_percent(result.served)),
        f"{result.launches:,}",
        f"{result.interruptions:,}",
    )


def _kept(run: ComparedRun) -> Text:
    kept = kept_words(run, digits=2)
    if run.keeps_objective:
        return Text(kept)
    # the sign and the target say it, the colour only repeats it
    return Text(f"{kept.removesuffix(' %')} < {percent(run.result.slo.target)}", style="bold red")
