"""A disk that is full: the supervisor's notes fail, are said once and made later; it goes on watching."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
from pathlib import Path
from typing import NoReturn

import pytest

from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.live.local import supervisor
from mark.live.local.run_dir import DOCUMENT, RunFolder
from mark.live.local.supervisor import Supervisor
from mark.service_spec import ServiceSpec
from tests.waiting import until


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setenv("MARK_STATE", str(tmp_path))
    found = RunFolder.of("mark")
    found.lock("mark").close()
    found.create(Settings(), ServiceSpec(name="mark", models=()))
    return found


def fill(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_text(self: Path, *_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write_text)


def test_a_crashed_child_is_started_again_and_noted_when_there_is_space(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Supervisor(folder, hold=False)
    watched._children.start("gateway-0", "tests.live.local.supervised", ["beat"])
    watched._note(processes=watched._pids())
    first = watched._pids()["gateway-0"]
    try:
        with monkeypatch.context() as full, caplog.at_level(logging.WARNING):
            fill(full)
            os.kill(first, signal.SIGKILL)

            def is_back() -> bool:
                watched._watch()
                return watched._pids()["gateway-0"] != first

            until(is_back)
            watched._note()
            watched._note()
        said = [record for record in caplog.records if "document cannot be written" in record.message]
        assert len(said) == 1
        assert "No space left" in said[0].why  # type: ignore[attr-defined]

        def is_noted() -> bool:
            watched._watch()
            document = json.loads((folder.path / DOCUMENT).read_text(encoding="utf-8"))
            return bool(document["processes"] == watched._pids())

        until(is_noted)
    finally:
        watched._children.stop()


def test_a_start_that_fails_on_a_full_disk_ends_with_its_own_error(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_store(*_: object, **__: object) -> NoReturn:
        raise Misconfigured("no such store")

    monkeypatch.setattr(supervisor, "EmbeddedRedis", no_store)
    fill(monkeypatch)
    monkeypatch.setattr(supervisor.signal, "signal", lambda *_: None)
    assert supervisor.supervise(folder.path, hold=False) == 2
    assert folder.failure() == ()
    assert "no such store" in caplog.text
