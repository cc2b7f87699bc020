"""One wall clock for all processes of a host: which instant they count from (`mark.steady_time`).

It lies in the store under the host's boot, because a monotonic clock means nothing beyond it. A host that no
process of the service has begun on for KEEP_S is forgotten.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

from mark.domain.errors import RetryLater
from mark.store.connect import AsyncLink, Link
from mark.store.keys import Keys

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
KEEP_S = 30 * 24 * 3600


def share_wall(link: Link, keys: Keys, offset_s: float) -> float:
    """The offset of the host's first process: `offset_s` where this is it.

    Read first: a store whose disk is full answers reads, and a process that begins then shall begin.
    """
    key = _key(keys)
    told = link.call("GET", key)
    if told is None:
        link.call("SET", key, repr(offset_s), "NX", "EX", KEEP_S)
        told = link.call("GET", key)
    else:
        with suppress(RetryLater):
            link.call("EXPIRE", key, KEEP_S)
    return _read(told, offset_s)


async def share_wall_async(link: AsyncLink, keys: Keys, offset_s: float) -> float:
    """`share_wall` on an event loop."""
    key = _key(keys)
    told = await link.call("GET", key)
    if told is None:
        await link.call("SET", key, repr(offset_s), "NX", "EX", KEEP_S)
        told = await link.call("GET", key)
    else:
        with suppress(RetryLater):
            await link.call("EXPIRE", key, KEEP_S)
    return _read(told, offset_s)


def forget_wall(link: Link, keys: Keys) -> None:
    """Have the next process of this host be its first."""
    link.call("DEL", _key(keys))


def _key(keys: Keys) -> str:
    return keys.of("host", _boot())


def _boot() -> str:
    """This boot of this host."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:  # elsewhere than on Linux
        return socket.gethostname()


def _read(told: bytes | None, offset_s: float) -> float:
    return offset_s if told is None else float(told)
