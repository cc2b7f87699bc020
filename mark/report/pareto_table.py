"""A sweep in a terminal: one table a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from mark.report.pareto import (
    ParetoRow,
    Spread,
    by_group,
    cheapest_keeping,
    row_label,
    short_names,
    swept_keys,
    value_words,
)
from mark.report.wording import MISSING, percent, ratio, usd

Words = Callable[[float], str]


def pareto_tables(rows: Sequence[ParetoRow]) -> list[Table]:
    """One table a group, its rows from the cheapest; those on the front are numbered."""
    return [_table(group, members) for group, members in by_group(rows).items()]


def group_headline(rows: Sequence[ParetoRow]) -> str:
    """The group's outcome in words: the cheapest that keeps its objective."""
    best = cheapest_keeping(rows)
    if best is None or best.attained is None:
        return "Nothing that can be rented kept its objective."
    kept = percent(best.attained.mean, digits=2)
    return f"Cheapest that keeps its objective: {row_label(best)}: {usd(best.total_usd.mean)} USD, {kept} in time."


def spread_words(spread: Spread | None, words: Words) -> str:
    """`12.30`, and behind it the range where the seeds differ: `12.30 (11.90-12.80)`."""
    if spread is None:
        return MISSING
    mean, low, high = (words(value) for value in (spread.mean, spread.low, spread.high))
    return mean if low == high else f"{mean} ({low.removesuffix(' %').removesuffix('x')}-{high})"


def kept_words(row: ParetoRow) -> str:
    """The share in time; below the target it says so."""
    kept = spread_words(row.attained, lambda share: percent(share, digits=2))
    return kept if row.keeps_objective else f"{kept} < {percent(row.target)}"


def remark(row: ParetoRow) -> str:
    """Why a row is left out of the front."""
    said = []
    if row.foreseeing:
        said.append("knows the load to come")
    if row.missing:
        said.append(f"{row.missing} of {row.missing + len(row.seeds)} seeds missing")
    return ", ".join(said)


def _table(group: str, rows: Sequence[ParetoRow]) -> Table:
    keys = swept_keys(rows)
    remarks = any(remark(row) for row in rows)
    table = Table(
        title=Text(f"{group}\n{group_headline(rows)}"),
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    table.add_column("front", justify="right", no_wrap=True)
    table.add_column("policy", no_wrap=True)
    for name in short_names(keys).values():
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("total USD", "serving USD", "in time", "cost/bound"):
        table.add_column(name, justify="right", no_wrap=True)
    if remarks:
        table.add_column("left out", no_wrap=True)
    for row in rows:
        settings = dict(row.settings)
        cells = [
            f"{row.front}" if row.front else "",
            row.policy,
            *(value_words(settings[key]) if key in settings else MISSING for key in keys),
            spread_words(row.total_usd, usd),
            spread_words(row.serving_usd, usd),
            kept_words(row),
            spread_words(row.cost_over_bound, ratio),
            *([remark(row)] if remarks else []),
        ]
        table.add_row(*(Text(cell, style="bold" if row.front else "") for cell in cells))
    return table
