"""The text part of a mail: the words and tables of the HTML in plain columns."""

from __future__ import annotations

import textwrap

from mark.report.mail.view import MailView, Section, Table

WIDTH = 78
GAP = "  "


def mail_text(view: MailView) -> str:
    """The whole mail; sentences are wrapped, tables are as wide as they need."""
    head = [*_wrapped(view.verdict), *_wrapped(view.how), *_wrapped(view.headline), view.title]
    tiles = [f"{tile.label}: {tile.value}{f' ({tile.beside})' if tile.beside else ''}" for tile in view.tiles]
    parts = ["\n".join(head), "\n".join(tiles), *map(_section, view.sections)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section) -> str:
    lines = [section.title.upper()]
    for sentence in section.text:
        lines += _wrapped(sentence)
    for bullet in section.bullets:
        lines += _wrapped(bullet, "- ", GAP)
    if section.table is not None:
        lines += _table(section.table)
    return "\n".join(lines)


def _wrapped(sentence: str, first: str = "", others: str = "") -> list[str]:
    """Never broken at a hyphen or within a name: commands are copied from here."""
    return textwrap.wrap(
        sentence,
        WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,
    )


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
