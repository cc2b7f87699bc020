"""Child processes: started again after a crash or a silence, counted, and not kept from running by a full disk."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mark.live.local.children import GAP_S, Children
from tests.waiting import until

CHILD = "tests.live.local.supervised"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children take no module from the folder that they are started in; these are the tests' own."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    made = Children(tmp_path)
    yield made
    made.stop()


def test_a_child_that_crashed_is_started_again_and_counted_with_how_it_ended(children: Children) -> None:
    children.start("one", CHILD, ["beat"])
    first = children.pids()["one"]
    os.kill(first, signal.SIGKILL)
    until(lambda: "one" in children.watch())
    assert children.pids()["one"] != first
    ends = children.restarts()["one"]
    assert (ends.count, ends.status, ends.why) == (1, -signal.SIGKILL, "")


def test_an_end_by_itself_is_counted_with_its_exit_status(children: Children) -> None:
    children.start("one", CHILD, ["end", "3"])
    until(lambda: children.watch() or children.restarts()["one"].count > 1)
    assert children.restarts()["one"].status == 3


def test_a_stopped_child_is_replaced(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mark.live.local.children.HEARTBEAT_TIMEOUT_S", 3.0)
    children.start("one", CHILD, ["beat"])
    first = children.pids()["one"]
    until(lambda: children.watch() or children._all["one"].last_beat_at)  # it has beaten once
    os.kill(first, signal.SIGSTOP)
    until(lambda: "one" in children.watch())
    assert children.pids()["one"] != first
    ends = children.restarts()["one"]
    assert (ends.count, ends.status, ends.why) == (1, -signal.SIGKILL, "silent for 3 s")


def test_a_supervisor_that_was_stopped_itself_holds_nobody_s_silence_against_them(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    children.start("one", CHILD, ["beat"])
    until(lambda: children.watch() or children._all["one"].last_beat_at)
    os.kill(children.pids()["one"], signal.SIGSTOP)  # as the whole machine was
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 3600.0)
    assert children.watch() == ()
    assert children.down() == ()
    monkeypatch.setattr(time, "monotonic", lambda: now + 3600.0 + GAP_S - 1.0)
    assert children.watch() == ()
    assert children.down() == ()
    monkeypatch.undo()
    os.kill(children.pids()["one"], signal.SIGCONT)  # it hears that it is to end


def test_a_child_whose_log_cannot_be_opened_runs_all_the_same(tmp_path: Path) -> None:
    children = Children(tmp_path / "missing")
    children.start("one", CHILD, ["beat"])
    try:
        until(lambda: children.watch() or children._all["one"].last_beat_at)
        assert children.restarts()["one"].count == 0
    finally:
        children.stop()


def test_a_child_that_the_kernel_gives_no_process_is_started_later(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    children.start("one", CHILD, ["beat"])
    os.kill(children.pids()["one"], signal.SIGKILL)
    until(lambda: children.down() == ("one",))
    refused = []

    def refuse(*_: object, **__: object) -> None:
        refused.append(1)
        raise OSError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        until(lambda: children.watch() or refused)
    until(lambda: "one" in children.watch())
    assert children.restarts()["one"].count == 1
