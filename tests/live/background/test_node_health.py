"""What a node tells CloudWatch of itself."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.live.background.node_health import CERTIFICATE, DAY_S, STORE_MEMORY, near_the_end, node_health
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.replication import NodeStore
from tests.store.tls import certificate


@given(st.floats(0.0, 1.5), st.floats(-10.0, 400.0))
def test_only_what_nears_its_end_is_told(share: float, days: float) -> None:
    told = near_the_end(share, 1e9 + days * DAY_S, 1e9)
    assert (STORE_MEMORY in told) == (share >= 0.6)
    assert (CERTIFICATE in told) == (days <= 30.0)
    assert told.get(CERTIFICATE, days) == pytest.approx(days, abs=0.051)


def test_a_node_reads_its_store_and_its_certificate(tmp_path: Path) -> None:
    chain, _ = certificate(tmp_path)
    with EmbeddedRedis(tmp_path / "redis") as server:
        link = connect(server.url)
        store, now = NodeStore(link, 0), time.time()
        assert node_health(store, None, now) == {}
        assert node_health(store, chain, now) == {CERTIFICATE: 0.0}, "it ends within the hour"
        chain.write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
        for unread in (chain, tmp_path / "none.pem"):
            assert node_health(store, unread, now)[CERTIFICATE] < 0, "an alarm rings"
        used = link.call("INFO", "memory")["used_memory"]
        assert store.memory_share == 0.0, "nothing limits it"
        for line in ("maxmemory-policy noeviction", f"maxmemory {used * 5 // 4}"):
            link.call("CONFIG", "SET", *line.split())
        assert node_health(store, None, now)[STORE_MEMORY] == pytest.approx(80.0, abs=5.0)
