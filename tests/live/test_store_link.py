"""A node's processes find the store of the node that leads, by the URL that the templates give them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from mark.aws.session import Aws
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured, RetryLater
from mark.domain.fleet.lease import TABLE_LEASE
from mark.live.control.leadership.node import StoreNode
from mark.live.local.running import Running
from mark.live.processes import cloud_controller
from mark.live.store_link import open_async_link, open_link
from mark.store.embedded import EmbeddedRedis
from mark.store.service import ServiceStore
from tests.aws.builders import aws
from tests.aws.lease_tables import TABLE, make_table

ENVIRONMENT = {"MARK_ZONE": "Z1", "MARK_HOST": "shop.example.org"}


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        made = aws()
        make_table(made.tables)
        yield made
        made.close()


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with EmbeddedRedis(tmp_path, options={"port": str(port), "bind": "127.0.0.1"}):
        yield f"redis+lease://{TABLE}.us-east-1:{port}"


def controller(url: str, monkeypatch: pytest.MonkeyPatch, address: str | None) -> tuple[ServiceStore, StoreNode]:
    monkeypatch.setattr(cloud_controller, "own_address", lambda _: address)
    running = Running(name="shop", pid=1, store=url)
    store, node = cloud_controller._store(Settings(), running, ENVIRONMENT, "me", ())
    assert node is not None
    return store, node


@pytest.mark.usefixtures("there")
def test_who_leads_says_where_the_store_is(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    link = open_link(url)
    with pytest.raises(RetryLater, match="no controller has led yet"):
        link.call("PING")
    store, node = controller(url, monkeypatch, "127.0.0.1")
    with pytest.raises(RetryLater):
        store.ping()

    assert node.may_lead(), "nobody has more than this node before the first leader"
    lease = store.leases.acquire("me", TABLE_LEASE.ttl_s)
    assert lease is not None
    node.lead()
    store.take_over(lease, ["m"])
    store.put_status("something", {"a": 1})
    assert ServiceStore(link, "shop").status("something") == {"a": 1}

    async def asked() -> Any:
        there = open_async_link(url)
        try:
            return await there.call("PING")
        finally:
            await there.aclose()

    assert asyncio.run(asked()) in (True, b"PONG")
    link.close()


def test_an_agent_is_told_where_the_leader_is_and_asks_no_table(url: str) -> None:
    """No table is there at all: the metadata says it, and the store's failures have it asked again."""
    hosts = ["127.0.0.2", "127.0.0.1"]

    async def asked() -> Any:
        there = open_async_link(url, leader=lambda: hosts.pop(0))
        try:
            with pytest.raises(RetryLater, match="did not answer"):
                await there.call("PING")
            return await there.call("PING")
        finally:
            await there.aclose()

    assert asyncio.run(asked()) in (True, b"PONG")
    assert hosts == []


@pytest.mark.usefixtures("there")
def test_a_node_without_an_address_says_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RetryLater, match="does not say which address this node has"):
        controller(url, monkeypatch, None)


def test_any_other_store_is_where_its_url_says(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as redis:
        link = open_link(redis.url)
        ServiceStore(link, "shop").ping()
        link.close()
        running = Running(name="shop", pid=1, store=redis.url)
        _, node = cloud_controller._store(Settings(), running, {}, "me", ())
        assert node is None
    with pytest.raises(Misconfigured, match="the store's URL is wrong"):
        open_link("http+lease://table.us-east-1")
