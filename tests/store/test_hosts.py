"""Which instant the processes of a host count from: the first one's, also where the store takes no writes."""

from __future__ import annotations

import asyncio

import pytest

from mark.domain.errors import RetryLater
from mark.store.connect import Link, connect_async
from mark.store.data_plane import AgentStore, GatewayStore
from mark.store.embedded import EmbeddedRedis
from mark.store.service import ServiceStore

FULL = "MISCONF Errors writing to the AOF file: No space left on device"


def test_the_first_process_says_it_and_all_others_follow(
    redis: EmbeddedRedis, store: ServiceStore, service: str
) -> None:
    assert store.share_wall(1_800_000_000.123456) == 1_800_000_000.123456
    assert store.share_wall(5.0) == 1_800_000_000.123456

    async def ask() -> list[float]:
        link = connect_async(redis.url)
        found = [await kind(link, service).share_wall(7.0) for kind in (GatewayStore, AgentStore)]
        await link.aclose()
        return found

    assert asyncio.run(ask()) == [1_800_000_000.123456] * 2


def test_a_service_that_begins_reads_the_clock_anew(store: ServiceStore) -> None:
    store.share_wall(5.0)
    store.forget_wall()
    assert store.share_wall(7.0) == 7.0


def test_a_store_that_takes_no_writes_tells_it_all_the_same(
    link: Link, store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.share_wall(5.0)
    call = link.call

    def read_only(*words: str | bytes | float) -> object:
        if words[0] != "ZSCORE":
            raise RetryLater(FULL)
        return call(*words)

    def none(*_: object) -> None:
        raise RetryLater(FULL)

    monkeypatch.setattr(link, "call", read_only)
    monkeypatch.setattr(link, "run", none)
    assert store.share_wall(7.0) == 5.0
