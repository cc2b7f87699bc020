"""Clients of a service: named, each with API keys, limits and a priority class. Pure.

A key is shown once, when it is made; what is stored is its hash. A directory holds all clients under a version,
which rises with each change. Each client has the version of its own last change, by which copies that parted are
merged. A client that was revoked stays in the directory without a key, so that its figures keep their name and no
other client gets it by accident. One that was deleted stays, too, for nobody to see: an older copy must not bring
its keys back. A directory that has no others is that of a service without clients.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from mark.domain.errors import Misconfigured, unknown

MOST_CLIENTS = 100
"""So many a directory holds, revoked and deleted ones counted: each is a label of metrics and a row of reports."""
LEAST_RPS, MOST = 1e-6, 1e9
"""Bounds of limits: a request in eleven days, and more than any service gets."""
LEAST_DEADLINE_S, MOST_DEADLINE_S = 10.0, 86_400.0
"""Bounds of an async client's deadline: below, the class gains nothing; above, no connection lasts."""
LATER_S = 0.001
"""Least time between two creations under one name."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")
SERVICE = "(token)"
"""The name under which requests with the service's own token are counted; no client can have it."""


class Priority(StrEnum):
    """Priority class of a client: where a model is overloaded, the lowest class is refused first.

    Requests of the async class wait, for as long as their client's deadline lets them, for capacity that is idle.
    """

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"
    ASYNC = "async"


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedKey:
    """One valid key of a client, by its hash."""

    #: SHA-256 of the key, hexadecimal.
    sha256: str
    #: Epoch seconds from which it counts no more; None for good.
    expires_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one client over all gateways; None: no limit."""

    #: Requests/s in the long run.
    rate_rps: float | None = None
    #: Requests at once, after a pause; at least 1. Means something only with a rate.
    burst: int = 1
    #: Requests in flight.
    concurrency: int | None = None

    def __post_init__(self) -> None:
        if self.rate_rps is not None and not LEAST_RPS <= self.rate_rps <= MOST:
            raise Misconfigured(
                f"a client's rate must be from {LEAST_RPS:g} to {MOST:g} requests/s, not {self.rate_rps:g}"
            )
        if not 1 <= self.burst <= MOST:
            raise Misconfigured(f"a client's burst must be from 1 to {MOST:g} requests, not {self.burst}")
        if self.concurrency is not None and not 1 <= self.concurrency <= MOST:
            raise Misconfigured(
                f"a client's concurrency must be from 1 to {MOST:g} requests, not {self.concurrency}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client. Without keys it was revoked."""

    name: str
    #: Newest first; two while a key is rotated.
    keys: tuple[HashedKey, ...]
    #: Models that it may use; all where empty.
    models: tuple[str, ...] = ()
    limits: Limits = Limits()
    priority: Priority = Priority.NORMAL
    #: Of the async class: seconds within which each request is to be answered; None for the other classes.
    deadline_s: float | None = None
    #: Epoch seconds.
    created_at: float = 0.0
    revoked_at: float | None = None
    #: It is gone for people and gateways; it is revoked, too, so that earlier programs let nobody in by it.
    is_deleted: bool = False
    #: Version of the directory that changed it last; 0 where that does not say.
    version: int = 0

    def __post_init__(self) -> None:
        if (self.priority is Priority.ASYNC) != (self.deadline_s is not None):
            raise Misconfigured("a client of the async class has a deadline, and no other client has one")
        if self.deadline_s is not None and not LEAST_DEADLINE_S <= self.deadline_s <= MOST_DEADLINE_S:
            raise Misconfigured("a client's deadline must be from 10s to 24h")

    @property
    def is_revoked(self) -> bool:
        """True where no key of it counts any more."""
        return self.revoked_at is not None

    def may_use(self, model: str) -> bool:
        """True where requests of this model are answered."""
        return not self.models or model in self.models

    def valid_keys(self, now: float) -> tuple[HashedKey, ...]:
        """The keys that count at that time, epoch seconds."""
        return tuple(key for key in self.keys if key.expires_at is None or now < key.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDirectory:
    """All clients of a service, by name; version 0 is that of a service that never had one."""

    version: int = 0
    clients: tuple[Client, ...] = ()

    @property
    def present(self) -> tuple[Client, ...]:
        """The clients that were not deleted. While there are any, inference needs a key or the service's token."""
        return tuple(client for client in self.clients if not client.is_deleted)

    def client(self, name: str) -> Client:
        """The client of that name, revoked or not. Misconfigured where there is none."""
        for client in self.present:
            if client.name == name:
                return client
        raise unknown("client", name, [client.name for client in self.present])

    def created(self, client: Client, *, models: Sequence[str]) -> ClientDirectory:
        """The directory with one more client; one that is gone comes back with the new key and limits.

        models: those that the service has. Misconfigured where the name is taken or unfit, a model is unknown, or
        there are too many clients; of revoked ones the first makes room.
        """
        if not _NAME.fullmatch(client.name):
            raise Misconfigured(
                f"{client.name!r} cannot name a client: it takes 1 to 48 of a-z, 0-9 and -, and no - at its start"
            )
        for model in client.models:
            if model not in models:
                raise unknown("model", model, models)
        others = [other for other in self.clients if other.name != client.name]
        known = next((other for other in self.clients if other.name == client.name), None)
        if known is not None and not known.is_revoked:
            raise Misconfigured(
                f"there is a client {client.name} already; "
                f"`mark client rotate {client.name}` gives it another key, `mark client revoke` ends it"
            )
        if len(others) >= MOST_CLIENTS and not any(other.is_revoked for other in others):
            raise Misconfigured(f"a service has at most {MOST_CLIENTS} clients; revoke one first")
        if known is not None:  # clocks of two commands may differ, and `merged` goes by this
            client = replace(client, created_at=max(client.created_at, known.created_at + LATER_S))
        return self._with(_with_room(others, MOST_CLIENTS - 1), client)

    def revoked(self, name: str, *, at: float) -> ClientDirectory:
        """The directory in which no key of that client counts. Misconfigured where there is no such client."""
        return self._changed(replace(self._active(name), keys=(), revoked_at=at))

    def deleted(self, name: str, *, at: float) -> ClientDirectory:
        """The directory in which there is no such client any more. Misconfigured where there was none."""
        client = self.client(name)
        revoked_at = at if client.revoked_at is None else client.revoked_at
        return self._changed(replace(client, keys=(), revoked_at=revoked_at, is_deleted=True))

    def rotated(self, name: str, sha256: str, *, at: float, keep_old_s: float) -> ClientDirectory:
        """The directory in which that client has a new key, and the one before counts for `keep_old_s` more.

        Of still older ones none does. Misconfigured where there is no such client.
        """
        client = self._active(name)
        old = [replace(key, expires_at=at + keep_old_s) for key in client.keys[:1] if keep_old_s > 0]
        return self._changed(replace(client, keys=(HashedKey(sha256=sha256), *old)))

    def merged(self, other: ClientDirectory) -> ClientDirectory:
        """Two copies as one, though each has changes that the other lacks: a store may lose some and get others.

        Of each client the later change counts; one that was revoked or deleted in either stays so until it is
        created anew. One copy that has all of the other's changes is the result.
        """
        old, new = sorted((self, other), key=lambda one: one.version)
        clients = {client.name: client for client in old.clients}
        for client in new.clients:
            known = clients.get(client.name, client)
            clients[client.name] = max(client, known, key=_lateness)
        both = _sorted(_with_room(clients.values(), MOST_CLIENTS))
        has_all = both == new.clients and (old == new or old.version < new.version)
        return new if has_all else ClientDirectory(version=new.version + 1, clients=both)

    def _active(self, name: str) -> Client:
        client = self.client(name)
        if client.is_revoked:
            raise Misconfigured(f"the client {name} was revoked; `mark client create {name}` gives it a new key")
        return client

    def _changed(self, client: Client) -> ClientDirectory:
        return self._with((other for other in self.clients if other.name != client.name), client)

    def _with(self, others: Iterable[Client], client: Client) -> ClientDirectory:
        version = self.version + 1
        return ClientDirectory(version=version, clients=_sorted((*others, replace(client, version=version))))


def _sorted(clients: Iterable[Client]) -> tuple[Client, ...]:
    return tuple(sorted(clients, key=lambda client: client.name))


def _lateness(client: Client) -> tuple[float, bool, bool, int, tuple[str, ...]]:
    """Rises with a client's changes, revocation and deletion the last; of two alike every copy finds one."""
    keys = tuple(key.sha256 for key in client.keys)
    return client.created_at, client.is_revoked, client.is_deleted, client.version, keys


def _with_room(clients: Iterable[Client], most: int) -> list[Client]:
    """Those that stay where there are to be at most so many: of revoked ones the first make room."""
    kept = list(clients)
    gone = sorted((one for one in kept if one.is_revoked), key=lambda one: (one.revoked_at or 0.0, one.name))
    for client in gone[: max(0, len(kept) - most)]:
        kept.remove(client)
    return kept


def hash_of_key(key: bytes) -> str:
    """The SHA-256 of a key, hexadecimal, under which it is stored and looked up.

    A slow hash, as passwords need, would guard nothing here: keys are not chosen by people but drawn with 256
    random bits, so that trying keys against a stolen hash is hopeless however fast one try is. A request then
    costs one hash.
    """
    return hashlib.sha256(key).hexdigest()
