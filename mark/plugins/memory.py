"""Memory that a model frees and takes again with its next batch: its process keeps it, with glibc.

glibc gives large blocks back to the kernel as soon as they are free, and a network's activations are large: each
batch then waits while the kernel finds and clears the same pages anew. On two cores replicas of a small network
answered 178 images/s (`python -m scripts.bench.replicas`), and 91 with both thresholds below at 131072, as glibc
begins. It raises them by itself once it has freed a larger block. So a profile, which tries large batches, was
fast, and the served model slow.

A parameter that the environment sets (`MALLOC_TRIM_THRESHOLD_` and the like) stays as it is.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

MIB = 2**20
KEPT = 128 * MIB
"""The most that stays free at the heap's end: no more than a model may hold beyond its `memory_gib`."""
MAPPED = 32 * MIB
"""Blocks of this size and larger come from the kernel and go back to it: glibc takes no higher bound."""


def share_one_heap() -> None:
    """Have all threads share one heap. Call it before other threads begin.

    A thread with a heap of its own gets it in pieces of 64 MiB, which go back to the kernel once they are free.
    """
    _set(-8, "MALLOC_ARENA_MAX", 1)


def keep_freed_memory() -> None:
    """Keep what is freed from now on. Call it once the model is loaded: what its load has freed may go."""
    _set(-1, "MALLOC_TRIM_THRESHOLD_", KEPT)
    _set(-3, "MALLOC_MMAP_THRESHOLD_", MAPPED)


def _set(parameter: int, variable: str, value: int) -> None:
    """Set a parameter of mallopt (malloc.h); no other C library has it."""
    if variable not in os.environ:
        with suppress(AttributeError):
            ctypes.CDLL(None).mallopt(parameter, value)
