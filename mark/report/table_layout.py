"""Tables as wide as the terminal: no word and no figure is cut.

A table that is too wide first loses its padding, then its texts wrap between words. Columns that still do not fit
side by side follow in further tables, and each of those opens with the first column again.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

ENDLESS = 100_000
"""Width that fits any table: measuring under it finds what a table would take."""


def fit_table(console: Console, table: Table) -> list[Table]:
    """The table in one part, or in as many as the console's width needs; without title and caption."""
    plain = copy(table)
    plain.title = plain.caption = None
    tight = copy(plain)
    tight.padding = 0 if table.box is not None else (0, 1)  # of a grid nothing else parts the columns
    for part in (plain, tight):
        if _needed(console, part) <= console.width:
            return [part]
    spans = [_span(console, column) for column in table.columns]
    return [_laid_out(console, tight, spans, chosen) for chosen in _chunks(console, tight, spans)]


def _chunks(console: Console, table: Table, spans: Sequence[Measurement]) -> list[list[int]]:
    """Indices of the columns of each part."""
    chunks = [[0]]
    for index in range(1, len(spans)):
        trial = [*chunks[-1], index]
        if len(trial) > 2 and _needed(console, _part(table, trial, _least(spans, trial))) > console.width:
            trial = [0, index]
            chunks.append(trial)
        chunks[-1] = trial
    return chunks


def _laid_out(console: Console, table: Table, spans: Sequence[Measurement], chosen: Sequence[int]) -> Table:
    """A part whose columns share what is left of the width, those that want least first."""
    widths = dict(zip(chosen, _least(spans, chosen), strict=True))
    left = max(0, console.width - _needed(console, _part(table, chosen, list(widths.values()))))
    wanting = sorted(chosen, key=lambda index: spans[index].maximum - widths[index])
    for position, index in enumerate(wanting):
        more = min(spans[index].maximum - widths[index], left // (len(wanting) - position))
        widths[index] += more
        left -= more
    return _part(table, chosen, list(widths.values()))


def _part(table: Table, chosen: Sequence[int], widths: Sequence[int]) -> Table:
    part = copy(table)
    part.columns = [
        replace(table.columns[index], _index=place, width=width, min_width=None, max_width=None)
        for place, (index, width) in enumerate(zip(chosen, widths, strict=True))
    ]
    return part


def _span(console: Console, column: Column) -> Measurement:
    """The width of a column's longest word, and of its longest line."""
    options = console.options.update(max_width=ENDLESS)
    sizes = [Measurement.get(console, options, cell) for cell in (column.header, *column.cells)]
    most = max(size.maximum for size in sizes)
    least = most if column.no_wrap else max(size.minimum for size in sizes)
    # one endless word, a path say, is broken before it takes the whole line
    least = min(least, max(1, console.width // 2))
    return Measurement(least, max(least, min(most, column.max_width or most)))


def _least(spans: Sequence[Measurement], chosen: Sequence[int]) -> list[int]:
    return [spans[index].minimum for index in chosen]


def _needed(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(max_width=ENDLESS), table).maximum
