"""One embedded Redis for all tests here, and a service of its own for each."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mark.store.connect import Link, connect
from mark.store.embedded import EmbeddedRedis
from mark.store.service import ServiceStore
from tests.store.worlds import TTL_S, FakeWorld, RedisWorld, World

_numbers = itertools.count()


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path_factory.mktemp("store")) as server:
        yield server


@pytest.fixture(scope="session")
def link(redis: EmbeddedRedis) -> Iterator[Link]:
    link = connect(redis.url)
    yield link
    link.close()


@pytest.fixture
def service() -> str:
    return f"service-{next(_numbers)}"


@pytest.fixture
def store(link: Link, service: str) -> ServiceStore:
    return ServiceStore(link, service, member_ttl_s=TTL_S)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a cluster of one node, which holds the rules of a cluster all the same."""
    port = _cluster_port()
    options = {"port": str(port), "bind": "127.0.0.1", "cluster-enabled": "yes"}
    with EmbeddedRedis(tmp_path_factory.mktemp("cluster"), options=options) as server:
        direct = connect(server.url)
        direct.call("CLUSTER ADDSLOTS", *range(16384))
        while direct.call("CLUSTER INFO")["cluster_state"] != "ok":
            time.sleep(0.01)
        direct.close()
        yield f"redis+cluster://127.0.0.1:{port}"


def _cluster_port() -> int:
    """A free port for which there is one 10000 higher, the cluster's bus."""
    while True:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        if port < 55_000:
            return port


@pytest.fixture(params=["redis", "cluster", "fake"])
def world(request: pytest.FixtureRequest, service: str) -> Iterator[World]:
    if request.param == "fake":
        yield FakeWorld()
        return
    server = request.getfixturevalue(request.param)
    url = server if request.param == "cluster" else server.url
    link = connect(url)
    yield RedisWorld(ServiceStore(link, service, member_ttl_s=TTL_S), url, service)
    link.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a test's own server keeps its data."""
    return tmp_path / "redis"
