"""Measured figures as files, one a task: kept as soon as they are there, each with the commit that was measured.

Figures of a tree with changes are nobody's: no commit names what was measured, so nothing is measured there. Only
what figures are made of counts: a commit of docs or tests leaves them as they are.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from pydantic import TypeAdapter

from scripts.acceptance.figures_page import FigureTable

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "out" / "figures"
MEASURED = ("constraints.txt", "mark", "models", "predictors", "pyproject.toml", "scripts/acceptance")
"""Files and folders that figures are made of."""
REFUSED = 2
"""Exit status where nothing can be measured, or put together, as things are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFigures:
    """The figures of one task, and the commit of the code that gave them."""

    commit: str
    part: str
    task: str
    figures: FigureTable


_FORM = TypeAdapter(MeasuredFigures)


@dataclass(frozen=True, slots=True)
class ResultFolder:
    """The files of all tasks."""

    path: Path = RESULTS

    def find(self, part: str, task: str) -> MeasuredFigures | None:
        """The figures of a task; None where they are not there, or are of another form."""
        try:
            found = _FORM.validate_python(json.loads(self._file(part, task).read_text()))
        except (OSError, ValueError):
            return None
        return found if (found.part, found.task) == (part, task) else None

    def keep(self, measured: MeasuredFigures) -> None:
        """Write the figures of a task, whole or not at all."""
        file = self._file(measured.part, measured.task)
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(measured), indent=1) + "\n")
        draft.replace(file)

    def forecasts(self, commit: str) -> Path:
        """The folder of forecasts that tasks share; what another commit's were is forgotten."""
        own = self.path / "forecasts" / commit
        for folder in own.parent.glob("*"):
            if folder != own:
                shutil.rmtree(folder)
        own.mkdir(parents=True, exist_ok=True)
        return own

    def _file(self, part: str, task: str) -> Path:
        return self.path / (re.sub(r"[^a-z0-9]+", "-", f"{part} {task}".lower()).strip("-") + ".json")


def clean_commit(root: Path = ROOT, paths: Sequence[str] = MEASURED) -> str:
    """The last commit that changed what is measured; ends the command where more has changed, or nobody knows."""
    commit = _git(root, "log", "-1", "--abbrev=12", "--format=%h", "--", *paths)
    changed = _git(root, "status", "--porcelain", "--", *paths)
    if not commit or changed is None:
        refuse("figures name the commit that they were measured at: measure them in a git checkout")
    if changed:
        names = [line[3:] for line in changed.splitlines()]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        refuse(f"{names[0]}{more} changed since the last commit: commit first, figures name what they measured")
    return commit


def refuse(message: str) -> NoReturn:
    """End the command with one line."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(REFUSED)


def _git(root: Path, *words: str) -> str | None:
    """The answer of git, without the white space around it; None where it fails."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)  # noqa: S603, S607
    return done.stdout.rstrip() if done.returncode == 0 else None
