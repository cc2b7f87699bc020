"""A user's own rule of the central queue: what it is asked, and how what it answers is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import index
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchRequest:
    """Requests that wait and the instances of the pool, at one instant; each serves one request at a time."""

    #: shape (requests,), ms since each came; the oldest is the first
    waited_ms: Floats
    #: shape (requests,), ms until each is late
    left_ms: Floats
    #: shape (requests,), items of each
    sizes: NDArray[np.int64]
    #: shape (instances,), ms until each is free: 0 where it idles
    free_in_ms: Floats
    #: shape (requests, instances), ms that each is predicted to take there
    takes_ms: Floats


class OwnRule(Protocol):
    """A rule that says which request goes to which instance."""

    def assign(self, request: DispatchRequest) -> Iterable[Pair]:
        """Pairs of a request's number and an instance's, each at most once: those with an idle instance start now.

        Called whenever something waits and an instance idles. Whatever has no pair waits for the next call.
        """


def checked_pairs(answer: Iterable[object], request: DispatchRequest) -> list[Pair]:
    """The pairs of a rule's answer. ValueError where it is nonsense."""
    requests, instances = request.takes_ms.shape
    pairs: list[Pair] = []
    for pair in answer:
        try:
            query, machine = map(index, cast("Pair", pair))
        except (TypeError, ValueError):
            raise ValueError(f"it returned {pair!r}, which is no pair of whole numbers") from None
        if not (0 <= query < requests and 0 <= machine < instances):
            raise ValueError(f"it returned {(query, machine)}, of {requests} requests and {instances} instances")
        pairs.append((query, machine))
    for number, what in enumerate(("request", "instance")):
        if len({pair[number] for pair in pairs}) < len(pairs):
            raise ValueError(f"it returned a pair of the same {what} twice")
    return pairs


def first_come(request: DispatchRequest) -> list[Pair]:
    """Pairs of the oldest requests and the instances that idle, in their order: first come, first served."""
    return list(zip(range(request.waited_ms.size), np.flatnonzero(request.free_in_ms == 0).tolist(), strict=False))
