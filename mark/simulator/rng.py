"""Named random streams: one seed for a run, one independent stream per component.

A stream depends on the seed and its own name alone, so a component that is added, removed or asked twice
changes no other component's draws.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from mark.domain.errors import Misconfigured


def seed_of(seed: int, name: str) -> int:
    """The seed of one of several under `seed`: models that are replayed together draw loads of their own."""
    return int(stream(seed, f"seed of {name}").integers(2**63))


def seeds_of(seed: int, models: Sequence[str]) -> dict[str, int]:
    """The seeds of models that are served together, by model; a model alone has the seed itself."""
    return dict.fromkeys(models, seed) if len(models) == 1 else {model: seed_of(seed, model) for model in models}


def stream(seed: int, name: str) -> np.random.Generator:
    """The generator of the component `name` under `seed` (>= 0), the same on every machine.

    Python's own `hash` of a string differs from process to process, so the spawn key is the name's SHA-256.
    """
    if seed < 0:
        raise Misconfigured(f"a seed must be 0 or more, not {seed}")
    digest = hashlib.sha256(name.encode()).digest()
    key = tuple(int.from_bytes(digest[at : at + 4], "little") for at in range(0, 16, 4))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
