"""docs/figures.md and its tables, docs/figures/*.csv: `python -m scripts.acceptance.page [FOLDER]`.

All parts are of one commit, or there is no page: figures of different code beside each other compare nothing. A
part that is not wholly measured at that commit is left out, and the page names it. Tables of the same commit that
are there already stay: they may have been measured elsewhere. The page is made of the tables alone.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.acceptance.figures_page import CHECKS, FigureTable, Row, Tables, kept, table
from scripts.acceptance.loads import SEEDS
from scripts.acceptance.parts import PARTS, FigureTask, Part, tasks
from scripts.acceptance.results import RESULTS, ROOT, MeasuredFigures, ResultFolder, refuse

_SEEDS = ", ".join(map(str, SEEDS))
HEAD = f"""<!-- Written by `make acceptance`; edit scripts/acceptance, not this page. -->

# Figures on real traces

For you if you want to know how `hedged` does on real traffic. `make acceptance` measures everything in some two
hours on two cores and writes this page and its tables; `MARK_DATA` names the folder of the traces ([what they
are](traces.md#the-twitter-load)). [Which goals are missed, and why](figures-missed.md).

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
Measured = Mapping[FigureTask, MeasuredFigures | None]


def main(given: Sequence[str] | None = None) -> None:
    """Write the page; refused where no part is whole, or one is of another commit than the others."""
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

    Ends the command where commits differ. Tables of the same commit stay where they are not measured anew.
    """
    lacking = {task.part for task, found in measured.items() if found is None}
    whole = [found for task, found in measured.items() if found is not None and task.part not in lacking]
    if not whole:
        return False
    commit = one_commit(whole)
    there = tables_at(commit)
    for name, part in PARTS.items():
        if name not in lacking:
            _write_tables(name, part.tables(part.completed(figures_of(name, whole))))
        elif name not in there:
            _write_tables(name, {})
    told = {name for name in PARTS if name not in lacking or name in there}
    missing = missing_parts({task: found for task, found in measured.items() if task.part not in told})
    PAGE.write_text(page_text(commit, tables_there(), missing))
    return True


def page_text(commit: str, there: Mapping[str, Tables], missing: Sequence[str] = ()) -> str:
    """The page of tables that were measured at a commit. missing: parts that were not."""
    said = f" Not measured at it, and so not here: {', '.join(missing)}." if missing else ""
    texts = (_part_text(name, PARTS[name], tables) for name, tables in there.items())
    return "\n".join([HEAD, f"Measured at commit `{commit}`.{said}\n", *texts, REST])


def tables_at(commit: str) -> dict[str, Tables]:
    """The tables that are there, by part, where the page says that commit; none else."""
    said = PAGE.read_text() if PAGE.exists() else ""
    return tables_there() if f"Measured at commit `{commit}`." in said else {}


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


def one_commit(measured: Sequence[MeasuredFigures]) -> str:
    """The commit of all; ends the command where there are several."""
    parts: dict[str, dict[str, None]] = {}
    for found in measured:
        parts.setdefault(found.commit, {})[found.part] = None
    if len(parts) > 1:
        listed = "; ".join(f"{', '.join(names)} at {commit}" for commit, names in parts.items())
        refuse(f"parts of different commits make no page: {listed}: measure them at one, `make acceptance`")
    return next(iter(parts))


def figures_of(part: str, measured: Sequence[MeasuredFigures]) -> FigureTable:
    """All figures of a part, in the order of its tasks."""
    figures = FigureTable()
    for found in measured:
        if found.part == part:
            figures.extend(found.figures)
    return figures


def _part_text(name: str, part: Part, tables: Tables) -> str:
    """A part of the page: how to read it, the tables that it shows, where the others are."""
    checks = _checks(tables)
    reached = f" {sum(map(kept, checks))} of {len(checks)} goals are kept." if checks else ""
    links = ", ".join(f"[{one}]({PAGE.stem}/{name}-{one}.csv)" for one in tables)
    shown = [
        table(*_head_and_rows([row[:columns] for row in tables[one]]))
        for one, columns in part.shown.items()
        if one in tables
    ]
    command = f"`python -m scripts.acceptance.run {name}`:{reached} {links}.\n"
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
