"""Requests put together along the batch axis. Pure: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mark.protocols.oip import Tensors


def groups(requests: Sequence[Tensors]) -> list[list[int]]:
    """Places of the requests that may be put together: same names, types, and shapes but for the rows."""
    found: dict[object, list[int]] = {}
    for place, tensors in enumerate(requests):
        key = frozenset([(name, array.dtype, array.shape[1:]) for name, array in tensors.items()])
        found.setdefault(key, []).append(place)
    return list(found.values())


def merge(requests: Sequence[Tensors]) -> Tensors:
    """One request's tensors out of several that may be put together, in their order."""
    if len(requests) == 1:
        return requests[0]
    return {name: np.concatenate([tensors[name] for tensors in requests]) for name in requests[0]}
