"""The command line under test."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path

import pytest

from mark.cli.main import run
from mark.report import page
from mark.simulator.traces.generators import constant
from mark.simulator.traces.trace import write_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    out: str
    err: str


Mark = Callable[..., Answer]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays with --out write an empty page: to draw it takes longer than most replays."""
    monkeypatch.setattr(page, "render_report", lambda *_, **__: "")


@pytest.fixture
def mark(tmp_path, monkeypatch, capsys) -> Mark:
    """Runs one command as the shell would, in a folder of its own that holds `load.csv.gz`, 15 min of 20 rps."""
    monkeypatch.setenv("MARK_CACHE", str(Path(tempfile.gettempdir()) / "mark-test-engine"))
    monkeypatch.chdir(tmp_path)
    write_trace(constant(20, duration_s=900, seed=1), tmp_path / "load.csv.gz")

    def invoke(*arguments: str) -> Answer:
        capsys.readouterr()
        status = Context().run(run, list(arguments))  # what other tests left in theirs is not of this command
        said = capsys.readouterr()
        return Answer(status=status, out=said.out, err=said.err)

    return invoke
