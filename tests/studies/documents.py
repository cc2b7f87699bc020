"""What the document of every study must be."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from rich.console import Console

from mark.studies.study import Study

ALWAYS = {"quantity", "unit", "ours", "published", "claim", "notes"}


def check_study(study: Study) -> dict[str, Any]:
    """The document, after all that holds for every study was asserted of it."""
    document = study.document()
    assert set(document) == {"study", "rows", "assumptions"}
    assert document["study"] == study.name
    json.dumps(document, allow_nan=False)
    assert document["rows"]
    assert document["assumptions"]
    for row in document["rows"]:
        assert set(row) > ALWAYS
        assert isinstance(row["ours"], int | float | None)
        assert isinstance(row["published"], int | float | None)
        assert row["claim"] is None or row["claim"]
    keys = [tuple((k, v) for k, v in row.items() if k not in ALWAYS - {"quantity"}) for row in document["rows"]]
    assert len(keys) == len(set(keys)), "one row per case and quantity"
    console = Console(width=200, record=True, file=io.StringIO())
    for table in study.tables():
        assert table.row_count
        console.print(table)
    assert not re.search(r"\bnan\b", console.export_text(), re.IGNORECASE)
    return document


def value(document: dict[str, Any], quantity: str, **where: str | int) -> Any:
    """`ours` of the one row of that case and quantity."""
    found = [
        row["ours"]
        for row in document["rows"]
        if row["quantity"] == quantity and {k: v for k, v in row.items() if k not in ALWAYS} == where
    ]
    assert len(found) == 1, (quantity, where)
    return found[0]
