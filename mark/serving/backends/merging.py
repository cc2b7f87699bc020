"""Requests put together along the batch axis. Pure: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mark.protocols.exchange import Kind
from mark.protocols.oip.bodies import Tensors


def groups(kinds: Mapping[int, Kind]) -> list[list[int]]:
    """Places of the requests that may be put together."""
    found: dict[Kind, list[int]] = {}
    for place, kind in kinds.items():
        found.setdefault(kind, []).append(place)
    return list(found.values())


def merge(requests: Sequence[Tensors]) -> Tensors:
    """One request's tensors out of several that may be put together, in their order."""
    if len(requests) == 1:
        return requests[0]
    return {name: np.concatenate([tensors[name] for tensors in requests]) for name in requests[0]}
