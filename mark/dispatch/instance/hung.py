"""Hung batches (the backend's health check): the time after which a batch counts as one that never ends.

A model that hangs answers nobody and says nothing, so time is the only sign. Machines are slower than their
profiles, by throttled CPU credits twenty times, and the first batch of a size may wait for a compiler; beyond that
a process that is started again serves sooner than one that is waited for.
"""

from __future__ import annotations

FACTOR = 20.0
"""Bound on measured times over a profile's (`measured.BOUND`)."""
OVERDUE_FACTOR, OVERDUE_S = 4.0, 0.25
"""A batch that takes so many times what was expected, and so long at least, holds a shared device no longer: what
its neighbours were promised does not wait until it hangs. Twice is a hiccup (`measured.HICCUP`)."""
FIRST_FACTOR = 6.0
"""The first batch of a size may take so many times the floor: some models are compiled for each size."""

LOAD_FLOOR_S, LOAD_S_PER_GIB = 300.0, 60.0
"""A model may load for so long before it counts as one that never does: ten times what plans count on
(`sharing.LOAD_S`), and ten times what a GiB of weights takes from a slow disk."""


def loads_within_s(memory_gib: float) -> float:
    """Seconds after which a model that still loads on a shared instance never will. memory_gib: what it needs."""
    return max(LOAD_FLOOR_S, LOAD_S_PER_GIB * memory_gib)


def hung_after_s(expected_s: float, floor_s: float, *, is_first: bool) -> float:
    """Seconds after which a batch that should take `expected_s` hangs. is_first: none of its size ended before."""
    return max(floor_s * (FIRST_FACTOR if is_first else 1.0), FACTOR * expected_s)


def overdue_after_s(expected_s: float) -> float:
    """Seconds after which a batch that should take `expected_s` holds a shared device no longer."""
    return max(OVERDUE_S, OVERDUE_FACTOR * expected_s)
