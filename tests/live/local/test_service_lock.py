"""One service a folder: who holds it is named, and a lock is never stale."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.live.commands import up
from mark.live.commands.down import bring_down
from mark.live.local import service_lock
from mark.live.local.run_dir import RunFolder, find_known
from mark.live.local.service_lock import ServiceLock, lock_holder
from mark.service_spec import ServiceSpec
from tests.waiting import until

WAIT = "import sys; sys.stdin.read()"


def test_the_second_is_told_which_process_holds_which_folder(tmp_path: Path) -> None:
    with ServiceLock(tmp_path, "mine"), pytest.raises(Misconfigured) as refused:
        ServiceLock(tmp_path, "mine")
    assert str(tmp_path) in str(refused.value)
    assert f"process {os.getpid()}" in str(refused.value)
    assert "`mark down --name mine`" in str(refused.value)


def test_it_is_held_on_by_the_process_that_it_was_handed_to(tmp_path: Path) -> None:
    with ServiceLock(tmp_path, "mine") as lock:
        child = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", WAIT], stdin=subprocess.PIPE, pass_fds=(lock.fd,)
        )
        lock.publish(child.pid)
    try:
        assert lock_holder(tmp_path) == child.pid
        with pytest.raises(Misconfigured, match=f"process {child.pid} holds"):
            ServiceLock(tmp_path, "mine")
    finally:
        child.kill()
        child.communicate()
    assert lock_holder(tmp_path) is None
    ServiceLock(tmp_path, "mine").close()


def test_what_starts_is_found_by_status_and_ended_by_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK_STATE", str(tmp_path))
    folder = RunFolder.of("mine")
    with folder.lock("mine") as lock:
        child = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", WAIT], stdin=subprocess.PIPE, pass_fds=(lock.fd,)
        )
        lock.publish(child.pid)
    try:
        with pytest.raises(Misconfigured, match=f"still starting .process {child.pid} "):
            find_known("mine")
        bring_down("mine")
        until(lambda: child.poll() is not None)
    finally:
        child.kill()
        child.communicate()
    with pytest.raises(Misconfigured, match="no service named mine is up"):
        bring_down("mine")


HOPELESS = Settings.model_validate({"service": {"name": "mine", "serve": [{"model": "no-such-model"}]}})


def test_a_start_that_is_refused_leaves_nothing_that_it_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK_STATE", str(tmp_path / "state" / "mark"))
    with pytest.raises(Misconfigured, match="no-such-model"):
        up.start(HOPELESS, hold=False, yes=True)
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_is_refused_leaves_an_earlier_life_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK_STATE", str(tmp_path))
    folder = RunFolder.of("mine")
    earlier = Settings.model_validate({"service": {"name": "mine"}})
    with folder.lock("mine"):
        folder.create(earlier, ServiceSpec(name="mine", models=()))
        folder.fail("out of memory", ())
    with pytest.raises(Misconfigured, match="no-such-model"):
        up.start(HOPELESS, hold=False, yes=True)
    assert folder.settings() == earlier
    assert folder.failure() == ("out of memory",)
    assert folder.logs.is_dir()


def test_who_waited_for_a_folder_that_was_removed_makes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK_STATE", str(tmp_path / "state"))
    first, second = RunFolder.of("mine"), RunFolder.of("mine")
    held = first.lock("mine")

    def refused_meanwhile(_: float) -> None:
        first.unmake()
        held.close()

    monkeypatch.setattr(service_lock.time, "sleep", refused_meanwhile)
    with second.lock("mine") as lock:
        assert lock.is_in(second.path)
        assert second.logs.is_dir()
        assert lock_holder(second.path) == os.getpid()
