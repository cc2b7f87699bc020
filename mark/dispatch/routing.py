"""Dispatch rules: which instance gets a request.

Each picks a row of `servers`: records with SERVER_FIELDS that the caller owns, an array where compiled code
asks (the simulator's truth), a list of objects where plain Python does (a gateway's view), which it reads faster.
`rows` lists the instances that accept requests in the order of their ids, so that ties go to the first. NONE says
that nobody can take the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mark.dispatch.batcher import places_ahead
from mark.dispatch.bouncer import predicted_finish_at

Ints = NDArray[np.int64]
Rows = Ints | Sequence[int]
Servers = Any
"""A record array or a list of objects; numpy's stubs cannot name a record's fields."""
Server = Any
"""One of them."""
OVERDUE_SHARE = 0.08
"""Of a full batch: how much longer a batch is expected to take that is overdue.

Times above the mean of a normal time lie 0.8 deviations above it on average; batches vary by some 10 %. Without it
an instance that is overdue looks as free as one that is idle, while its Bouncer, which counts what it has in full,
may admit nothing: a model whose answers take most of the objective lost half of its requests to Lambda beside idle
instances.
"""
BatchTimes = Any
"""Seconds by the items of a batch: an array, or a sequence of floats. The place of 0 items is not used."""

SERVER_FIELDS = {
    "free_at": "f8",  # expected end of the batch in service, s; in the past where it is overdue
    "terminates_at": "f8",  # nothing may be predicted to finish later: it goes away
    "single_s": "f8",  # what a batch of one takes now
    "full_batch_s": "f8",  # what a batch of max_batch takes now
    "weight": "f8",  # its capacity, requests/s
    "current": "f8",  # the weighted rule's running credit
    "waiting": "i8",  # requests queued behind the batch in service
    "in_service": "i8",  # requests in the batch in service
    "max_batch": "i8",  # N_batch
}
NONE = -1
"""No row: a constant of its own, because compiled code has no optional integers."""


def least_finish(now: float, rows: Rows, servers: Servers) -> int:
    """The instance with the least predicted finish that is still there by then. rows: shape (accepting,)."""
    best, best_at = NONE, np.inf
    for row in rows:
        server = servers[row]
        at = predicted_finish_at(
            now,
            server.free_at,
            server.in_service,
            server.waiting,
            server.max_batch,
            server.single_s,
            server.full_batch_s,
        )
        if server.in_service > 0 and server.free_at < now:
            at += OVERDUE_SHARE * server.full_batch_s
        if at < best_at and at <= server.terminates_at:
            best, best_at = row, at
    return best


def alone_s(size: int, single_s: float, batch_s: BatchTimes) -> float:
    """Seconds that a request of `size` items takes alone: as much longer than one item as its profile says."""
    return single_s * float(batch_s[size] / batch_s[1])


def sized_finish_at(now: float, size: int, server: Server, batch_s: BatchTimes) -> float:
    """The expected finish of a request of `size` items that joins this instance now; batch_s: its profile."""
    return predicted_finish_at(
        now,
        server.free_at,
        server.in_service,
        places_ahead(server.in_service, server.waiting, size, server.max_batch),
        server.max_batch,
        alone_s(size, server.single_s, batch_s),
        server.full_batch_s,
    )


def least_finish_of_size(now: float, size: int, rows: Rows, servers: Servers, batch_s: BatchTimes) -> int:
    """`least_finish` of a request of `size` items; batch_s: one profile for each row."""
    best, best_at = NONE, np.inf
    for row in rows:
        server = servers[row]
        at = sized_finish_at(now, size, server, batch_s[row])
        if server.in_service > 0 and server.free_at < now:
            at += OVERDUE_SHARE * server.full_batch_s
        if at < best_at and at <= server.terminates_at:
            best, best_at = row, at
    return best


def weighted(rows: Rows, servers: Servers) -> int:
    """Smooth weighted round robin by capacity, as in MArk's front end; `current` is moved on.

    Every row gains its weight, the largest is taken and loses the sum (nginx's algorithm): over any stretch each
    row gets its share, spread as evenly as can be.
    """
    best, best_current, total = NONE, -np.inf, 0.0
    for row in rows:
        server = servers[row]
        total += server.weight
        server.current += server.weight
        if server.current > best_current:
            best, best_current = row, server.current
    if best != NONE:
        servers[best].current -= total
    return best


def least_outstanding(rows: Rows, servers: Servers) -> int:
    """The instance with the fewest requests unanswered."""
    best, fewest = NONE, 2**62
    for row in rows:
        server = servers[row]
        outstanding = server.in_service + server.waiting
        if outstanding < fewest:
            best, fewest = row, outstanding
    return best
