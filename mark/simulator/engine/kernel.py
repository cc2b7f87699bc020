"""The request engine's inner loop, between two events of the control plane.

Plain Python over arrays that the caller owns; `compiled.py` compiles it together with the dispatch decisions it
calls. A request has a size in items, 1 where the load has none; a batch is limited in items and takes the time of
all of them. Servers are advanced lazily: a batch that ended by `now` is completed when its instance is next looked
at, and at the end of each stretch, always with its true finish time. State stands in a few arrays of records,
because compiled code pays for every array that it hands on. A batch's true end (`done_at`) is the engine's secret:
what decides about requests sees its expected end (`free_at`). Lambda's pool is in `kernel_lambda.py`, what is
counted in `kernel_tally.py`.

Without sizes `Fleet.sizes` is None, and so is `Fleet.variants` where the model has none. They are arguments of
each function that asks, because the compiler then leaves out what is not needed: this one source is compiled for
each case, and nothing costs time where it is not there. With variants, an instance chooses one, and how many take
part, when it starts a batch, by the slack of those that wait; admission counts on the fastest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mark.dispatch.batcher import batch_size, fits, places_after, places_ahead, places_left
from mark.dispatch.bouncer import late_finish_at, predicted_finish_at, stays
from mark.dispatch.instance.credits import earned, slowed_s
from mark.dispatch.instance.device import TENANT_FIELDS
from mark.dispatch.instance.device_share import SHARE_FIELDS
from mark.dispatch.overflow import (
    SHED,
    TO_LAMBDA,
    after_bounce,
    believed_warm,
    lambda_finish_at,
    note_in_flight,
    warms_one_more,
)
from mark.dispatch.routing import (
    NONE,
    SERVER_FIELDS,
    least_finish,
    least_finish_of_size,
    least_outstanding,
    sized_finish_at,
    weighted,
)
from mark.dispatch.variants.qos import (
    RATE_WINDOW_S,
    QosTables,
    arrival_rate,
    fixed_pair,
    heuristic_pair,
    queue_left,
    time_utility,
)
from mark.dispatch.variants.qos_policy import QosNetwork, learned_pair
from mark.dispatch.variants.slackfit import Choices, Shared, choose_waiting, spare_at
from mark.simulator.engine.kernel_lambda import Pool, invoke, reap, start_environment
from mark.simulator.engine.kernel_tally import (
    Floats,
    Ints,
    Record,
    Records,
    RunTally,
    answer,
    note_accuracy,
    second_of,
    shed,
    window_closed,
    zone_of_entry,
)

# Why `run` returned.
DONE, QUEUE_FULL, BREACHED = range(3)
# What became of a request that was offered to an instance: taken, taken into the ring's last place, not admitted.
TAKEN, FULL, BOUNCED = range(3)
# Routing rules as numbers.
BY_FINISH, BY_WEIGHT, BY_OUTSTANDING = range(3)


SERVER = np.dtype(
    [
        *SERVER_FIELDS.items(),
        ("done_at", "f8"),  # true end of the batch in service, s
        ("cv", "f8"),  # coefficient of variation of a batch's time
        ("noise", "i8"),  # row of Fleet.noise
        *TENANT_FIELDS.items(),
        ("standby", "i8"),
        ("zone", "i8"),  # its place in Zones.entry
        ("balance", "f8"),  # CPU credits at balance_at
        ("balance_at", "f8"),
        ("burn_per_s", "f8"),  # credits a second of work takes; 0 for types without credits
        ("earn_per_s", "f8"),
        ("max_balance", "f8"),
        ("slow", "f8"),  # how much longer work takes at baseline; 1 for unlimited types
        ("surplus", "f8"),  # credits used beyond the balance (unlimited types)
        # Where requests have sizes, `in_service` counts items and `waiting` places (`mark.dispatch.batcher`):
        ("serving", "i8"),  # requests in the batch in service
        ("queued", "i8"),  # requests queued behind it
        ("kind", "i8"),  # its type in Fleet.variants
        ("variant", "i8"),  # the variant that answers the batch in service
        # Where devices are shared (`kernel_devices.py`):
        ("model", "i8"),  # whose requests it answers
        ("device_number", "i8"),  # where it runs
        ("shared", "i8"),  # the instance is the service's
        ("busy_s", "f8"),  # what its batches took
        *SHARE_FIELDS.items(),
    ]
)
CENTRAL = np.dtype(
    [
        *((name, "i8") for name in ("head", "waiting", "held_head", "held")),
        ("now", "f8"),  # instant up to which the queue was served
    ]
)
RULES = np.dtype(
    [
        *((name, "?") for name in ("shed_late", "overflows", "has_backup", "lambda_before_crossing")),
        *((name, "i8") for name in ("routing", "monitor_requests", "concurrency", "burst")),
        ("last_second", "i8"),
        *((name, "f8") for name in ("factor", "give_up_s", "objective_s", "target", "start_at", "monitor_s")),
        *((name, "f8") for name in ("lambda_s", "cold_s", "burst_window_s", "speed", "sigmas", "network_s")),
    ]
)


class Variants(NamedTuple):
    """Variants of the model: what a batch takes, what it is worth, and the rule that chooses one.

    latency_s: shape (types, variants, largest batch + 1), expected seconds; accuracy: shape (variants,), shares.
    fastest: shape (types,), the variant that admission counts on; least_s: shape (types,), the slack that its
    largest batch needs. horizon_s: the slack of a request that has just arrived.
    """

    latency_s: Floats
    accuracy: Floats
    fastest: Ints
    least_s: Floats
    choices: Choices
    horizon_s: float
    #: Deadlines of an answer's worth, on the trace's clock.
    soft_s: float
    hard_s: float
    #: First variant that may answer.
    floor: int
    #: From a request's arrival to its soft deadline, less the network's part.
    left_s: float
    #: None unless the rule weighs quality; of these, whether it is the heuristic, and the learned one's weights,
    #: UNTRAINED for the others.
    qos: QosTables | None
    heuristic: bool
    network: QosNetwork


class Zones(NamedTuple):
    """Availability zones of the instances that a lone model's requests may go to.

    entry: where requests come in, as shares added up, shape (zones,). rows: accepting slots by zone, shape
    (zones, most), the first `counts` of each.
    """

    entry: Floats
    rows: Ints
    counts: Ints


class Central(NamedTuple):
    """One queue of requests for all instances (`kernel_deadlines.py`).

    queue: a ring of arrival times that never fall, which are deadlines too: all requests have one objective. held:
    a ring of those that nobody can answer in time any more. Their capacities are powers of two. marks: one record
    of CENTRAL. shared: the decisions. variants: those of the fleet.
    """

    queue: Floats
    held: Floats
    marks: Record
    shared: Shared
    variants: Variants


class Fleet(NamedTuple):
    """One row per instance. servers: records of SERVER; batch_s: shape (slots, largest batch + 1), seconds.

    queue: shape (slots, capacity), rings of arrival times, those in service first; capacity is a power of two.
    sizes: the items of the same requests; None where all have one.
    noise: shape (kinds, draws), factors on a batch's time used in turn; row 0 is without noise.
    variants: those of the model; None where it has one.
    central: the queue of all instances; None where each has its own.
    """

    servers: Records
    queue: Floats
    sizes: Ints | None
    batch_s: Floats
    noise: Floats
    variants: Variants | None
    zones: Zones
    central: Central | None


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
    """Dispatch the arrivals before `until` from `index` on, then bring all servers to `until`.

    sizes: items of each arrival, None where all have one.
    rows: the accepting slots, every: all slots in use. Returns the next index and why it stopped: DONE,
    QUEUE_FULL (grow the rings and call again) or BREACHED (the monitor's window missed the target).
    """
    while index < arrivals.size and arrivals[index] < until:
        now = arrivals[index]
        index += 1
        tally.seconds[second_of(now, rules)].arrivals += 1
        size = _size_at(index - 1, sizes)
        if dispatch(now, now, size, rows, rules, fleet, pool, tally):
            return index, QUEUE_FULL
        if window_closed(now, rules, tally.totals):
            return index, BREACHED
    settle(until, every, rules, fleet, pool, tally)
    return index, DONE


def settle(now: float, every: Ints, rules: Record, fleet: Fleet, pool: Pool, tally: RunTally) -> None:
    """Complete everything that was answered by `now`; idle burstable servers show what they have earned."""
    tally.totals.due_at = -np.inf  # routing looked at the accepting ones only; those that drain are due too
    _advance_all(now, every, rules, fleet, tally)
    for row in every:
        gain_credits(now, row, fleet)
    reap(now, rules, pool, tally)


def gain_credits(now: float, row: int, fleet: Fleet) -> None:
    """Let an idle burstable server show what it has earned."""
    server = fleet.servers[row]
    if server.burn_per_s > 0.0 and server.in_service == 0:
        elapsed_s = max(0.0, now - server.balance_at)
        balance = earned(server.balance, elapsed_s, server.earn_per_s, server.max_balance)
        show_pace(balance, server, fleet.batch_s[row])


def dispatch(
    now: float, arrived_at: float, size: int, rows: Ints, rules: Record, fleet: Fleet, pool: Pool, tally: RunTally
) -> bool:
    """Send one request somewhere; True when a queue has become full."""
    outcome = BOUNCED
    near = _near(arrived_at, fleet.zones)
    if 0 < near.size < rows.size:
        _advance_all(now, rows, rules, fleet, tally)
        outcome = _offer(now, arrived_at, size, near, rules, fleet, tally)
    if outcome == BOUNCED and near.size < rows.size and rules.lambda_before_crossing:
        outcome = offer_lambda(now, arrived_at, rules, pool, tally)
    if outcome == BOUNCED:
        outcome = _offer(now, arrived_at, size, rows, rules, fleet, tally)
    if outcome == BOUNCED:
        outcome = _bounce(now, arrived_at, size, rows, rules, fleet, pool, tally)
    return bool(outcome == FULL)


def _near(arrived_at: float, zones: Zones) -> Ints:
    """The accepting slots of the zone in which a request came in."""
    zone = zone_of_entry(arrived_at, zones.entry)
    found: Ints = zones.rows[zone, : zones.counts[zone]]
    return found


def offer_lambda(now: float, arrived_at: float, rules: Record, pool: Pool, tally: RunTally) -> int:
    """Send it to Lambda where that is in time: a crossing costs more."""
    reap(now, rules, pool, tally)
    warm = believed_warm(pool.belief, now)
    lambda_at = lambda_finish_at(now, pool.marks.warm + pool.marks.cold, warm, rules.lambda_s, rules.cold_s)
    if lambda_at > arrived_at + rules.objective_s:
        return BOUNCED
    return TAKEN if overflow_to_lambda(now, arrived_at, np.inf, rules, pool, tally) else BOUNCED


def _offer(
    now: float, arrived_at: float, size: int, rows: Ints, rules: Record, fleet: Fleet, tally: RunTally
) -> int:
    """Route it and let the Bouncer of that instance say whether it stays there."""
    row = _route(now, size, rows, rules, fleet, tally)
    if row == NONE:
        return BOUNCED
    server = fleet.servers[row]
    if server.in_service > 0 and server.done_at <= now:
        _advance(row, now, rules, fleet, tally)
    finish_at = _finish_at(now, size, row, fleet)
    late_at = late_finish_at(
        now,
        finish_at,
        server.in_service,
        _ahead(size, server, fleet.sizes),
        server.max_batch,
        server.full_batch_s,
        server.cv,
        rules.sigmas,
    )
    deadline_at = arrived_at + rules.objective_s
    if stays(finish_at, late_at, server.terminates_at, arrived_at, deadline_at, rules.factor):
        return _enqueue_or_shed(row, now, arrived_at, size, finish_at, rules, fleet, tally)
    return BOUNCED


def _route(now: float, size: int, rows: Ints, rules: Record, fleet: Fleet, tally: RunTally) -> int:
    if rules.routing == BY_WEIGHT:
        return weighted(rows, fleet.servers)
    _advance_all(now, rows, rules, fleet, tally)
    if rules.routing == BY_OUTSTANDING:
        return least_outstanding(rows, fleet.servers)
    return _least_finish(now, size, rows, fleet, fleet.sizes)


def _least_finish(now: float, size: int, rows: Ints, fleet: Fleet, sizes: Ints | None) -> int:
    """`least_finish`, where an instance takes its own time for this size."""
    if sizes is None:
        return least_finish(now, rows, fleet.servers)
    return least_finish_of_size(now, size, rows, fleet.servers, fleet.batch_s)


def _bounce(
    now: float, arrived_at: float, size: int, rows: Ints, rules: Record, fleet: Fleet, pool: Pool, tally: RunTally
) -> int:
    """Its instance did not admit it: Lambda, the instance that finishes first, or nobody."""
    _advance_all(now, rows, rules, fleet, tally)
    deadline_at = arrived_at + rules.objective_s
    row = _least_finish(now, size, rows, fleet, fleet.sizes)
    finish_at = _finish_at(now, size, row, fleet) if row != NONE else np.inf
    if rules.overflows and overflow_to_lambda(now, arrived_at, finish_at, rules, pool, tally):
        return TAKEN
    give_up_s = rules.give_up_s
    if after_bounce(False, rules.shed_late, np.inf, finish_at, arrived_at, deadline_at, give_up_s) == SHED:
        shed(arrived_at, rules, tally)
        return TAKEN
    return _enqueue_or_shed(row, now, arrived_at, size, finish_at, rules, fleet, tally)


def overflow_to_lambda(
    now: float, arrived_at: float, instance_at: float, rules: Record, pool: Pool, tally: RunTally
) -> bool:
    """Send it to Lambda if that is where it should go and Lambda takes it."""
    reap(now, rules, pool, tally)
    marks = pool.marks
    deadline_at = arrived_at + rules.objective_s
    warm = believed_warm(pool.belief, now)
    lambda_at = lambda_finish_at(now, marks.warm + marks.cold, warm, rules.lambda_s, rules.cold_s)
    if rules.shed_late and lambda_at > deadline_at:
        warm_one_more(now, deadline_at, rules, pool, tally)
    give_up_s = rules.give_up_s
    where = after_bounce(True, rules.shed_late, lambda_at, instance_at, arrived_at, deadline_at, give_up_s)
    if where != TO_LAMBDA or not invoke(now, arrived_at, rules, pool, tally):
        return False
    tally.seconds[second_of(arrived_at, rules)].to_lambda += 1
    return True


def warm_one_more(now: float, deadline_at: float, rules: Record, pool: Pool, tally: RunTally) -> None:
    """Start an environment for the requests to come, where this one would meet none that is warm."""
    in_flight = pool.marks.warm + pool.marks.cold
    if warms_one_more(now, deadline_at, rules.lambda_s, in_flight, rules.concurrency):
        start_environment(now, np.nan, rules.cold_s, rules, pool, tally)
        note_in_flight(pool.belief, now, pool.marks.warm + pool.marks.cold)


def _finish_at(now: float, size: int, row: int, fleet: Fleet) -> float:
    return _finish_of(now, size, fleet.servers[row], fleet.batch_s[row], fleet.sizes)


def _finish_of(now: float, size: int, server: Record, batch_s: Floats, sizes: Ints | None) -> float:
    if sizes is not None:
        return sized_finish_at(now, size, server, batch_s)
    return predicted_finish_at(
        now,
        server.free_at,
        server.in_service,
        server.waiting,
        server.max_batch,
        server.single_s,
        server.full_batch_s,
    )


def _size_at(place: int, sizes: Ints | None) -> int:
    return 1 if sizes is None else sizes[place]


def _ahead(size: int, server: Record, sizes: Ints | None) -> int:
    if sizes is None:
        return int(server.waiting)
    return places_ahead(server.in_service, server.waiting, size, server.max_batch)


def _enqueue_or_shed(
    row: int,
    now: float,
    arrived_at: float,
    size: int,
    finish_at: float,
    rules: Record,
    fleet: Fleet,
    tally: RunTally,
) -> int:
    if finish_at - arrived_at > rules.give_up_s:
        shed(arrived_at, rules, tally)
        return TAKEN
    server, queue = fleet.servers[row], fleet.queue
    capacity = queue.shape[1]
    held = held_requests(server, fleet.sizes)
    place = (server.head + held) & (capacity - 1)
    queue[row, place] = arrived_at
    _join(size, row, place, server, fleet.sizes)
    if server.in_service == 0:
        start_batch(now, row, fleet, tally.totals)
        tally.totals.due_at = min(tally.totals.due_at, server.done_at)
    return FULL if held + 2 > capacity else TAKEN


def start_batch(now: float, row: int, fleet: Fleet, totals: Record) -> None:
    """Take the next batch from the queue of an idle row into service."""
    server = fleet.servers[row]
    most = _choose_variant(now, server, fleet.queue[row], fleet.variants, totals)
    run_batch(now, row, _take(row, server, most, fleet.sizes), fleet, totals)


def run_batch(now: float, row: int, items: int, fleet: Fleet, totals: Record) -> None:
    """So many items that the row holds are in service from now on."""
    server, batch_s, noise = fleet.servers[row], fleet.batch_s[row], fleet.noise
    factor = noise[server.noise, totals.drawn & (noise.shape[1] - 1)]
    totals.drawn += 1
    expected_s = _expected_s(items, server, batch_s, fleet.variants)
    if server.burn_per_s > 0.0:
        expected_s = _spend_credits(now, expected_s * factor, server, batch_s) / factor
    server.in_service = items
    server.free_at = now + expected_s
    server.done_at = now + expected_s * factor
    server.busy_s += expected_s * factor


def held_requests(server: Record, sizes: Ints | None) -> int:
    """Requests in service or waiting."""
    if sizes is None:
        return int(server.in_service + server.waiting)
    return int(server.serving + server.queued)


def _join(size: int, row: int, place: int, server: Record, sizes: Ints | None) -> None:
    """It waits: its size is noted at its place in the ring."""
    if sizes is None:
        server.waiting += 1
    else:
        sizes[row, place] = size
        server.waiting = places_after(server.waiting, size, server.max_batch)
        server.queued += 1


def _choose_variant(now: float, server: Record, queue: Floats, variants: Variants | None, totals: Record) -> int:
    """Choose who answers the next batch; returns how many may take part."""
    if variants is None:
        return int(server.max_batch)
    return _choose_by_rule(now, server, queue, variants, variants.qos, totals)


def _choose_by_rule(
    now: float, server: Record, queue: Floats, variants: Variants, qos: QosTables | None, totals: Record
) -> int:
    """By slack, or by quality."""
    if qos is not None:
        most, number, is_sure = quality_pair(now, server.kind, queue, server.head, server.waiting, variants, qos)
        totals.fallback_decisions += not is_sure
        server.variant = variants.floor + number
        return int(min(most, server.max_batch))
    spare = spare_at(queue, server.head, server.waiting, server.max_batch, server.full_batch_s)
    slack_s = variants.horizon_s - now + spare
    fastest, least_s = variants.fastest[server.kind], variants.least_s[server.kind]
    most, server.variant = choose_waiting(
        server.kind, slack_s, server.waiting, server.max_batch, fastest, least_s, variants.choices
    )
    return int(most)


def quality_pair(
    now: float, kind: int, queue: Floats, head: int, waiting: int, variants: Variants, qos: QosTables
) -> tuple[int, int, bool]:
    """Batch and variant of a rule that weighs quality, whose unit of time is the soft deadline.

    False where the heuristic decided because the network could not tell.
    """
    unit_s, is_learned = variants.soft_s, variants.network.least.size > 0
    if not (variants.heuristic or is_learned):
        return *fixed_pair(waiting, qos.throughput_qps.shape[1]), True
    rate = arrival_rate(queue, head, waiting, now, RATE_WINDOW_S * unit_s) * unit_s
    left_s = queue_left(queue, head, waiting, variants.left_s - now, unit_s)
    if is_learned:
        return learned_pair(kind, left_s, rate, np.zeros(1), qos, variants.network)
    return *heuristic_pair(kind, left_s, rate, np.zeros(1), qos), True


def _expected_s(items: int, server: Record, batch_s: Floats, variants: Variants | None) -> float:
    if variants is None:
        return float(batch_s[items])
    return float(variants.latency_s[server.kind, server.variant, items])


def _take(row: int, server: Record, most: int, sizes: Ints | None) -> int:
    """Take the next batch from the queue, of so many requests at most where they have no sizes; its items."""
    if sizes is None:
        taken = batch_size(server.waiting, most)
        server.waiting -= taken
        return taken
    requests, items = 0, 0
    while requests < server.queued:
        size = sizes[row, (server.head + requests) & (sizes.shape[1] - 1)]
        if not fits(items, size, server.max_batch):
            break
        requests += 1
        items += size
    server.waiting = places_left(server.waiting, items, server.max_batch)
    server.queued -= requests
    server.serving = requests
    return items


def _leave(server: Record, sizes: Ints | None) -> None:
    if sizes is not None:
        server.serving = 0


def _served_requests(server: Record, sizes: Ints | None) -> int:
    return int(server.in_service if sizes is None else server.serving)


def _spend_credits(now: float, work_s: float, server: Record, batch_s: Floats) -> float:
    """Take the batch's credits from the balance; the seconds it takes with what was there."""
    elapsed_s = now - server.balance_at
    balance = earned(server.balance, elapsed_s, server.earn_per_s, server.max_balance)
    needed = work_s * server.burn_per_s
    server.balance_at = now
    server.balance = max(0.0, balance - needed)
    show_pace(server.balance, server, batch_s)
    if server.slow <= 1.0:  # unlimited: full speed, the rest is billed
        server.surplus += max(0.0, needed - balance)
        return work_s
    takes_s = slowed_s(balance, needed, work_s, server.slow)
    if needed > balance:
        server.balance_at = now + takes_s  # baseline is the speed that uses up what is earned
    return takes_s


def show_pace(balance: float, server: Record, batch_s: Floats) -> None:
    """Let the Bouncer see the speed to come: baseline once a full batch is no longer covered by credits."""
    full_batch_s = batch_s[server.max_batch]
    pace = 1.0 if balance >= full_batch_s * server.burn_per_s else server.slow
    server.single_s = batch_s[1] * pace
    server.full_batch_s = full_batch_s * pace


def _advance_all(now: float, rows: Ints, rules: Record, fleet: Fleet, tally: RunTally) -> None:
    """Complete what is due on all rows; nothing is before `totals.due_at`, the earliest end of a batch."""
    totals = tally.totals
    if now < totals.due_at:
        return
    servers = fleet.servers
    due_at = np.inf
    for row in rows:
        server = servers[row]
        if server.in_service > 0:
            if server.done_at <= now:
                _advance(row, now, rules, fleet, tally)
            if server.in_service > 0:
                due_at = min(due_at, server.done_at)
    totals.due_at = due_at


def _advance(row: int, now: float, rules: Record, fleet: Fleet, tally: RunTally) -> None:
    """Complete the batches that ended by `now` and start what waited behind them."""
    server = fleet.servers[row]
    while server.in_service > 0 and server.done_at <= now:
        finish_at = server.done_at
        complete_batch(row, rules, fleet, tally)
        if server.waiting > 0:
            start_batch(finish_at, row, fleet, tally.totals)


def complete_batch(row: int, rules: Record, fleet: Fleet, tally: RunTally) -> None:
    """The batch in service ends when it truly does: answer its requests."""
    server, held = fleet.servers[row], fleet.queue[row]
    capacity, finish_at = held.size, server.done_at
    requests = _served_requests(server, fleet.sizes)
    for place in range(requests):
        arrived_at = held[(server.head + place) & (capacity - 1)]
        answer(arrived_at, finish_at, rules, tally)
        tally.totals.crossed += server.zone != zone_of_entry(arrived_at, fleet.zones.entry)
        _note_variant(arrived_at, finish_at, server, rules, fleet.variants, tally)
    _count_batch(requests, server, tally.totals)
    server.head = (server.head + requests) & (capacity - 1)
    server.in_service = 0
    _leave(server, fleet.sizes)


def _note_variant(
    arrived_at: float,
    finish_at: float,
    server: Record,
    rules: Record,
    variants: Variants | None,
    tally: RunTally,
) -> None:
    if variants is not None:
        accuracy = variants.accuracy[server.variant]
        note_accuracy(arrived_at, accuracy, rules, tally)
        taken_s = finish_at - arrived_at + rules.network_s
        tally.totals.quality_sum += accuracy * time_utility(taken_s, variants.soft_s, variants.hard_s)


def _count_batch(requests: int, server: Record, totals: Record) -> None:
    totals.batches += 1
    if server.standby:
        totals.standby += requests
    else:
        totals.instance += requests
