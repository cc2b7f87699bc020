"""After a run of all services: each grant of the roles that acted was used, or has its reason (`grants.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import grants

HERE = Path(__file__).parent
ALL = ("", "not slow")
"""Marks of a run that has all of them: slow tests use no grant that others do not."""
LEFT: pytest.StashKey[list[str]] = pytest.StashKey()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of all services that left a grant unused; a worker of pytest-xdist passes on what it saw."""
    worker = getattr(session.config, "workeroutput", None)
    if worker is not None:
        worker["grants"] = sorted(grants.USED)
    elif session.exitstatus == pytest.ExitCode.OK and _is_whole(session.config):
        assert grants.USED, "no service said what it used"
        left = [f"{role}: {statement} {action}" for role, statement, action in grants.unused()]
        session.config.stash[LEFT] = left
        if left:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker saw."""
    for role, statement, action in getattr(node, "workeroutput", {}).get("grants", ()):
        grants.USED.add((role, statement, action))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the grants that nothing used."""
    for grant in terminalreporter.config.stash.get(LEFT, []):
        terminalreporter.write_line(f"granted, and used by no live service: {grant}", red=True)


def _is_whole(config: pytest.Config) -> bool:
    """True where no test of this folder was left out by its name or place."""
    option, began = config.option, config.invocation_params.dir
    chosen = (
        option.collectonly
        or getattr(option, "lf", False)
        or option.keyword
        or option.deselect
        or option.ignore
        or option.ignore_glob
    )
    named = any(HERE.is_relative_to((began / place).resolve()) for place in config.args)
    return named and not chosen and option.markexpr in ALL
