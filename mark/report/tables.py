"""Tables of the terminal: columns as values, and one look for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: texts stand to the left and fold, figures to the right."""

    title: str | Text
    is_figure: bool = False
    #: Never broken nor folded, however narrow the terminal is.
    whole: bool = False
    #: Continued on the next line where it is too long; otherwise wrapped at words and cut.
    fold: bool = False
    #: Characters.
    min_width: int | None = None
    max_width: int | None = None


def texts(*titles: str | Text, max_width: int | None = None, min_width: int | None = None) -> tuple[Column, ...]:
    """Columns of texts, which fold."""
    return tuple(Column(title=title, fold=True, max_width=max_width, min_width=min_width) for title in titles)


def figures(*titles: str) -> tuple[Column, ...]:
    """Columns of figures, which are never broken."""
    return tuple(Column(title=title, is_figure=True, whole=True) for title in titles)


def make_table(columns: Sequence[Column], *, gap: int | None = None, notes: Sequence[str] = ()) -> Table:
    """A table without rows. `gap`: blanks between columns, and none around them; `notes` stand below it."""
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1) if gap is None else (0, gap, 0, 0),
        pad_edge=gap is None,
        show_edge=gap is None,
        caption=Text("\n".join(f"- {note}" for note in notes)) if notes else None,
        caption_justify="left",
    )
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.is_figure else "left",
            no_wrap=column.whole,
            overflow="fold" if column.fold else "ellipsis",
            min_width=column.min_width,
            max_width=column.max_width,
        )
    return table
