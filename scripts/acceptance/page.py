"""docs/figures.md, put together of measured figures: `python -m scripts.acceptance.page [FOLDER]`.

All parts are of one commit, or there is no page: figures of different code beside each other compare nothing. A
part that is not wholly measured at that commit is left out, and the page names it. Parts that stand on the page
already, of the same commit, stay: they may have been measured elsewhere.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.acceptance.figures_page import FigureTable
from scripts.acceptance.loads import SEEDS
from scripts.acceptance.parts import PARTS, FigureTask, tasks
from scripts.acceptance.results import RESULTS, ROOT, MeasuredFigures, ResultFolder, refuse

_SEEDS = ", ".join(map(str, SEEDS))
HEAD = f"""# Figures on real traces

Written by `make acceptance` (`MARK_DATA` names the folder that holds the traces); not to be edited. Where nothing
else is said: Inception-v3, 98 % of the requests within 600 ms. A figure is of seed 1, or the mean of the seeds
{_SEEDS} with its range in brackets where they differ. A day is 24 h of the trace, days are counted from 0, all
before the replayed part is history. Serving cost is instances, standbys and Lambda, total adds the overhead
([the words](glossary.md)). The reference serves every request with perfect knowledge; no run that attains its
target serves for less than the floor, and "x floor" is empty for those that do not
or last less than a day ([why two](report.md)). [What the Twitter load is](traces.md#the-twitter-load).
[Which goals are missed, and why](figures-missed.md).
"""
WORLD = "The world is [`typical`](worlds.md) where nothing else is said."
PAGE = ROOT / "docs" / "figures.md"


def main(given: Sequence[str] | None = None) -> None:
    """Write the page; refused where no part is whole, or one is of another commit than the others."""
    arguments = sys.argv[1:] if given is None else given
    folder = ResultFolder(Path(arguments[0]) if arguments else RESULTS)
    measured = {task: folder.find(task.part, task.label) for task in tasks()}
    text = page_text(measured, page_before())
    if text is None:
        missing = ", ".join(missing_parts(measured))
        refuse(f"no part is measured: {missing}: run `make acceptance`, it goes on from what is there")
    PAGE.write_text(text)


def missing_parts(measured: Mapping[FigureTask, MeasuredFigures | None]) -> list[str]:
    """Parts with a task that has no figures, and how many such."""
    listed = [task.part for task in measured]
    lacking = [task.part for task, found in measured.items() if found is None]
    return [f"{part} ({lacking.count(part)} of {listed.count(part)} tasks)" for part in dict.fromkeys(lacking)]


def page_text(measured: Mapping[FigureTask, MeasuredFigures | None], before: str = "") -> str | None:
    """The page of the parts that are whole, None without any; ends the command where commits differ.

    before: the page as it was. Its parts of the same commit stay where they are not measured anew.
    """
    lacking = {task.part for task, found in measured.items() if found is None}
    whole = [found for task, found in measured.items() if found is not None and task.part not in lacking]
    if not whole:
        return None
    commit = one_commit(whole)
    kept = parts_on(before, commit)
    texts = {
        name: part.text(part.completed(figures_of(name, whole))) if name not in lacking else kept[name]
        for name, part in PARTS.items()
        if name not in lacking or name in kept
    }
    marked = (f"<!-- {name} -->\n\n{text.strip()}\n\n<!-- end of {name} -->\n" for name, text in texts.items())
    missing = missing_parts({task: found for task, found in measured.items() if task.part not in texts})
    said = f" Not measured at it, and so not here: {', '.join(missing)}." if missing else ""
    return "\n".join([HEAD, f"Measured at commit `{commit}`. {WORLD}{said}\n", *marked])


def page_before() -> str:
    """The page as it is; empty where there is none."""
    return PAGE.read_text() if PAGE.exists() else ""


def parts_on(page: str, commit: str) -> dict[str, str]:
    """The texts of the parts of a page that was measured at that commit; none of another page."""
    if f"Measured at commit `{commit}`." not in page:
        return {}
    found = re.findall(r"<!-- (\w+) -->\n(.*?)\n<!-- end of \1 -->", page, re.DOTALL)
    return dict(found)


def misses_on(part: str) -> list[str]:
    """Figures that miss, by the text of a part: the rows of its table of checks."""
    return re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \| \*\*no\*\* \|$", part, re.MULTILINE)


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


if __name__ == "__main__":
    main()
