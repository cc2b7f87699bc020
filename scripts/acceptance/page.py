"""docs/figures.md and its tables, docs/figures/*.csv: `python -m scripts.acceptance.page [FOLDER]`.

All figures of a part are of one commit: figures of different code beside each other compare nothing. Each part
says its commit and stays as it was measured, so a change that touches one part need not wait for the hours that
all take.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.acceptance.figures_page import CHECKS, FigureTable, Row, Tables, kept, table
from scripts.acceptance.loads import SEEDS
from scripts.acceptance.parts import PARTS, FigureTask, tasks
from scripts.acceptance.results import RESULTS, ROOT, MeasuredFigures, ResultFolder, refuse

_SEEDS = ", ".join(map(str, SEEDS))
HEAD = f"""<!-- Written by `make acceptance`; edit scripts/acceptance, not this page. -->

# Figures on real traces

For you if you want to know how `hedged` does on real traffic. `make acceptance` measures everything in some two
hours on two cores and writes this page and its tables; `MARK_DATA` names the folder of the traces ([what they
are](traces.md#the-twitter-load)). Each part names the commit that it was measured at. [Which goals are missed, and
why](figures-missed.md).

Unless a part says otherwise: Inception-v3, 98 % of the requests within 600 ms, the world
[`typical`](worlds.md). Figures are of seed 1, or the mean of the seeds {_SEEDS} with their range in brackets. A
day is 24 h of the trace, counted from 0; everything before it is history. *Serving* is instances, standbys and
Lambda; *total* adds the overhead. The *reference* serves every request with perfect knowledge. No run that
attains its target serves for less than the *floor*; "x floor" is empty for runs that do not or are shorter than
a day ([words](glossary.md)).
"""
REST = """## Measured elsewhere

- `make fidelity`: a live service beside its replay, five seeds.
- `make bench`: [speed](speed.md).
- `mark reproduce`: [the papers' own experiments](papers.md).
"""
PAGE = ROOT / "docs" / "figures.md"
MEASURED_BY = re.compile(r"`python -m scripts\.acceptance\.run (\w+)` at `(\w+)`")
"""In the text of a part: its name and its commit."""
Measured = Mapping[FigureTask, MeasuredFigures | None]


def main(given: Sequence[str] | None = None) -> None:
    """Write the page; refused where no part is whole."""
    arguments = sys.argv[1:] if given is None else given
    folder = ResultFolder(Path(arguments[0]) if arguments else RESULTS)
    measured = {task: folder.find(task.part, task.label) for task in tasks()}
    if not write(measured):
        missing = ", ".join(missing_parts(measured))
        refuse(f"no part is measured: {missing}: run `make acceptance`, it goes on from what is there")


def missing_parts(measured: Measured) -> list[str]:
    """Parts with a task that has no figures, and how many such."""
    listed = [task.part for task in measured]
    lacking = [task.part for task, found in measured.items() if found is None]
    return [f"{part} ({lacking.count(part)} of {listed.count(part)} tasks)" for part in dict.fromkeys(lacking)]


def write(measured: Measured) -> bool:
    """Write the tables of the parts that are whole, and the page; false without any such part.

    Ends the command where commits differ within a part. Parts that are not measured anew stay.
    """
    lacking = {task.part for task, found in measured.items() if found is None}
    whole = [found for task, found in measured.items() if found is not None and task.part not in lacking]
    if not whole:
        return False
    texts = texts_there()
    for name, part in PARTS.items():
        if name not in lacking:
            commit, tables = _one_commit(name, whole), part.tables(part.completed(figures_of(name, whole)))
            _write_tables(name, tables)
            texts[name] = _part_text(name, commit, tables)
    PAGE.write_text(page_text(texts))
    return True


def page_text(texts: Mapping[str, str]) -> str:
    """The page. texts: of its parts, by name."""
    missing = [name for name in PARTS if name not in texts]
    said = [f"Not measured: {', '.join(missing)}.\n"] if missing else []
    return "\n".join([HEAD, *said, *(texts[name] for name in PARTS if name in texts), REST])


def texts_there() -> dict[str, str]:
    """The texts of the parts that are there, by name."""
    parts = PAGE.read_text().split("\n## ")[1:] if PAGE.exists() else []
    return {found[1]: f"## {text}" for text in parts if (found := MEASURED_BY.search(text))}


def tables_at(commit: str) -> dict[str, Tables]:
    """The tables of parts that were measured at that commit."""
    measured = (MEASURED_BY.search(text) for text in texts_there().values())
    names = {found[1] for found in measured if found and found[2] == commit}
    return {name: tables for name, tables in tables_there().items() if name in names}


def tables_there() -> dict[str, Tables]:
    """All tables that are there, by part."""
    found: dict[str, Tables] = {}
    for name in PARTS:
        for path in _table_files(name):
            with path.open(newline="") as file:
                rows = [tuple(row) for row in csv.reader(file)]
            found.setdefault(name, {})[path.stem.partition("-")[2]] = rows
    return found


def misses(tables: Tables) -> list[str]:
    """Figures of a part that miss what they have to reach."""
    return [check[0] for check in _checks(tables) if not kept(check)]


def _one_commit(part: str, measured: Sequence[MeasuredFigures]) -> str:
    """The commit of a part; ends the command where there are several."""
    commit, *others = dict.fromkeys(found.commit for found in measured if found.part == part)
    if others:
        refuse(f"{part} was measured at {', '.join((commit, *others))}: measure it at one, `make acceptance`")
    return commit


def figures_of(part: str, measured: Sequence[MeasuredFigures]) -> FigureTable:
    """All figures of a part, in the order of its tasks."""
    figures = FigureTable()
    for found in measured:
        if found.part == part:
            figures.extend(found.figures)
    return figures


def _part_text(name: str, commit: str, tables: Tables) -> str:
    """A part of the page: how to read it, the tables that it shows, where the others are."""
    part, checks = PARTS[name], _checks(tables)
    reached = f" {sum(map(kept, checks))} of {len(checks)} goals are kept." if checks else ""
    links = ", ".join(f"[{one}]({PAGE.stem}/{name}-{one}.csv)" for one in tables)
    shown = [
        table(*_head_and_rows([row[:columns] for row in tables[one]]))
        for one, columns in part.shown.items()
        if one in tables
    ]
    command = f"`python -m scripts.acceptance.run {name}` at `{commit}`:{reached} {links}.\n"
    return "\n".join([f"## {part.title}\n", part.note, *shown, command])


def _head_and_rows(rows: Sequence[Row]) -> tuple[Row, Sequence[Row]]:
    """A table as Markdown has it: what misses is bold."""
    head, *below = rows
    return head, [tuple("**no**" if cell == "no" else cell for cell in row) for row in below]


def _checks(tables: Tables) -> list[Row]:
    return tables.get(CHECKS, [])[1:]


def _table_files(part: str) -> list[Path]:
    return sorted(PAGE.with_suffix("").glob(f"{part}-*.csv"))


def _write_tables(part: str, tables: Tables) -> None:
    """Write the tables of a part in place of those that are there."""
    for path in _table_files(part):
        path.unlink()
    for name, rows in tables.items():
        path = PAGE.with_suffix("") / f"{part}-{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
