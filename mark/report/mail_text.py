"""The text part of a mail: the words and tables of the HTML in plain columns."""

from __future__ import annotations

import textwrap

from mark.report.mail_view import MailView, Section, Table

WIDTH = 78
GAP = "  "


def mail_text(view: MailView) -> str:
    """The whole mail; sentences are wrapped, tables are as wide as they need."""
    head = [*textwrap.wrap(view.headline, WIDTH), view.title]
    tiles = [f"{tile.label}: {tile.value}{f' ({tile.beside})' if tile.beside else ''}" for tile in view.tiles]
    parts = ["\n".join(head), "\n".join(tiles), *map(_section, view.sections)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section) -> str:
    lines = [section.title.upper()]
    for sentence in section.text:
        lines += textwrap.wrap(sentence, WIDTH)
    for bullet in section.bullets:
        lines += textwrap.wrap(bullet, WIDTH, initial_indent="- ", subsequent_indent=GAP)
    if section.table is not None:
        lines += _table(section.table)
    return "\n".join(lines)


def _table(table: Table) -> list[str]:
    """The first column to the left, the others to the right."""
    rows = [table.columns, *table.rows]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.columns))]
    printed = [
        GAP.join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    rule = "-" * max(map(len, printed))
    body = [printed[0], rule, *printed[1:]]
    return [*body[:-1], rule, body[-1]] if table.summed else body
