"""A device shared by several models: whose batch runs next, and who may still join.

One batch runs at a time. Each tenant has a queue of its own, in order of arrival, and works in batches like a
server that has the device alone. A free device takes the queue whose oldest request is due first (EDF). A
service time is therefore that of a model alone; what sharing costs is waiting, and admission counts it: a
request waits for the batch in service and for every batch whose oldest request is due before it, each as if it
were full. It may not push others past what they were promised.

`servers` are records (or objects) with routing's SERVER_FIELDS and TENANT_FIELDS, `tenants` the rows of one
device, and `queue` has a ring of arrival times for each row, its capacity a power of two, those in service
first. Without preemption the longest batch of a neighbour bounds everyone's wait: a planner must leave room for
it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mark.dispatch.bouncer import deviating_finish_at
from mark.dispatch.routing import NONE, Rows, Server, Servers

TENANT_FIELDS = {
    "head": "i8",  # place in its ring of the oldest request it holds
    "objective_s": "f8",  # a request is due so long after its arrival
}
ENDLESS = 1 << 62
"""Length of a ring that never turns: the rules take its place modulo a power of two."""
Queue = Any
"""Rings of arrival times: an array of shape (rows, capacity), or a list of lists."""
Ring = Any
"""One of them."""


def next_tenant(tenants: Rows, servers: Servers, queue: Queue) -> int:
    """The tenant whose batch a free device takes; NONE where nothing waits. Ties go to the first."""
    best, best_at = NONE, np.inf
    for row in tenants:
        if servers[row].waiting > 0:
            at = due_at(0, servers[row], queue[row])
            if best == NONE or at < best_at:
                best, best_at = row, at
    return best


def due_at(place: int, server: Server, ring: Ring) -> float:
    """Deadline of the request that waits at this place; 0 is the oldest."""
    at = (server.head + server.in_service + place) & (len(ring) - 1)
    return float(ring[at] + server.objective_s)


def batches(server: Server) -> int:
    """Batches that wait."""
    return int(-(-server.waiting // server.max_batch))


def batches_due_by(at: float, server: Server, ring: Ring) -> int:
    """Batches that wait whose oldest request is due by then."""
    low, high = 0, batches(server)
    while low < high:
        middle = (low + high) // 2
        if due_at(middle * server.max_batch, server, ring) <= at:
            low = middle + 1
        else:
            high = middle
    return low


def free_at(now: float, tenants: Rows, servers: Servers) -> float:
    """When the device is expected to be free: now where no batch is in service, or where that is overdue."""
    for row in tenants:
        if servers[row].in_service > 0:
            return float(max(now, servers[row].free_at))
    return now


def ahead_s(row: int, at: float, tenants: Rows, servers: Servers, queue: Queue) -> float:
    """Seconds of the batches that wait at the other tenants and are due by `at`."""
    total_s = 0.0
    for other in tenants:
        if other != row and servers[other].waiting > 0:
            total_s += batches_due_by(at, servers[other], queue[other]) * servers[other].full_batch_s
    return total_s


def shared_finish_at(now: float, row: int, at: float, tenants: Rows, servers: Servers, queue: Queue) -> float:
    """The expected finish of a request, due at `at`, that joins the queue of `row` now.

    As `bouncer.predicted_finish_at` where no other tenant has work.
    """
    server = servers[row]
    before_s = ahead_s(row, at, tenants, servers, queue)
    if before_s == 0.0 and server.waiting == 0 and is_idle(tenants, servers):
        return float(now + server.single_s)
    own_s = (server.waiting // server.max_batch + 1) * server.full_batch_s
    return float(free_at(now, tenants, servers) + before_s + own_s)


def likely_finish_at(now: float, row: int, at: float, tenants: Rows, servers: Servers, queue: Queue) -> float:
    """The same if no batch gets fuller than it is: no later than what admission goes by, which is for any case."""
    total_s = work_s(servers[row], servers[row].waiting + 1)
    for other in tenants:
        server = servers[other]
        if other != row and server.waiting > 0:
            due = batches_due_by(at, server, queue[other]) * server.max_batch
            total_s += work_s(server, min(due, server.waiting))
    return float(free_at(now, tenants, servers) + total_s)


def work_s(server: Server, requests: int) -> float:
    """Seconds that so many requests take in batches as full as they can be; a batch's time rises in a line."""
    full, rest = requests // server.max_batch, requests % server.max_batch
    found_s = full * server.full_batch_s
    if rest > 0:
        share = (rest - 1) / max(1, server.max_batch - 1)
        found_s += server.single_s + share * (server.full_batch_s - server.single_s)
    return float(found_s)


def shared_deviation_s(row: int, at: float, tenants: Rows, servers: Servers, queue: Queue) -> float:
    """Standard deviation of the finish of a request that joins now, where batches' times vary.

    As the Bouncer's: times are independent, and the batch in service counts in full.
    """
    server, variance = servers[row], others_variance(row, at, tenants, servers, queue)
    if variance == 0.0 and server.waiting == 0 and is_idle(tenants, servers):
        return float(server.cv * server.single_s)
    own = server.waiting // server.max_batch + (2 if server.in_service > 0 else 1)
    own_s = server.cv * server.full_batch_s * math.sqrt(own)
    return float(own_s if variance == 0.0 else math.sqrt(own_s * own_s + variance))


def others_variance(row: int, at: float, tenants: Rows, servers: Servers, queue: Queue) -> float:
    """Variance of what other tenants have in service, and waiting and due by `at`, seconds squared."""
    variance = 0.0
    for other in tenants:
        one = servers[other]
        if other != row:
            count = (1 if one.in_service > 0 else 0) + batches_due_by(at, one, queue[other])
            variance += count * (one.cv * one.full_batch_s) ** 2
    return variance


def keeps_promises(
    now: float, row: int, at: float, tenants: Rows, servers: Servers, queue: Queue, sigmas: float
) -> bool:
    """True where a request, due at `at`, that joins the queue of `row` endangers nobody who is in time now.

    It adds a batch before those that are due after it, unless it joins one that counts as full already. They must
    be in time even if all takes `sigmas` deviations longer than expected.
    """
    own = servers[row]
    if own.waiting % own.max_batch > 0:
        return True
    start_at = free_at(now, tenants, servers)
    for other in tenants:
        server, ring = servers[other], queue[other]
        if other == row or server.waiting == 0:
            continue
        for batch in range(batches_due_by(at, server, ring), batches(server)):
            due = due_at(batch * server.max_batch, server, ring)
            finish_at = start_at + ahead_s(other, due, tenants, servers, queue) + (batch + 1) * server.full_batch_s
            if finish_at > due:
                continue  # it is late without this request
            ahead = batch + (2 if server.in_service > 0 else 1)
            variance = others_variance(other, due, tenants, servers, queue)
            variance += ahead * (server.cv * server.full_batch_s) ** 2 + (own.cv * own.full_batch_s) ** 2
            if deviating_finish_at(now, finish_at + own.full_batch_s, math.sqrt(variance), sigmas) > due:
                return False
    return True


def stays_late(finish_at: float, lambda_at: float, deadline_at: float) -> bool:
    """True where a request that its device does not admit waits there all the same: Lambda is late, and later.

    Only one that makes nobody else late may; an environment of Lambda is warmed for the next one.
    """
    return lambda_at > deadline_at and finish_at <= lambda_at


def is_idle(tenants: Rows, servers: Servers) -> bool:
    """True where no batch is in service."""
    for row in tenants:  # noqa: SIM110 - compiled code has no all()
        if servers[row].in_service > 0:
            return False
    return True
