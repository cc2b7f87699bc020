"""Requests put together along the batch axis, and answers taken apart again. Pure: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mark.protocols.oip import Tensors


def groups(requests: Sequence[Tensors]) -> list[list[int]]:
    """Places of the requests that may be put together: same names, types, and shapes but for the rows."""
    found: dict[object, list[int]] = {}
    for place, tensors in enumerate(requests):
        key = tuple(sorted((name, array.dtype.str, array.shape[1:]) for name, array in tensors.items()))
        found.setdefault(key, []).append(place)
    return list(found.values())


def merge(requests: Sequence[Tensors]) -> Tensors:
    """One request's tensors out of several that may be put together, in their order."""
    if len(requests) == 1:
        return requests[0]
    return {name: np.concatenate([tensors[name] for tensors in requests]) for name in requests[0]}


def split(outputs: Tensors, rows: Sequence[int]) -> list[Tensors]:
    """The answers of each request, which had so many rows. Errors: ValueError where an output disagrees."""
    total = sum(rows)
    for name, array in outputs.items():
        if array.ndim == 0 or array.shape[0] != total:
            raise ValueError(f"output {name!r} has shape {list(array.shape)} for a batch of {total}")
    if len(rows) == 1:
        return [outputs]
    ends = np.cumsum(rows).tolist()
    return [
        {name: array[end - count : end] for name, array in outputs.items()}
        for count, end in zip(rows, ends, strict=True)
    ]
