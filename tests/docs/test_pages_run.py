"""Every block of every page is followed as a reader would, in its order, or says why not (`pages.py`).

docs/cli.md is generated from the commands' help, whose examples tests/cli/test_docs.py runs, and
docs/python-reference.md from docstrings, whose examples tests/test_api.py runs. READMEs of examples/
are followed by tests/examples and tests/end_to_end/test_examples.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.conftest import SHARE
from tests.docs.pages import HOUSE, blocks
from tests.docs.reader import reading

ELSEWHERE = {"cli.md", "python-reference.md"}
PAGES = [
    *sorted(HOUSE.glob("*.md")),
    *(page for page in sorted((HOUSE / "docs").rglob("*.md")) if page.name not in ELSEWHERE),
]
WITH_BLOCKS = [page for page in PAGES if any(block.is_of_a_reader for block in blocks(page))]


def ids(page: Path) -> str:
    return str(page.relative_to(HOUSE))


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=ids)
def test_every_block_of_the_page_is_run_or_says_why_not(page: Path) -> None:
    complaints = [f"line {block.line}: {block.complaint}" for block in blocks(page) if block.complaint]

    assert complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=ids)
def test_the_page_can_be_followed(page: Path, tmp_path: Path, record_property: pytest.RecordProperty) -> None:
    found = blocks(page)
    mine = [block for block in found if block.is_of_a_reader]
    left_out = sum(block.left_out is not None for block in mine)
    record_property(SHARE, f"{ids(page)}: {left_out} of {len(mine)} blocks are not run")
    with reading(tmp_path) as reader:
        for block in found:
            reader.follow(block)
