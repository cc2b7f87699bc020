"""What long work says where stderr is no terminal."""

from __future__ import annotations

import time

import pytest

from mark.domain.figures import plural
from mark.report import terminal
from mark.report.terminal import progress, show
from tests.waiting import PATIENCE_S


def test_long_work_says_in_lines_what_it_is_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "LINE_EACH_S", 0.01)
    said, until = "", time.monotonic() + PATIENCE_S
    with progress() as report:
        report("training lstm", 0.25)
        while said.count("training lstm") < 2 and time.monotonic() < until:
            said += capsys.readouterr().err
    lines = said.splitlines()
    assert lines[-1].startswith("note: training lstm, 25 %; ")
    assert lines[-1].endswith(" s so far")
    assert len(lines) >= 2


def test_quick_work_says_nothing_and_no_line_comes_when_it_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as report:
        report("reading", 0.0)
    assert capsys.readouterr() == ("", "")


def test_brackets_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show("set `policies: [lambda-only]` in a[b].yaml")
    assert capsys.readouterr().out == "set `policies: [lambda-only]` in a[b].yaml\n"


@pytest.mark.parametrize(("count", "said"), [(0, "0 instances"), (1, "1 instance"), (1204, "1,204 instances")])
def test_one_is_singular(count: int, said: str) -> None:
    assert plural(count, "instance") == said
