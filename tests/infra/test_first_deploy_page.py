"""Commands of docs/deploy.md and of the README: those that the rehearsal runs, and no others."""

from __future__ import annotations

from scripts.rehearsal.page import console_lines
from scripts.rehearsal.trial import BUILDS, DEPLOY, DESTROY, LINES, NOT_RUN, PAGE, SECTION, TRY


def test_the_rehearsal_runs_the_page_s_commands_in_their_order_or_says_why_not() -> None:
    page = console_lines(PAGE, SECTION)
    assert tuple(line for line in page if line.startswith("mark ")) == LINES
    assert set(page) == {*LINES, BUILDS, *NOT_RUN}
    assert all(NOT_RUN.values())


def test_the_readme_has_the_page_s_commands() -> None:
    readme = console_lines("README.md")
    first = readme.index(DEPLOY)
    assert readme[first : first + 3] == (DEPLOY, TRY, DESTROY)
