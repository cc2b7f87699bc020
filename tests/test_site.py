"""The docs as a site: every page is in its navigation, every link leads to a page, as on GitHub."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.site.pages import HOUSE, site_pages, table_page, with_lists_apart, with_site_links
from tests.waiting import PATIENCE_S

PAGES = {
    "README.md": "index.md",
    "docs/README.md": "pages.md",
    "docs/live.md": "live.md",
    "docs/figures/days-runs.csv": "figures/days-runs.md",
    "docs/decisions": "decisions/index.md",
    "docs/decisions/0018-rooms.md": "decisions/0001-rooms.md",
}


@pytest.mark.parametrize(
    ("source", "link", "turned"),
    [
        ("README.md", "[a](docs/live.md#time)", "[a](live.md#time)"),
        ("README.md", "[a](docs/decisions)", "[a](decisions/index.md)"),
        ("docs/live.md", "[a](README.md)", "[a](pages.md)"),
        ("docs/live.md", "[a](../README.md)", "[a](index.md)"),
        ("docs/decisions/0018-rooms.md", "[a](../live.md)", "[a](../live.md)"),
        ("docs/live.md", "[a](#time), [b](https://example.com/README.md)", None),
        ("docs/live.md", "[a](nowhere.md)", None),
        ("docs/live.md", "[a](figures/days-runs.csv)", "[a](figures/days-runs.md)"),
    ],
)
def test_a_link_goes_to_the_page_that_its_file_became(source: str, link: str, turned: str | None) -> None:
    assert with_site_links(link, source, PAGES) == (turned or link)


def test_a_list_behind_a_paragraph_is_a_list() -> None:
    text = "**So.**\n- one\n  more of it\n- two\n\n```text\nword\n- no list\n```\n"

    assert with_lists_apart(text) == text.replace("**So.**\n", "**So.**\n\n")
    assert with_lists_apart(with_lists_apart(text)) == with_lists_apart(text)


def test_a_table_is_a_page(tmp_path: Path) -> None:
    path = tmp_path / "days-runs.csv"
    path.write_text('load,"a|b"\n"one, two",3\n')

    assert table_page(path).splitlines()[0] == "# Days: runs"
    assert table_page(path).splitlines()[-3:] == ["| load | a\\|b |", "| --- | --- |", "| one, two | 3 |"]


def test_every_page_is_a_file_and_no_two_are_one() -> None:
    pages = site_pages(HOUSE)

    assert all((HOUSE / source).exists() for source in pages)
    files = [page for source, page in pages.items() if (HOUSE / source).is_file()]
    assert len(files) == len(set(files)) > 50


def built(house: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", "scripts/site/mkdocs.yml"],
        cwd=house,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """What the site is made of, in a folder of its own."""
    for source in ("docs", "scripts/site", *(["examples"] if (HOUSE / "examples").is_dir() else [])):
        shutil.copytree(HOUSE / source, tmp_path / source, ignore=shutil.ignore_patterns("__pycache__"))
    for source in site_pages(HOUSE):
        if "/" not in source and (HOUSE / source).is_file():
            shutil.copy(HOUSE / source, tmp_path / source)
    return tmp_path


def test_the_site_builds_and_warns_of_broken_links_alone(house: Path) -> None:
    """Three are put in: whatever else is warned of is wrong on our pages."""
    with (house / "docs" / "live.md").open("a") as page:
        page.write("\n[nowhere](nowhere.md), [none](cli.md#none)\n")
    (house / "docs" / "orphan.md").write_text("# In no navigation\n")
    done = built(house)
    assert done.returncode == 1
    assert (house / "out" / "site" / "index.html").is_file()
    warned = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert len(warned) == 3, done.stderr
    assert all(name in done.stderr for name in ("nowhere.md", "#none", "orphan.md"))
