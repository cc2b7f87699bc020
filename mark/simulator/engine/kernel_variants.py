"""A queue by deadline before workers that choose: when one is free, how many it takes and which variant answers.

Plain Python over arrays that the caller owns, compiled by `compiled.py`. All times are s. What happens at one
instant happens together: answers, workers that go, arrivals, then decisions. A decision is a look into a table by
slack and queue length (`dispatch/variants/slackfit.py`), or the caller's: then `run` stops with ASK and goes on
once the caller has written its choice. The tables know expected times (`latency_s`), the clock noisy ones.

A request that no variant could answer by its limit any more leaves the queue unanswered where `drop_late`. One
with an accuracy floor lifts its whole batch to that variant. A worker that goes gives back what it holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mark.dispatch.variants.slackfit import Shared, choose_shared
from mark.simulator.engine.kernel_tally import Floats, Ints

# Why `run` returned.
DONE, ASK = range(2)
NONE = -1
# Counts kept in `Work.counts`.
AT, QUEUED, LEFT, ASKED, DECISIONS, BATCHES, DROPPED = range(7)
COUNTS = 7


ANY_TIME: Floats = np.zeros((1, 1))
"""Needs of a rule that serves whom the fastest batch of one answers in time."""


class Requests(NamedTuple):
    """Requests in order of arrival. shape (requests,) each."""

    arrived_s: Floats
    #: the queue's order, and what slack is counted to
    deadline_s: Floats
    #: an answer after it is worth nothing
    limit_s: Floats
    #: least variant that may answer it
    floor: Ints


class Workers(NamedTuple):
    """Workers and what is known of their types."""

    #: shape (workers,), type of each, in the order in which free ones are served
    kind: Ints
    #: shape (workers,), when it comes and goes; inf where it stays
    from_s: Floats
    until_s: Floats
    #: shape (types, variants, largest batch + 1), expected seconds of a batch; column 0 is unused
    latency_s: Floats
    #: shape (draws,), factors on a batch's time used in turn
    noise: Floats


class VariantRules(NamedTuple):
    """Inputs that do not change during a run."""

    #: True where the caller decides
    asks: bool
    drop_late: bool
    #: a worker that was told to wait asks again after so long, or when something arrives
    wait_s: float
    #: shape (types, columns), seconds that the head needs besides, by queue length; the last one for longer queues
    needs_s: Floats = ANY_TIME


class Work(NamedTuple):
    """The outcome, and room to work in. `choice` is the caller's answer to ASK: batch (0 waits) and variant."""

    #: shape (requests,): nan where nobody answered
    finish_s: Floats
    #: shape (requests,): variant that answered, NONE where nobody did
    variant: Ints
    #: shape (requests,): binary heap of waiting requests by deadline
    heap: Ints
    #: shape (workers,): end of its batch, inf where idle, and the expected one; when it may ask again
    done_s: Floats
    free_s: Floats
    ask_s: Floats
    #: shape (workers, largest batch), requests in service, and how many
    held: Ints
    holds: Ints
    counts: Ints
    #: shape (2,): the clock, and when something is due
    clock: Floats
    #: shape (2,)
    choice: Ints


def make_work(requests: int, workers: int, max_batch: int) -> Work:
    """Room for a run of so many requests and workers, at its beginning."""
    work = Work(
        finish_s=np.full(requests, np.nan),
        variant=np.full(requests, NONE, np.int64),
        heap=np.empty(requests, np.int64),
        done_s=np.full(workers, np.inf),
        free_s=np.full(workers, np.inf),
        ask_s=np.full(workers, -np.inf),
        held=np.empty((workers, max_batch), np.int64),
        holds=np.zeros(workers, np.int64),
        counts=np.zeros(COUNTS, np.int64),
        clock=np.array([-np.inf, np.inf]),
        choice=np.zeros(2, np.int64),
    )
    work.counts[ASKED] = NONE
    return work


def run(requests: Requests, workers: Workers, choices: Shared, rules: VariantRules, work: Work) -> int:
    """Serve until all requests have left, or until a worker asks (its number is `counts[ASKED]`)."""
    counts, clock = work.counts, work.clock
    arrived_s = requests.arrived_s
    total = arrived_s.size
    if counts[ASKED] != NONE:
        worker = counts[ASKED]
        counts[ASKED] = NONE
        counts[DECISIONS] += 1
        _take(clock[0], worker, work.choice[0], work.choice[1], requests, workers, rules, work)
        if _decide(clock[0], worker + 1, requests, workers, choices, rules, work):
            return ASK
    while counts[LEFT] < total:
        now = clock[1]
        if counts[AT] < total:
            now = min(now, arrived_s[counts[AT]])
        if not now < np.inf:
            break  # all workers are gone
        clock[0] = now
        _finish(now, requests, workers, work)
        while counts[AT] < total and arrived_s[counts[AT]] <= now:
            push(counts[AT], requests.deadline_s, work)
            counts[AT] += 1
            work.ask_s[:] = -np.inf
        if _decide(now, 0, requests, workers, choices, rules, work):
            return ASK
    return DONE


def _finish(now: float, requests: Requests, workers: Workers, work: Work) -> None:
    """Answer the batches that have ended; those that have gone give back what they hold."""
    for worker in range(workers.kind.size):
        if work.holds[worker] == 0:
            continue
        if work.done_s[worker] <= min(now, workers.until_s[worker]):
            work.counts[LEFT] += work.holds[worker]
            work.counts[BATCHES] += 1
            work.holds[worker] = 0
            work.done_s[worker] = np.inf
        elif workers.until_s[worker] <= now:
            for place in range(work.holds[worker]):
                request = work.held[worker, place]
                work.finish_s[request] = np.nan
                work.variant[request] = NONE
                push(request, requests.deadline_s, work)
            work.holds[worker] = 0
            work.done_s[worker] = np.inf


def _decide(
    now: float,
    first: int,
    requests: Requests,
    workers: Workers,
    choices: Shared,
    rules: VariantRules,
    work: Work,
) -> bool:
    """Let each free worker from `first` on take a batch; True when the caller is to choose for one."""
    counts = work.counts
    has_new_head = rules.drop_late
    for worker in range(first, workers.kind.size):
        if has_new_head:
            _drop_late(now, requests, workers, rules, work)
            has_new_head = False
        if counts[QUEUED] == 0:
            break
        there = workers.from_s[worker] <= now < workers.until_s[worker]
        if work.holds[worker] > 0 or not there or work.ask_s[worker] > now:
            continue
        if rules.asks:
            counts[ASKED] = worker
            return True
        kind = workers.kind[worker]
        slack_s = requests.deadline_s[work.heap[0]] - now
        instances, next_idle_s = 1, np.inf
        if choices.weighs:
            instances, next_idle_s = _others(now, worker, workers, work)
        batch, variant = choose_shared(kind, slack_s, counts[QUEUED], instances, next_idle_s, choices)
        counts[DECISIONS] += 1
        _take(now, worker, batch, variant, requests, workers, rules, work)
        has_new_head = rules.drop_late
    work.clock[1] = _next_due(now, workers, work)
    return False


def _others(now: float, worker: int, workers: Workers, work: Work) -> tuple[int, float]:
    """Workers that are there, and how long it is expected to take until another one is idle."""
    count, next_idle_s = 0, np.inf
    for number in range(workers.kind.size):
        if workers.from_s[number] <= now < workers.until_s[number]:
            count += 1
            if number != worker:
                idle_s = max(0.0, work.free_s[number] - now) if work.holds[number] > 0 else 0.0
                next_idle_s = min(next_idle_s, idle_s)
    return count, next_idle_s


def _take(
    now: float,
    worker: int,
    batch: int,
    variant: int,
    requests: Requests,
    workers: Workers,
    rules: VariantRules,
    work: Work,
) -> None:
    """The worker takes up to `batch` requests, the most urgent first, or waits."""
    counts = work.counts
    taken = min(batch, counts[QUEUED])
    if taken == 0:
        work.ask_s[worker] = now + rules.wait_s
        return
    for place in range(taken):
        request = pop(requests.deadline_s, work)
        work.held[worker, place] = request
        variant = max(variant, requests.floor[request])
    expected_s = workers.latency_s[workers.kind[worker], variant, taken]
    factor = workers.noise[counts[DECISIONS] % workers.noise.size]
    done_s = now + expected_s * factor
    work.holds[worker] = taken
    work.done_s[worker], work.free_s[worker] = done_s, now + expected_s
    for place in range(taken):
        request = work.held[worker, place]
        work.finish_s[request] = done_s
        work.variant[request] = variant


def _drop_late(now: float, requests: Requests, workers: Workers, rules: VariantRules, work: Work) -> None:
    """Requests at the head that even the fastest batch, of one unless the rule says more, answers late leave."""
    types, columns = rules.needs_s.shape
    while work.counts[QUEUED] > 0:
        request = work.heap[0]
        fastest_s = np.inf
        column = min(work.counts[QUEUED], columns - 1)
        for worker in range(workers.kind.size):
            if workers.from_s[worker] <= now < workers.until_s[worker]:
                kind = workers.kind[worker]
                fastest = workers.latency_s[kind, requests.floor[request] :, 1].min()
                fastest_s = min(fastest_s, max(fastest, rules.needs_s[min(kind, types - 1), column]))
        if now + fastest_s <= requests.limit_s[request] or fastest_s == np.inf:
            break
        pop(requests.deadline_s, work)
        work.counts[LEFT] += 1
        work.counts[DROPPED] += 1


def _next_due(now: float, workers: Workers, work: Work) -> float:
    """When the next batch ends, a worker comes or goes, or one that waits asks again."""
    due_s = np.inf
    for worker in range(workers.kind.size):
        if work.holds[worker] > 0:
            due_s = min(due_s, work.done_s[worker], workers.until_s[worker])
        elif work.counts[QUEUED] > 0:
            if now < workers.from_s[worker]:
                due_s = min(due_s, workers.from_s[worker])
            elif now < work.ask_s[worker] < workers.until_s[worker]:
                due_s = min(due_s, work.ask_s[worker])
    return due_s


def push(request: int, order_s: Floats, work: Work) -> None:
    """Put a request into the heap; of equal deadlines the earlier number comes first."""
    heap, place = work.heap, work.counts[QUEUED]
    work.counts[QUEUED] += 1
    while place > 0:
        above = (place - 1) // 2
        if not _before(request, heap[above], order_s):
            break
        heap[place] = heap[above]
        place = above
    heap[place] = request


def pop(order_s: Floats, work: Work) -> int:
    """Take the most urgent request out of the heap."""
    heap = work.heap
    found = heap[0]
    work.counts[QUEUED] -= 1
    size = work.counts[QUEUED]
    moved, place = heap[size], 0
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and _before(heap[below + 1], heap[below], order_s):
            below += 1
        if not _before(heap[below], moved, order_s):
            break
        heap[place] = heap[below]
        place = below
    if size > 0:
        heap[place] = moved
    return int(found)


def _before(one: int, other: int, order_s: Floats) -> bool:
    return bool(order_s[one] < order_s[other] or (order_s[one] == order_s[other] and one < other))
