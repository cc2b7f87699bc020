"""Who names a service that is not up here is told which are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.live.commands.down import bring_down
from mark.live.local.run_dir import RunFolder, find_known, started_at
from mark.live.local.running import Running
from mark.live.service_session import service_store

OTHER = Settings.model_validate({"service": {"name": "mark"}})


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK_STATE", str(tmp_path))


def is_up(name: str) -> None:
    """A service of that name whose process is this one."""
    folder = RunFolder.of(name)
    folder.path.mkdir(parents=True)
    folder.write(Running(name=name, pid=os.getpid(), started=started_at(os.getpid())))


def test_the_services_that_are_up_are_named() -> None:
    is_up("doubler")
    for command in (
        lambda: service_store(OTHER),
        lambda: bring_down("mark"),
        lambda: find_known("mark"),
    ):
        with pytest.raises(
            Misconfigured, match=r"no service named mark is up on this machine; running here: doubler \(--name\)"
        ):
            command()


def test_without_any_it_says_how_to_reach_one() -> None:
    with pytest.raises(Misconfigured, match=r"up on this machine; for one elsewhere name its store"):
        service_store(OTHER)
    with pytest.raises(Misconfigured, match=r"up on this machine; `mark up --detach` starts one"):
        find_known("mark")
