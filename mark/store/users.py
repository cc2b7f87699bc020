"""Users of the store: what each role may touch there, for Redis from 6.2 on and for ElastiCache alike.

One table says it, by kinds of keys and by what is called on them; the commands within a script come from its
text, because Redis asks for them too. Redis 6.2 knows no keys that are only to be read. So what a role reads and
must not change is of a type that none of its commands changes: no agent may SET a document, nor change the set of
drains.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from urllib.parse import urlsplit, urlunsplit

from mark.store.keys import Keys
from mark.store.scripts import (
    ANNOUNCE,
    LEAVE,
    LEAVE_PEERS,
    LEDGER,
    MEMBERS,
    ONCE,
    PEERS,
    REPORT,
    TRAFFIC,
    VERSION,
    WALL,
    Script,
)


class StoreUser(StrEnum):
    """A user of the store: a role of the service's processes, or what Redis itself needs."""

    #: Controllers, and people's commands.
    CONTROLLER = "controller"
    GATEWAY = "gateway"
    AGENT = "agent"
    #: The function that mails the report.
    REPORT = "report"
    #: A node's controller at its own Redis: it says who leads.
    NODE = "node"
    #: A Redis that copies the one that leads.
    REPLICA = "replica"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Access of one user. `keys`: kinds of the service's keys, `NAME:*` those of each model. None: no key.

    `sends_scripts`: it may run any text as a script, and so stop the store. Others run what controllers loaded.
    """

    keys: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    scripts: tuple[Script, ...] = ()
    sends_scripts: bool = False

    @property
    def commands(self) -> tuple[str, ...]:
        """All commands, those within scripts included, in lower case and order."""
        within = {name for script in self.scripts for name in script.commands}
        runs = ("evalsha", *(("eval",) if self.sends_scripts else ())) if self.scripts else ()
        return tuple(sorted({*self.calls, *within, *runs}))


_MEMBERS = ("members", "seen", "version", "heard-at", "digests")
_WALLS = ("wall-offsets", "walls-seen")
ACCESSES: Mapping[StoreUser, Access] = MappingProxyType(
    {
        StoreUser.AGENT: Access(
            keys=(*_MEMBERS, "drains", "clock", "acted-at", "host:*", "served:*", *_WALLS),
            calls=("get", "zscore"),
            scripts=(ANNOUNCE, LEAVE, WALL),
        ),
        StoreUser.GATEWAY: Access(
            keys=(
                *_MEMBERS, "clients", "clock", "spec", "warmed", "status:budget", "peers", "peers-seen",
                "sequences", "gateways", "arrivals:*", "shared:*", "traffic:*", "latency:*", "gauges:*",
                "versions", "fleet", "held", *_WALLS,
            ),
            calls=("get", "hgetall", "hvals", "zscore"),
            scripts=(LEAVE_PEERS, MEMBERS, PEERS, REPORT, VERSION, WALL),
            sends_scripts=True,
        ),
        StoreUser.REPORT: Access(
            keys=(
                "clock", "spec", "gateways", "traffic:*", "latency:*", "gauges:*", "ledger:*", "rollup:*",
                "journal:*", "status:*", "once",
            ),
            calls=("get", "hmget", "smembers", "srem", "xrange"),
            scripts=(LEDGER, ONCE, TRAFFIC),
        ),
        StoreUser.CONTROLLER: Access(
            keys=("*",),
            calls=(
                "del", "eval", "evalsha", "exists", "expire", "get", "hdel", "hget", "hgetall",
                "hincrby", "hincrbyfloat", "hkeys", "hlen", "hmget", "hset", "hvals", "incr",
                "llen", "lrange", "lrem", "ltrim", "persist", "rpush", "sadd", "script|exists",
                "script|kill", "script|load", "set", "setnx", "sismember", "smembers", "srem",
                "time", "type", "xadd", "xdel", "xlen", "xrange", "xrevrange", "zadd",
                "zrangebyscore", "zrem", "zscore",
            ),
        ),
        StoreUser.NODE: Access(
            calls=("acl|getuser", "acl|setuser", "client|kill", "dbsize", "info", "replicaof", "role")
        ),
        StoreUser.REPLICA: Access(calls=("ping", "psync", "replconf")),
    }
)  # fmt: skip
"""Rights of each user; it has no other. None publishes or subscribes: there are no channels."""
UNSENT = tuple(
    dict.fromkeys(script for access in ACCESSES.values() if not access.sends_scripts for script in access.scripts)
)
"""Scripts of those who may not send any: controllers load them."""
PROCESSES = (StoreUser.AGENT, StoreUser.CONTROLLER, StoreUser.GATEWAY, StoreUser.REPORT)
"""Users that are a role's, each with a password of its own."""
NOBODY = "reset on nopass +ping"
"""Rules of whoever does not log in: to ask whether the store is there."""


def rules_of(user: StoreUser, service: str) -> str:
    """The user's rights in Redis' words, as ElastiCache takes them too: `on ~KEY ... -@all +COMMAND ...`."""
    keys, commands = rights_of(user, service)
    return " ".join(("on", *keys, "-@all", *commands))


def rights_of(user: StoreUser, service: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Its keys and commands, each as Redis adds it to what a user may already."""
    access, keys = ACCESSES[user], Keys(service)
    return tuple(f"~{keys.of(kind)}" for kind in access.keys), tuple(f"+{one}" for one in access.commands)


def acl_file(service: str, passwords: Mapping[StoreUser, str]) -> str:
    """Redis' file of users: those that have a password, by its hash, and nobody else."""
    hashes = {user: hash_of(password) for user, password in passwords.items()}
    lines = (user_line(user, service, hashes[user]) for user in sorted(hashes))
    return "\n".join((f"user default {NOBODY}", *lines, ""))


def user_line(user: StoreUser, service: str, sha256: str) -> str:
    """A user as Redis' files have it, with its password's hash."""
    return f"user {user.value} resetchannels #{sha256} {rules_of(user, service)}"


def hash_of(password: str) -> str:
    """The hash by which Redis knows a password."""
    return hashlib.sha256(password.encode()).hexdigest()


def make_passwords() -> dict[StoreUser, str]:
    """A password for each role, of letters that a URL takes."""
    return {user: secrets.token_urlsafe(32) for user in PROCESSES}


def for_user(url: str, user: str) -> str:
    """The URL for another user who has the same password; as it is where it names no user."""
    parts = urlsplit(url)
    return url_of(url, user, parts.password) if parts.username and parts.password else url


def url_of(url: str, user: str, password: str) -> str:
    """The store's URL for that user, in place of the one that it names."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.netloc.rpartition('@')[2]}"))
