"""docs/studies.md, every published figure beside ours: `python -m scripts.acceptance.studies [STUDY...]`.

Measures the studies that are named, by default those with a row that is not of this commit, and writes each at
once to docs/studies.csv. The page is made of that file, of the papers' figures (`mark/studies/figures.py`), and of
the names of the studies: one that is new stands there without figures until it is measured.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mark.config.settings import Settings
from mark.offline.reproduce import study_context
from mark.studies.figures import PAPERS, FigureRow, covered, figure_rows
from mark.studies.registry import STUDIES
from mark.studies.study import Row, Study, number_text
from scripts.acceptance.figures_page import table
from scripts.acceptance.loads import AZURE, TWITTER, WORLD_CUP, data_folder
from scripts.acceptance.results import ROOT, clean_commit, refuse

PAGE, MEASURED = ROOT / "docs" / "studies.md", ROOT / "docs" / "studies.csv"
TRACES = {
    "mark-table5": TWITTER,
    "mark-ratio": TWITTER,
    "superserve-fig10": TWITTER,
    "superserve-loads": WORLD_CUP,
}
"""Traces that studies are measured with; every study of Fang et al. needs days."""
OTHERS = {
    "fang-loads": (TWITTER, *AZURE.values(), "alibaba_lora_requests_1min.csv.gz"),
    "superserve-loads": (TWITTER, AZURE["chat"]),
}
"""Further traces that a study judges on."""
LISTED = 4
"""So many values of a quantity are listed; of more the least and the greatest."""
HEAD = """<!-- Written by `make docs` from docs/studies.csv and mark/studies; edit these, not this page. -->

# Published figures beside ours

For you if you want to know whether a paper's result holds here. `mark reproduce STUDY` repeats a row and prints
its numbers and assumptions. `make acceptance` repeats every row. Seconds are of two cores, shared with other work.
*Low to high* is over models, systems or cases. [What MArk has of each paper](papers.md).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """The cells beside a figure: published and ours as text, seconds that its study took, and the commit."""

    paper: str
    name: str
    published: str
    ours: str
    seconds: str
    commit: str


def main(given: Sequence[str] | None = None) -> None:
    """Measure studies, and write the page."""
    asked = sys.argv[1:] if given is None else given
    unknown = [name for name in asked if name not in STUDIES]
    if unknown:
        refuse(f"no study {unknown[0]}: there are {', '.join(STUDIES)}")
    commit, rows = clean_commit(), figure_rows(STUDIES)
    for name in asked or _not_of(commit, rows):
        began = time.monotonic()
        others = [data_folder() / one for one in OTHERS.get(name, ())]
        study = STUDIES[name](study_context(_settings(name), others=others))
        took_s = time.monotonic() - began
        found = {**measured(), **summaries(study, rows, f"{took_s:.0f}", commit)}
        _write(found.values())
        PAGE.write_text(page(found), encoding="utf-8")
        print(f"{name}: {took_s:.0f} s", flush=True)


def trace_of(study: str) -> str | None:
    """The trace that a study is measured with; None for the load that it makes."""
    return TRACES.get(study, WORLD_CUP if study.startswith("fang-") else None)


def _settings(study: str) -> Settings:
    trace = trace_of(study)
    return Settings.model_validate({"trace": {"file": str(data_folder() / trace)}} if trace else {})


def _not_of(commit: str, rows: Iterable[FigureRow]) -> list[str]:
    there = measured()
    lacking = [row.study for row in rows if _key(row) not in there or there[_key(row)].commit != commit]
    return list(dict.fromkeys(lacking))


def summaries(
    study: Study, rows: Iterable[FigureRow], seconds: str, commit: str
) -> dict[tuple[str, str], MeasuredRow]:
    """The cells of a study beside each of its figures."""
    found = {}
    for row in rows:
        if row.study == study.name:
            published, ours = _beside(row, study.rows)
            found[_key(row)] = MeasuredRow(
                paper=row.paper, name=row.name, published=published, ours=ours, seconds=seconds, commit=commit
            )
    return found


def _key(row: FigureRow) -> tuple[str, str]:
    return row.paper, row.name


def _beside(figure: FigureRow, rows: Iterable[Row]) -> tuple[str, str]:
    """Published and ours, as text. Rows with one claim, or with published numbers, are one group a quantity."""
    groups: dict[tuple[str, str | None], list[Row]] = {}
    for row in rows:
        if figure.shows(row) and row.ours is not None:
            claim = row.claim if row.published is None else None
            groups.setdefault((row.quantity, claim), []).append(row)
    claims: dict[str, None] = {}
    ours = []
    for (quantity, claim), many in groups.items():
        label = quantity.replace("_", " ")
        unit = many[0].shown_unit
        numbers = [row.published for row in many if row.published is not None]
        if numbers:
            claims[f"{label} {_values(numbers, unit)}"] = None
        elif claim is not None:
            claims[claim] = None
        ours.append(f"{label} {_values([row.ours for row in many if row.ours is not None], unit)}")
    return "; ".join(claims), "; ".join(ours)


def _values(values: Sequence[float], unit: str) -> str:
    texts = [number_text(value, unit) for value in values]
    if len(texts) <= LISTED:
        return ", ".join(texts)
    low, high = number_text(min(values), unit), number_text(max(values), unit)
    return low if low == high else f"{low} to {high}"


def measured() -> dict[tuple[str, str], MeasuredRow]:
    """The rows that are measured."""
    if not MEASURED.exists():
        return {}
    with MEASURED.open(newline="", encoding="utf-8") as file:
        rows = [MeasuredRow(**row) for row in csv.DictReader(file)]
    return {(row.paper, row.name): row for row in rows}


def _write(rows: Iterable[MeasuredRow]) -> None:
    """The file, in the order of the page; rows of studies that are gone are left out."""
    order = {_key(row): place for place, row in enumerate(figure_rows(STUDIES))}
    kept = sorted(
        (row for row in rows if (row.paper, row.name) in order), key=lambda row: order[row.paper, row.name]
    )
    with MEASURED.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(MeasuredRow.__slots__)
        writer.writerows([getattr(row, name) for name in MeasuredRow.__slots__] for row in kept)


def page(found: Mapping[tuple[str, str], MeasuredRow]) -> str:
    """The page."""
    rows = figure_rows(STUDIES)
    return "\n".join(
        [HEAD, *(_paper_text(key, [row for row in rows if row.paper == key], found) for key in PAPERS)]
    )


def _paper_text(key: str, rows: Sequence[FigureRow], found: Mapping[tuple[str, str], MeasuredRow]) -> str:
    paper = PAPERS[key]
    reasons: dict[str, list[str]] = {}
    for name, reason in paper.left_out.items():
        if not covered(name, rows):
            reasons.setdefault(reason, []).append(name)
    left_out = "".join(f"\n- {', '.join(names)}: {reason}" for reason, names in reasons.items())
    cells = [_cells(row, found.get(_key(row))) for row in rows]
    head = ("", "published", "ours", "what differs", "command", "s")
    parts = [f"## {paper.title}\n", f"{paper.verdict}\n", table(head, cells)]
    return "\n".join([*parts, f"Without a row:\n{left_out}\n"] if left_out else parts)


def _cells(row: FigureRow, found: MeasuredRow | None) -> tuple[str, ...]:
    trace = trace_of(row.study)
    traces = f" --trace {trace}" if trace else ""
    traces += "".join(f" --others {one}" for one in OTHERS.get(row.study, ()))
    command = f"`mark reproduce {row.study}{traces}`"
    differs = row.differs or "see what the command prints"
    if found is None:
        return row.name, "", "not measured", differs, command, ""
    published = found.published or ("drawn only" if row.is_in_paper else "not in the paper")
    return row.name, published, found.ours, differs, command, found.seconds


if __name__ == "__main__":
    main()
