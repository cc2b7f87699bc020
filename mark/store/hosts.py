"""One wall clock for all processes of a host: which instant they count from (`mark.steady_time`).

It lies in the store under the host's boot, because a monotonic clock means nothing beyond it. A host that no
process of the service has begun on for KEEP_S is forgotten.
"""

from __future__ import annotations

import socket
from contextlib import nullcontext, suppress
from pathlib import Path

from mark.domain.errors import RetryLater
from mark.store.connect import AsyncLink, Link
from mark.store.keys import Keys
from mark.store.scripts import WALL

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
KEEP_S = 30 * 24 * 3600


def share_wall(link: Link, keys: Keys, offset_s: float) -> float:
    """The offset of the host's first process: `offset_s` where this is it.

    Read first: a store whose disk is full answers reads, and a process that begins then shall begin.
    """
    told = link.call("ZSCORE", keys.walls[0], _boot())
    with suppress(RetryLater) if told is not None else nullcontext():
        told = link.run(WALL, keys.walls, _args(offset_s))
    return float(told)


async def share_wall_async(link: AsyncLink, keys: Keys, offset_s: float) -> float:
    """`share_wall` on an event loop."""
    told = await link.call("ZSCORE", keys.walls[0], _boot())
    with suppress(RetryLater) if told is not None else nullcontext():
        told = await link.run(WALL, keys.walls, _args(offset_s))
    return float(told)


def forget_wall(link: Link, keys: Keys) -> None:
    """Have the next process of this host be its first."""
    link.call("ZREM", keys.walls[0], _boot())


def _args(offset_s: float) -> tuple[float, str, str]:
    return 1000 * KEEP_S, _boot(), repr(offset_s)


def _boot() -> str:
    """This boot of this host."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:  # elsewhere than on Linux
        return socket.gethostname()
