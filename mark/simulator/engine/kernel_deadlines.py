"""The engine's inner loop with one queue for all instances, which choose batch and variant (SuperServe's router).

Its entry points are those of `kernel.py`, which they call where each instance has a queue of its own. Requests
wait in the order of their deadlines. An instance that is idle takes what `dispatch/variants/slackfit.py` says, by
the slack of the most urgent and by how many wait. A request that no instance could answer in time any more is shed
where the policy sheds; else it is held until an instance would idle, or until the most urgent can wait for it, and
the fastest variant answers it: nobody else is late for it. An instance with a notice takes no batch that it might
not finish. A gateway's queue decides alike (`mark.dispatch.central.deadlines`).

What happens at one instant happens together: answers, arrivals, then decisions.
"""

from __future__ import annotations

import numpy as np

from mark.dispatch.variants.slackfit import choose_shared, held_go_first, needed_s
from mark.simulator.engine import kernel
from mark.simulator.engine.kernel import BREACHED, DONE, QUEUE_FULL, Central, Fleet
from mark.simulator.engine.kernel_lambda import Pool, reap
from mark.simulator.engine.kernel_tally import Floats, Ints, Record, RunTally, second_of, shed, window_closed


def run(
    until: float,
    arrivals: Floats,
    sizes: Ints | None,
    index: int,
    rows: Ints,
    every: Ints,
    rules: Record,
    fleet: Fleet,
    pool: Pool,
    tally: RunTally,
) -> tuple[int, int]:
    """As `kernel.run`."""
    return _run(until, arrivals, sizes, index, rows, every, rules, fleet, pool, tally, fleet.central)


def settle(now: float, every: Ints, rules: Record, fleet: Fleet, pool: Pool, tally: RunTally) -> None:
    """As `kernel.settle`."""
    _settle(now, every, rules, fleet, pool, tally, fleet.central)


def dispatch(
    now: float, arrived_at: float, size: int, rows: Ints, rules: Record, fleet: Fleet, pool: Pool, tally: RunTally
) -> bool:
    """As `kernel.dispatch`: a request whose instance was lost joins the queue again."""
    return _dispatch(now, arrived_at, size, rows, rules, fleet, pool, tally, fleet.central)


def _run(
    until: float,
    arrivals: Floats,
    sizes: Ints | None,
    index: int,
    rows: Ints,
    every: Ints,
    rules: Record,
    fleet: Fleet,
    pool: Pool,
    tally: RunTally,
    central: Central | None,
) -> tuple[int, int]:
    if central is None:
        return kernel.run(until, arrivals, sizes, index, rows, every, rules, fleet, pool, tally)
    totals, marks = tally.totals, central.marks
    _decide(marks.now, rows, rules, fleet, central, tally)  # instances may have come or gone
    while True:
        now = totals.due_at
        if index < arrivals.size:
            now = min(now, arrivals[index])
        if not now < until:
            break
        marks.now = now
        _complete(now, every, rules, fleet, tally)
        is_full = False
        while index < arrivals.size and arrivals[index] <= now and not is_full:
            tally.seconds[second_of(now, rules)].arrivals += 1
            is_full = _join(arrivals[index], central)
            index += 1
        if is_full:
            return index, QUEUE_FULL
        _decide(now, rows, rules, fleet, central, tally)
        if window_closed(now, rules, totals):
            return index, BREACHED
    settle(until, every, rules, fleet, pool, tally)
    return index, DONE


def _settle(
    now: float, every: Ints, rules: Record, fleet: Fleet, pool: Pool, tally: RunTally, central: Central | None
) -> None:
    if central is None:
        kernel.settle(now, every, rules, fleet, pool, tally)
        return
    central.marks.now = now
    _complete(now, every, rules, fleet, tally)
    _give_up(now, rules, central, tally)
    for row in every:
        kernel.gain_credits(now, row, fleet)
    reap(now, rules, pool, tally)


def _dispatch(
    now: float,
    arrived_at: float,
    size: int,
    rows: Ints,
    rules: Record,
    fleet: Fleet,
    pool: Pool,
    tally: RunTally,
    central: Central | None,
) -> bool:
    if central is None:
        return kernel.dispatch(now, arrived_at, size, rows, rules, fleet, pool, tally)
    return _join(arrived_at, central)


def _complete(now: float, every: Ints, rules: Record, fleet: Fleet, tally: RunTally) -> None:
    """Answer the batches that have ended."""
    totals = tally.totals
    if now < totals.due_at:
        return
    due_at = np.inf
    for row in every:
        server = fleet.servers[row]
        if server.in_service > 0:
            if server.done_at <= now:
                kernel.complete_batch(row, rules, fleet, tally)
            else:
                due_at = min(due_at, server.done_at)
    totals.due_at = due_at


def _join(arrived_at: float, central: Central) -> bool:
    """It waits, behind those that are due before it; True where there is room for no other one."""
    queue, marks = central.queue, central.marks
    last = queue.size - 1
    place = marks.head + marks.waiting
    while place > marks.head and queue[(place - 1) & last] > arrived_at:
        queue[place & last] = queue[(place - 1) & last]
        place -= 1
    queue[place & last] = arrived_at
    marks.waiting += 1
    return bool(marks.waiting + marks.held > last)


def _decide(now: float, rows: Ints, rules: Record, fleet: Fleet, central: Central, tally: RunTally) -> None:
    """Each idle instance takes a batch of the most urgent requests, or of what is late."""
    marks, servers = central.marks, fleet.servers
    for row in rows:
        if marks.waiting + marks.held == 0:
            break
        if servers[row].in_service > 0:
            continue
        _set_late_aside(now, rows, rules, fleet, central, tally)
        last, kind = central.queue.size - 1, servers[row].kind
        slack_s = central.queue[marks.head & last] + central.variants.horizon_s - now
        waited = (now - central.held[marks.held_head & last]) / rules.give_up_s
        if held_go_first(kind, slack_s, marks.waiting, marks.held, waited, rows.size, central.shared):
            _start_held(now, row, fleet, central, tally)
        elif marks.waiting > 0:
            _start_urgent(now, slack_s, row, rows, fleet, central, tally)


def _set_late_aside(
    now: float, rows: Ints, rules: Record, fleet: Fleet, central: Central, tally: RunTally
) -> None:
    """Drop or hold the requests that no instance could answer in time."""
    queue, held, marks = central.queue, central.held, central.marks
    last, horizon_s = queue.size - 1, central.variants.horizon_s
    while marks.waiting > 0:
        arrived_at = queue[marks.head & last]
        if arrived_at + horizon_s - now >= _needs_s(rows, fleet, central):
            break
        marks.head = (marks.head + 1) & last
        marks.waiting -= 1
        if rules.shed_late:
            shed(arrived_at, rules, tally)
        else:
            held[(marks.held_head + marks.held) & last] = arrived_at
            marks.held += 1


def _needs_s(rows: Ints, fleet: Fleet, central: Central) -> float:
    """The least that any instance needs for the most urgent."""
    needs_s = np.inf
    for row in rows:
        needs_s = min(needs_s, needed_s(fleet.servers[row].kind, central.marks.waiting, central.shared))
    return needs_s


def _start_urgent(
    now: float, slack_s: float, row: int, rows: Ints, fleet: Fleet, central: Central, tally: RunTally
) -> None:
    """The instance takes the most urgent; one that is too slow for them leaves them to another type."""
    server, variants, queue, marks = fleet.servers[row], central.variants, central.queue, central.marks
    last, kind = queue.size - 1, server.kind
    if slack_s < central.shared.expected_s[kind, 1]:
        return
    next_idle_s = np.inf
    for other in rows:
        if other != row:
            rest_s = fleet.servers[other].free_at - now if fleet.servers[other].in_service > 0 else 0.0
            next_idle_s = min(next_idle_s, max(0.0, rest_s))
    batch, variant = choose_shared(kind, slack_s, marks.waiting, rows.size, next_idle_s, central.shared)
    taken = min(batch, server.max_batch, marks.waiting)
    if now + variants.latency_s[kind, variant, taken] > server.terminates_at:
        return
    server.head, server.variant = 0, variant
    for place in range(taken):
        fleet.queue[row, place] = queue[(marks.head + place) & last]
    marks.head = (marks.head + taken) & last
    marks.waiting -= taken
    _begin(now, row, taken, fleet, tally)


def _start_held(now: float, row: int, fleet: Fleet, central: Central, tally: RunTally) -> None:
    server, variants, held, marks = fleet.servers[row], central.variants, central.held, central.marks
    last, kind = held.size - 1, server.kind
    taken = min(server.max_batch, marks.held)
    variant = variants.fastest[kind]
    if now + variants.latency_s[kind, variant, taken] > server.terminates_at:
        return
    server.head, server.variant = 0, variant
    for place in range(taken):
        fleet.queue[row, place] = held[(marks.held_head + place) & last]
    marks.held_head = (marks.held_head + taken) & last
    marks.held -= taken
    _begin(now, row, taken, fleet, tally)


def _begin(now: float, row: int, taken: int, fleet: Fleet, tally: RunTally) -> None:
    kernel.run_batch(now, row, taken, fleet, tally.totals)
    tally.totals.due_at = min(tally.totals.due_at, fleet.servers[row].done_at)


def _give_up(now: float, rules: Record, central: Central, tally: RunTally) -> None:
    """Shed what has waited for the service's time-out."""
    queue, held, marks = central.queue, central.held, central.marks
    last = queue.size - 1
    while marks.waiting > 0 and now - queue[marks.head & last] > rules.give_up_s:
        shed(queue[marks.head & last], rules, tally)
        marks.head = (marks.head + 1) & last
        marks.waiting -= 1
    while marks.held > 0 and now - held[marks.held_head & last] > rules.give_up_s:
        shed(held[marks.held_head & last], rules, tally)
        marks.held_head = (marks.held_head + 1) & last
        marks.held -= 1
