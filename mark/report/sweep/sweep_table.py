"""A sweep in a terminal: one table a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from mark.report.formatting import MISSING, format_fallbacks, over_yardstick, percent, usd
from mark.report.sweep.pareto import (
    ModelRow,
    ParetoRow,
    Spread,
    by_group,
    cheapest_keeping,
    format_value,
    row_label,
    short_names,
    swept_keys,
)
from mark.report.tables import Column, figures, make_table, texts

Formatter = Callable[[float], str]


def pareto_tables(rows: Sequence[ParetoRow]) -> list[tuple[str, Table]]:
    """A heading and a table a group, its rows from the cheapest; those on the front are numbered.

    Of a service a table of the models follows.
    """
    found = []
    for group, members in by_group(rows).items():
        found.append((f"{group}\n{group_headline(members)}", _table(members)))
        row = told_row(members)
        if row.models:
            found.append((f"Models with {row_label(row)}", _models_table(row)))
    return found


def told_row(rows: Sequence[ParetoRow]) -> ParetoRow:
    """The row of a group whose models are shown: the cheapest that keeps its objective, else the first."""
    return cheapest_keeping(rows) or rows[0]


def model_cells(model: ModelRow) -> tuple[str, ...]:
    """The cells of a model of a service, after its name."""
    kept = format_mean(model.attained, format_share)
    return (
        _with_range(format_mean(model.total_usd, usd), model.total_usd, usd),
        _with_range(kept if model.keeps_objective else f"{kept} MISSED", model.attained, format_share),
        percent(model.target),
    )


def _models_table(row: ParetoRow) -> Table:
    table = make_table(
        [*texts("model"), *figures("own USD", "in time", "objective")],
        gap=2,
        notes=("own USD is without shared instances and what stands around all fleets.",),
    )
    for model in row.models:
        table.add_row(model.model, *model_cells(model))
    return table


def group_headline(rows: Sequence[ParetoRow]) -> str:
    """The group's outcome in words: the cheapest that keeps its objective, and what may still change that."""
    best = cheapest_keeping(rows)
    rentable = [row for row in rows if not row.uses_truth]
    waiting = sum(row.missing > 0 for row in rentable)
    if best is not None and best.attained is not None:
        kept, cost = format_share(best.attained.mean), usd(best.total_usd.mean)
        whose = "keeps all objectives" if best.models else "keeps its objective"
        least = " at least" if best.models else ""
        headline = f"Cheapest that {whose}: {row_label(best)}: {cost} USD, {kept} in time{least}."
    elif rentable and waiting == len(rentable):
        return "No row has all its seeds yet."
    elif rentable and all(row.fallback_forecasts for row in rentable):
        headline = "The forecaster failed in every row, and last-value stood in."
    elif waiting or any(row.fallback_forecasts for row in rentable):
        headline = "No row that can be compared kept its objective."
    else:
        headline = "Nothing that can be rented kept its objective."
    return f"{headline} Seeds are missing in {waiting} of {len(rows)} rows." if waiting else headline


def format_mean(spread: Spread | None, form: Formatter) -> str:
    """The mean, `12.30`."""
    return MISSING if spread is None else form(spread.mean)


def format_range(spread: Spread | None, form: Formatter) -> str:
    """Lowest and highest, `11.90-12.80`; nothing where they read alike."""
    if spread is None:
        return ""
    low, high = form(spread.low), form(spread.high)
    return "" if low == high else f"{low.removesuffix(' %').removesuffix('x')}-{high}"


def format_share(share: float) -> str:
    """A share in time with three digits: fronts are often told apart by the third."""
    return percent(share, digits=3)


def format_attainment(row: ParetoRow) -> str:
    """The mean share in time; below the target it says so."""
    kept = format_mean(row.attained, format_share)
    return kept if row.keeps_objective else f"{kept} < {percent(row.target)}"


def format_accuracy(row: ParetoRow) -> str:
    """The mean share of right answers of the variants that answered."""
    return format_mean(row.accuracy, format_share)


def remark(row: ParetoRow) -> str:
    """Reasons that keep a row off the front."""
    remarks = []
    if row.uses_truth:
        remarks.append("knows the load to come")
    if row.missing:
        remarks.append(f"{row.missing} of {row.missing + len(row.seeds)} seeds missing")
    if row.fallback_forecasts:
        remarks.append(format_fallbacks(row.fallback_forecasts, row.forecasts))
    return ", ".join(remarks)


def _table(rows: Sequence[ParetoRow]) -> Table:
    keys = swept_keys(rows)
    remarks = any(remark(row) for row in rows)
    has_variants = any(row.accuracy is not None for row in rows)
    columns = [
        *figures("front"),
        Column(title="policy", whole=True),
        *figures(*short_names(keys).values(), "total USD", "serving USD", "in time"),
        *(figures("accuracy") if has_variants else ()),
        *figures("above\nreference", "above\nfloor"),
        *([Column(title="left out", whole=True)] if remarks else []),
    ]
    table = make_table(columns, gap=1)
    for row in rows:
        settings = dict(row.settings)
        cells = [
            f"{row.front}" if row.front else "",
            row.policy,
            *(format_value(settings[key]) if key in settings else MISSING for key in keys),
            _with_range(format_mean(row.total_usd, usd), row.total_usd, usd),
            _with_range(format_mean(row.serving_usd, usd), row.serving_usd, usd),
            _with_range(format_attainment(row), row.attained, format_share),
            *([_with_range(format_accuracy(row), row.accuracy, format_share)] if has_variants else []),
            _with_range(
                format_mean(row.cost_over_reference, over_yardstick), row.cost_over_reference, over_yardstick
            ),
            _with_range(format_mean(row.cost_over_floor, over_yardstick), row.cost_over_floor, over_yardstick),
            *([remark(row)] if remarks else []),
        ]
        table.add_row(*(Text(cell, style="bold" if row.front else "") for cell in cells))
    return table


def _with_range(text: str, spread: Spread | None, form: Formatter) -> str:
    between = format_range(spread, form)
    return f"{text} ({between})" if between else text
