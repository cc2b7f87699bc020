"""The store of a node: a Redis that leads where its node's controller leads, and is a replica of the other's else.

The lease decides which it is (`mark.live.control.leadership.leader_election`): no vote, and no clock of Redis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mark.store.connect import Link
from mark.store.users import PROCESSES, StoreUser, hash_of, rights_of

MASTER, REPLICA, LOADING = b"master", b"slave", b"sync"
"""Words of ROLE."""
NOBODY = "127.0.0.1:1"
"""A replica of it takes no writes."""


class NodeStore:
    """The Redis of this node, by a link of its own: the other links go to wherever the leader is."""

    def __init__(self, link: Link, port: int) -> None:
        self._link, self._port = link, port

    @property
    def lacks_data(self) -> bool:
        """True where it holds nothing, or no more than a part of what the leader does: it must not lead."""
        role = self._link.call("ROLE")
        return (role[0] == REPLICA and role[3] == LOADING) or int(self._link.call("DBSIZE")) == 0

    @property
    def memory_share(self) -> float:
        """Of the memory that it may take, the share that it takes; 0 where nothing limits it."""
        told: Any = self._link.call("INFO", "memory")
        return float(told["used_memory"] / (told["maxmemory"] or math.inf))

    def lead(self) -> None:
        """Take writes. Does nothing where it does already."""
        if self._link.call("ROLE")[0] != MASTER:
            self._link.call("REPLICAOF", "NO", "ONE")

    def resign(self) -> None:
        """Take no more writes, whoever leads now: clients then ask who that is."""
        self.follow(NOBODY)

    def follow(self, address: str) -> None:
        """Be a replica of the store at that address. Does nothing where it is already."""
        host, _, port = address.partition(":")
        role: Any = self._link.call("ROLE")
        if role[0] != REPLICA or (role[1].decode(), int(role[2])) != (host, int(port or self._port)):
            self._link.call("REPLICAOF", host, port or self._port)

    def has_user(self, user: StoreUser) -> bool:
        """False where the store lets everybody do all, as one without users does."""
        return self._link.call("ACL", "GETUSER", user) is not None

    def grant(self, service: str) -> None:
        """Let each role of the service do what this release does, too; nothing is taken from an older one."""
        for user in PROCESSES:
            keys, commands = rights_of(user, service)
            if self.has_user(user):
                self._link.call("ACL", "SETUSER", user, *keys, *commands)

    def take_passwords(self, user: StoreUser, passwords: Sequence[str]) -> None:
        """Let that user log in with these and no other, and end connections that another may have opened.

        At least one. Does nothing where it is so already; whoever logged in with one of them connects again.
        """
        told: Any = self._link.call("ACL", "GETUSER", user)
        taken = {one.decode() for one in dict(zip(told[::2], told[1::2], strict=True))[b"passwords"]}
        valid = {hash_of(one) for one in passwords}
        if taken != valid:
            self._link.call("ACL", "SETUSER", user, "resetpass", *(f"#{one}" for one in sorted(valid)))
        if taken - valid:
            self._link.call("CLIENT", "KILL", "USER", user)
