"""The page of studies has a row for every published figure, and is made of what ships."""

from __future__ import annotations

import pytest

from mark.studies.figures import LISTED, PAPERS, FigureRow, covered, figure_rows
from mark.studies.registry import STUDIES
from mark.studies.study import Row, Study
from scripts.acceptance import studies


def test_every_published_figure_has_a_row_or_a_reason() -> None:
    rows = figure_rows(STUDIES)
    without = [
        (key, name)
        for key, paper in PAPERS.items()
        for name in paper.published
        if name not in paper.left_out and not covered(name, [row for row in rows if row.paper == key])
    ]
    assert without == []


def test_a_figure_without_either_is_found() -> None:
    fewer = [name for name in STUDIES if name != "kairos-fig13"]
    listed = [row for row in figure_rows(fewer) if row.study != "kairos-fig13"]
    assert not covered("figure 13", [row for row in listed if row.paper == "kairos"])


def test_every_row_is_of_a_study_and_every_study_has_a_row() -> None:
    rows = figure_rows(STUDIES)
    assert {row.study for row in rows} == set(STUDIES)
    assert len({(row.paper, row.name) for row in rows}) == len(rows)
    for row in LISTED:
        assert row.paper in PAPERS
        assert row.study.startswith(f"{row.paper}-")


@pytest.mark.parametrize(
    ("study", "name"), [("superserve-fig99", "figure 99"), ("superserve-appz", "appendix Z"), ("fang-x", "x")]
)
def test_a_new_study_stands_on_the_page_by_its_name(study: str, name: str) -> None:
    assert FigureRow(paper=study.partition("-")[0], name=name, study=study) in figure_rows([*STUDIES, study])


def test_the_page_that_ships_is_made_of_what_ships() -> None:
    assert studies.PAGE.read_text(encoding="utf-8") == studies.page(studies.measured())


def test_a_row_has_the_numbers_of_its_figure() -> None:
    rows = (
        *(Row((("model", name),), "ratio", ours, published=3.0) for name, ours in (("a", 1.0), ("b", 2.0))),
        *(Row((("model", str(place)),), "qps", float(place), claim="c") for place in range(5)),
        Row((("model", "a"),), "mean_ms", 5.0),
    )
    study = Study(name="mark-x", title="", rows=rows, assumptions=(), views=())
    found = studies.summaries(study, [FigureRow(paper="mark", name="x", study="mark-x")], "7", "abc")
    (row,) = found.values()
    assert row.published == "ratio 3.00, 3.00; c"
    assert row.ours == "ratio 1.00, 2.00; qps 0.0 to 4.0"
    only = FigureRow(paper="mark", name="x", study="mark-x", quantities=("mean_ms",), where={"model": "a"})
    assert studies.summaries(study, [only], "7", "abc")["mark", "x"].ours == "mean ms 5"
