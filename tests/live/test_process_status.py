"""What the supervisor tells of its processes: by the service's clock, and only what has changed."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from mark.domain.clock import ClockAnchor
from mark.live.local.process_watch import ProcessStatus
from mark.store.published_status import PROCESSES, ProcessesStatus, RestartStatus

STANDS_AT = 1_800_000_000.0


class Store:
    """Documents, and a clock that stands; how often something was written."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.written = 0

    def clock(self) -> ClockAnchor:
        return ClockAnchor(wall_at=0.0, service_at=STANDS_AT, speed=0.0)

    def status(self, name: str) -> Any:
        return self.kept.get(name)

    def put_status(self, name: str, document: Any) -> None:
        self.kept[name] = document
        self.written += 1


def test_instants_are_the_services_and_what_has_not_changed_is_told_once() -> None:
    store: Any = Store()
    told, now = ProcessStatus(), time.monotonic()
    restarts = {
        "gateway-0": RestartStatus(),
        "aws": RestartStatus(count=2, status=-9, why="silent for 15 s", at=now),
    }
    upkeep: Any = SimpleNamespace(missing_since=now, why="away")
    for _ in range(2):
        told.publish(store, restarts, down=["gateway-0", "aws"], upkeep=upkeep, wall_jump_s=-30.0)
    assert store.written == 1
    found = PROCESSES.read(store)
    assert found is not None
    assert found.restarts["gateway-0"] == RestartStatus()
    assert (found.restarts["aws"].count, found.restarts["aws"].status) == (2, -9)
    assert found.restarts["aws"].at == pytest.approx(STANDS_AT, abs=60.0)
    assert found.account is not None
    assert found.account.since == pytest.approx(STANDS_AT, abs=60.0)
    assert (found.down, found.clock_set_by_s) == (("aws", "gateway-0"), -30.0)

    upkeep.missing_since = None
    told.publish(store, {}, down=[], upkeep=upkeep, wall_jump_s=0.0)
    assert PROCESSES.read(store) == ProcessesStatus()
