"""Clients in the store: no change loses one that another command makes meanwhile; the newer directory counts."""

from __future__ import annotations

import pytest

from mark.domain.clients import Client, ClientDirectory, HashedKey
from mark.domain.errors import Misconfigured, RetryLater
from mark.store.service import ServiceStore


def added(name: str, known: ClientDirectory) -> ClientDirectory:
    return known.created(Client(name=name, keys=(HashedKey(sha256=name),)), models=())


def names(directory: ClientDirectory) -> list[str]:
    return [client.name for client in directory.clients]


def test_two_commands_at_once_lose_neither_client(store: ServiceStore) -> None:
    def meanwhile(known: ClientDirectory) -> ClientDirectory:
        if not known.clients:
            store.clients.change(lambda other: added("first", other))
        return added("second", known)

    changed = store.clients.change(meanwhile)
    assert names(changed) == ["first", "second"]
    assert store.clients.read() == changed


def test_a_change_that_never_comes_through_says_so(store: ServiceStore) -> None:
    def busy(known: ClientDirectory) -> ClientDirectory:
        store.clients.change(lambda other: added(f"c{other.version}", other))
        return added("mine", known)

    with pytest.raises(RetryLater, match="try again"):
        store.clients.change(busy)


def test_a_refused_change_changes_nothing(store: ServiceStore) -> None:
    store.clients.change(lambda known: added("shop", known))
    with pytest.raises(Misconfigured):
        store.clients.change(lambda known: added("shop", known))
    assert store.clients.read().version == 1


def test_what_a_store_has_lost_is_put_back_beside_what_it_got_since(store: ServiceStore) -> None:
    old = store.clients.change(lambda known: added("shop", known))
    new = store.clients.change(lambda known: known.revoked("shop", at=1.0))
    store.clients.restore(old)
    assert store.clients.read() == new
    newer = added("more", new)
    store.clients.restore(newer)
    assert store.clients.read() == newer
    parted = added("other", old)
    assert parted.version == new.version, "a store that lost the revocation, and got a client"
    assert parted.client("shop").keys
    store.clients.restore(parted)
    assert names(store.clients.read()) == ["more", "other", "shop"]
    assert store.clients.read().client("shop").is_revoked
