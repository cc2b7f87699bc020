"""Memory that a model frees and takes again with its next batch: kept by the process, where glibc is its library.

glibc gives large blocks back to the kernel as soon as they are free, and a network's activations are large: each
batch then waits while the kernel finds and clears the same pages anew. A small network in torch, batches of four,
answered 95 images/s that way and 165 to 200 with its pages kept. glibc raises its thresholds by itself once it has
freed a larger block: a profile, which tries large batches, did not see it, and the served model did.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8
"""Parameters of mallopt (malloc.h)."""
MIB = 2**20
KEPT = 128 * MIB
"""So much that is free may stay with the process: no more than a model may hold beyond its `memory_gib`."""
LARGEST = 32 * MIB
"""glibc takes no more: larger blocks come from the kernel and go back to it."""


def keep_freed_memory() -> None:
    """Keep what is freed, from now on and in all threads; elsewhere than on glibc nothing changes.

    Threads that begin later share one heap: one of their own is of 64 MiB at most, and goes back whole.
    """
    with suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in ((TRIM_THRESHOLD, KEPT), (MMAP_THRESHOLD, LARGEST), (ARENA_MAX, 1)):
            mallopt(parameter, value)
