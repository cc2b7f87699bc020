"""The directory of clients in the store: read by all, changed by people's commands, one after the other.

A change is written only where nothing else was meanwhile, so that two commands at once lose neither. In the lean
shape the controller that acts keeps a copy where no node's loss takes it along. Directories that parted, because a
store lost changes and got others, are merged: nobody's revocation is undone.
"""

from __future__ import annotations

from collections.abc import Callable

from mark.domain.clients import ClientDirectory
from mark.domain.errors import RetryLater
from mark.domain.fleet.lease import Lease
from mark.ports import JournalTail
from mark.store.codec import CLIENTS
from mark.store.connect import Link
from mark.store.keys import Keys
from mark.store.scripts import SWAP

TRIES = 20
"""Changes by others that one change gives way to."""


class StoredClients:
    """The clients of one service. `tail`: where a copy of them is kept, None where the store alone has them."""

    def __init__(self, link: Link, keys: Keys, tail: JournalTail | None) -> None:
        self._link, self._key, self._tail = link, keys.of("clients"), tail
        self._copied: bytes | None = None

    def read(self) -> ClientDirectory:
        """All clients; version 0 where there never was one."""
        return clients_of(self._link.call("GET", self._key))

    def change(self, change: Callable[[ClientDirectory], ClientDirectory]) -> ClientDirectory:
        """Put `change(clients)` in their place; return it. RetryLater where others change them all the time."""
        for _ in range(TRIES):
            kept = self._link.call("GET", self._key)
            changed = change(clients_of(kept))
            if self._link.run(SWAP, (self._key,), (kept or b"", CLIENTS.encode(changed))):
                return changed
        raise RetryLater("the clients are changed by others all the time; try again")

    def restore(self, other: ClientDirectory) -> ClientDirectory:
        """Put back what these have and the store has lost; return the clients then."""
        return self.change(lambda known: known.merged(other))

    def restore_copy(self) -> None:
        """Put back what the copy has, where there is one."""
        copy = None if self._tail is None else self._tail.clients()
        if copy is not None:
            self.restore(clients_of(copy))

    def copy(self, lease: Lease) -> None:
        """Keep a copy of what is new; put back what the store has lost of it. LeaseLost where another leads."""
        data = self._link.call("GET", self._key)
        if self._tail is None or data == self._copied:
            return
        if self._copied is not None:
            data = CLIENTS.encode(self.restore(clients_of(self._copied)))
        self._tail.put_clients(lease, data)
        self._copied = data


def clients_of(data: bytes | None) -> ClientDirectory:
    """The stored clients; none where nothing is stored."""
    return ClientDirectory() if data is None else CLIENTS.decode(data)
