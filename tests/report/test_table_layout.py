"""Tables fit the terminal, and nothing in them is cut."""

from __future__ import annotations

import io

import pytest
from rich import box
from rich.console import Console
from rich.table import Table

from mark.report import terminal
from mark.report.table_layout import fit_table

REASON = "7.779 USD per million requests, launch included"


def wide_table(figures: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("offering", overflow="fold")
    for number in range(figures):
        table.add_column(f"figure\n{number}", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for name in ("p2.xlarge:on-demand", "c5.large:spot"):
        table.add_row(name, *(f"{number:,}" for number in range(10**6, 10**6 + figures)), REASON)
    return table


def printed(table: Table, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as said:
        for part in fit_table(console, table):
            console.print(part)
    return said.get().splitlines()


@pytest.mark.parametrize("width", [40, 80, 100, 200])
@pytest.mark.parametrize("figures", [0, 3, 12])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_cut(width: int, figures: int) -> None:
    lines = printed(wide_table(figures), width)

    words = {word for line in lines for word in line.split()}
    assert max(map(len, lines)) <= width
    assert {"p2.xlarge:on-demand", "c5.large:spot", *REASON.split()} <= words
    assert {f"{number:,}" for number in range(10**6, 10**6 + figures)} <= words


def test_a_table_that_fits_stays_as_it_is() -> None:
    console = Console(file=io.StringIO(), width=100)

    (part,) = fit_table(console, wide_table(1))

    assert [column.width for column in part.columns] == [None] * 3


def test_columns_that_do_not_fit_follow_under_the_first_column() -> None:
    lines = printed(wide_table(12), 80)

    assert sum(line.startswith("p2.xlarge:on-demand") for line in lines) > 1


def test_output_to_a_file_is_as_wide_as_columns_says_and_has_no_blanks_at_line_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns in (60, 140):
        monkeypatch.setenv("COLUMNS", str(columns))
        table = wide_table(4)
        table.caption = "- a note"
        terminal.show(table)
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= columns
        assert [line for line in lines if line != line.rstrip()] == []
        assert lines[-1] == "- a note"


def test_labels_of_a_grid_stay_apart_from_their_texts() -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    grid.add_row("forecast", "mixture, trained on an hour of load " * 4)
    written = io.StringIO()
    console = Console(width=40, file=written)
    for part in fit_table(console, grid):
        console.print(part)
    assert written.getvalue().startswith("forecast mixture")
