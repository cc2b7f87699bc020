"""What shared instances are told, in the store."""

from __future__ import annotations

from pathlib import Path

from mark.domain.host_spec import HostSpec, TenantSpec
from mark.live.control.host_driver import LiveHosts
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.service import ServiceStore


def test_what_a_store_has_lost_is_told_again(tmp_path: Path) -> None:
    tenant = TenantSpec(model="m", offering="c5.large", max_batch=2, share_rps=5.0)
    with EmbeddedRedis(tmp_path / "redis") as server:
        store = ServiceStore(connect(server.url), "shop")
        hosts = LiveHosts(store, versions=lambda _: "", shared_rps=lambda _: 0.0)
        hosts.hold("i-0", [tenant])
        store.forget_host("i-0")
        hosts.look()
        hosts.hold("i-0", [tenant])
        assert store.hosts() == {"i-0": HostSpec(tenants=(tenant,))}
