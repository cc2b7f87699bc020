"""Rows, documents and tables."""

from __future__ import annotations

import math

from mark.cli.offline.reproduce import STUDIES as OFFERED
from mark.studies.registry import STUDIES
from mark.studies.study import Row, Study, View


def a_study(ours: float | None) -> Study:
    row = Row((("model", "m"),), "total_usd", ours, published=2.0, notes=("n [x]",))
    view = View(title="t", index=("model",), quantities=("total_usd", "absent"))
    return Study(name="s", title="S", rows=(row,), assumptions=("a",), views=(view,))


def test_the_command_names_every_study() -> None:
    assert tuple(STUDIES) == OFFERED


def test_what_is_not_finite_is_null() -> None:
    for value in (math.nan, math.inf, None):
        assert a_study(value).document()["rows"][0]["ours"] is None


def test_document() -> None:
    assert a_study(1.0).document() == {
        "study": "s",
        "rows": [
            {
                "model": "m",
                "quantity": "total_usd",
                "unit": "USD",
                "ours": 1.0,
                "published": 2.0,
                "claim": None,
                "notes": ["n [x]"],
            }
        ],
        "assumptions": ["a"],
    }


def test_table_shows_ours_beside_published() -> None:
    (table,) = a_study(1.0).tables()
    assert [list(column.cells) for column in table.columns] == [["m"], ["1.00 (2.00)"], [""]]
    assert table.caption == "- m: n \\[x]"


def test_rows_of_another_index_stay_out() -> None:
    study = a_study(1.0)
    other = Row((("model", "m"), ("minute", 1)), "total_usd", 9.0)
    (table,) = Study(name="s", title="S", rows=(*study.rows, other), assumptions=(), views=study.views).tables()
    assert table.row_count == 1
