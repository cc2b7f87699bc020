"""Gateways and agents that look around often: no test waits for a period of a second."""

from __future__ import annotations

import pytest

from mark.serving.agent import host
from mark.serving.gateway import store_sync


@pytest.fixture(autouse=True)
def _short_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLIENTS_S", "PROBE_S"):
        monkeypatch.setattr(store_sync, name, 0.05)
    monkeypatch.setattr(host, "ANNOUNCE_S", host.FASTEST_S)
    monkeypatch.setattr(host, "FASTEST_LOOK_S", 0.1)
