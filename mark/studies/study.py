"""Input and output of a study (a reproduction): rows of our numbers beside the published ones, curves to draw.

One row is one quantity, so that every number of ours has its own `published` and `claim` beside it. `published` is
None where the paper only draws a figure; `claim` then says what its text states. Tables are views of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TypedDict

from rich import box
from rich.markup import escape
from rich.table import Table

from mark.simulator.engine.compiled import CentralKernel, Kernel, VariantKernel
from mark.simulator.experiment import BuildForecaster
from mark.simulator.traces.trace import Trace
from mark.studies.plot import Plot

Cell = str | float | list[str] | None
"""A value of a row's document."""


class StudyDocument(TypedDict):
    """The document of `mark reproduce --json`; docs/papers.md says what its figures mean."""

    study: str
    #: One quantity of one case each.
    rows: list[dict[str, Cell]]
    assumptions: list[str]


def _silent(_label: str, _share: float) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyContext:
    """Input of every study."""

    kernel: Kernel
    #: The central queue's kernel, compiled when a study first asks for it.
    central_kernel: Callable[[], CentralKernel]
    #: The kernel of variants, likewise.
    variant_kernel: Callable[[], VariantKernel]
    build_forecaster: BuildForecaster
    cache_dir: Path | None
    seed: int
    #: Replaces a study's generated load where it takes one.
    trace: Trace | None = None
    #: Other traces, of a study that judges on several.
    others: tuple[Trace, ...] = ()
    #: Replaces the shipped slowdowns of neighbours on a GPU, where a study has such.
    pairs: Path | None = None
    #: Called with the step that runs and the share of the whole study, in [0, 1].
    progress: Callable[[str, float], None] = _silent


_UNITS = {
    "USD": ("ec2_usd", "lambda_usd", "total_usd"),
    "ms": ("max_ms", "mean_ms", "p50_ms", "p98_ms", "p99_ms", "w_batch_ms"),
    "rps": (
        "bound_qps",
        "drawn_rps",
        "homogeneous_qps",
        "kairos_qps",
        "mean_rps",
        "qps",
        "best_qps",
        "allowable_rps",
        "chosen_qps",
    ),
    "%": ("gap_percent", "mean_cut_percent", "p50_cut_percent", "p99_cut_percent", "percent_of_space"),
    "percent": ("accuracy", "accuracy_spread", "fewer_actions_percent", "small_percent"),
    "points": ("most_over_cheapest", "over_best_fixed", "over_cheapest"),
    "pools": ("evaluations", "until_best"),
    "requests": ("mean_batch",),
    "x": (
        *(
            "before_over_again",
            "best_over_bound",
            "chosen_over_best",
            "kairos_over_it",
            "most_over_same_accuracy",
            "of_best",
            "of_bound",
            "of_linear",
        ),
        *("over_base", "over_same_accuracy", "ratio"),
    ),
    "count": (
        *("best_bound_rank", "cases", "dominated_by", "dominated_cases", "fleet", "launches", "n_batch", "pools"),
        *("replaced_minute", "taken", "unanswered", "woken"),
    ),
}
"""Quantities by their unit; the others are shares."""
UNITS = {quantity: unit for unit, quantities in _UNITS.items() for quantity in quantities}


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity of one case. `where` names the case: pairs of a column and its value, in reading order.

    `notes` say what a reader must know before comparing ours with what is published.
    """

    where: tuple[tuple[str, str | int], ...]
    quantity: str
    ours: float | None
    _: KW_ONLY
    #: Of `ours` and `published`, where it is not the quantity's usual one.
    unit: str = ""
    published: float | None = None
    claim: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def shown_unit(self) -> str:
        """The unit of its numbers."""
        return self.unit or UNITS.get(self.quantity, "share")

    def document(self) -> dict[str, Cell]:
        """The row as plain JSON; what is not a finite number is null."""
        return {
            **dict(self.where),
            "quantity": self.quantity,
            "unit": self.shown_unit,
            "ours": _finite(self.ours),
            "published": _finite(self.published),
            "claim": self.claim,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A table: the rows that have exactly the columns `index`, one line per case, one column per quantity."""

    title: str
    index: tuple[str, ...]
    quantities: tuple[str, ...]
    #: Labels of values of columns, where they are not to stand as they are.
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study that was run: rows, what was assumed for them, tables as views of them, and plots."""

    name: str
    title: str
    rows: tuple[Row, ...]
    assumptions: tuple[str, ...]
    #: Which figures are published and which were measured here.
    provenance: tuple[str, ...] = ()
    views: tuple[View, ...]
    series: tuple[Plot, ...] = ()

    def document(self) -> StudyDocument:
        """The study as plain JSON."""
        return {
            "study": self.name,
            "rows": [row.document() for row in self.rows],
            "assumptions": [*self.provenance, *self.assumptions],
        }

    def tables(self) -> list[Table]:
        """One rich table per view that has rows. A cell reads `ours (published)`."""
        tables = (_table(view, self.rows) for view in self.views)
        return [table for table in tables if table.row_count]

    def figures(self) -> dict[str, str]:
        """One SVG file's text per plot, by the plot's name."""
        from mark.studies.drawing import svg_of  # noqa: PLC0415 - matplotlib takes a second to import

        return {plot.name: svg_of(plot) for plot in self.series}


def _table(view: View, rows: tuple[Row, ...]) -> Table:
    cases: dict[tuple[str | int, ...], dict[str, Row]] = {}
    notes: dict[str, None] = {}
    for row in rows:
        if tuple(column for column, _ in row.where) != view.index or row.quantity not in view.quantities:
            continue
        cases.setdefault(tuple(value for _, value in row.where), {})[row.quantity] = row
        case = " ".join(str(value) for _, value in row.where)
        notes |= {f"{case}: {note}": None for note in row.notes}
    table = Table(
        title=view.title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        caption="\n".join(f"- {escape(note)}" for note in notes) or None,
        caption_justify="left",
    )
    for column in view.index:
        table.add_column(column, no_wrap=True)
    for quantity in view.quantities:
        table.add_column(quantity.replace("_", "\n"), justify="right", no_wrap=True)
    for values, found in cases.items():
        table.add_row(
            *(view.names.get(str(value), str(value)) for value in values),
            *(_cell(found.get(name)) for name in view.quantities),
        )
    return table


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    ours = number_text(row.ours, row.shown_unit)
    return ours if row.published is None else f"{ours} ({number_text(row.published, row.shown_unit)})"


def number_text(value: float | None, unit: str) -> str:
    """A quantity as tables show it; "-" where it is not known."""
    if value is None or not math.isfinite(value):
        return "-"
    digits = {"ms": 0, "count": 0, "share": 4, "rps": 1}.get(unit, 2)
    return f"{value:,.{digits}f}"


def _finite(value: float | None) -> float | None:
    """JSON has no NaN and no Infinity."""
    return float(value) if value is not None and math.isfinite(value) else None
