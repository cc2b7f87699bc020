"""The inner loop of several models whose instances may share devices; plain Python, compiled by `compiled.py`.

A row of the fleet is a tenant: one model on one device, with a queue of its own. A device runs one batch at a time
and takes the next by the rules of `dispatch/instance/device.py`; an instance of one model is a device with one
tenant, and does to the last request what it does in `kernel.py`, whose functions these loops call. Rules, Lambda's
pools and counts are there once a model. Requests are of one item, and models have no variants.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mark.dispatch.bouncer import deviating_finish_at, stays
from mark.dispatch.instance.device import (
    is_idle,
    keeps_promises,
    likely_finish_at,
    next_tenant,
    shared_deviation_s,
    shared_finish_at,
    stays_late,
)
from mark.dispatch.instance.device_share import has_share, spares_own
from mark.dispatch.overflow import SHED, after_bounce, believed_warm, lambda_finish_at
from mark.dispatch.routing import NONE, OVERDUE_SHARE, least_outstanding, weighted
from mark.simulator.engine.kernel import (
    BOUNCED,
    BREACHED,
    BY_OUTSTANDING,
    BY_WEIGHT,
    DONE,
    FULL,
    QUEUE_FULL,
    TAKEN,
    Fleet,
    complete_batch,
    gain_credits,
    offer_lambda,
    overflow_to_lambda,
    start_batch,
    warm_one_more,
)
from mark.simulator.engine.kernel_lambda import Pool, reap
from mark.simulator.engine.kernel_lambda import start_environment as start_of_pool
from mark.simulator.engine.kernel_tally import (
    Floats,
    Ints,
    Record,
    Records,
    RunTally,
    second_of,
    shed,
    window_closed,
    zone_of_entry,
)

MARKS = np.dtype([("due_at", "f8"), ("missed", "i8"), ("concurrency", "i8")])
"""due_at: nothing ends before; missed: the model whose monitor stopped the run; concurrency: calls of Lambda that
the account allows at once."""


class Devices(NamedTuple):
    """Tenants by device: rows of the fleet, shape (devices, most tenants), the first `counts` of each device.

    `working` are those of them that hold a request, in their order, the first `works` of each device: the others
    delay nobody.
    """

    tenants: Ints
    counts: Ints
    working: Ints
    works: Ints
    #: Nothing on the device ends before, shape (devices,).
    due_at: Floats
    #: One record of MARKS.
    marks: Record


class Models(NamedTuple):
    """State of each model, by its number: rules, Lambda's pool and counts (`Pool`, `RunTally`).

    Both are put together where they are needed, because compiled code cannot return records.
    """

    rules: Records
    #: Accepting rows, shape (models, most), the first `accepting` of each; of these the first `own` not shared.
    rows: Ints
    accepting: Ints
    own: Ints
    #: The same by zone, shape (models, zones, most).
    near: Ints
    near_accepting: Ints
    near_own: Ints
    seconds: Records
    histogram: Ints
    totals: Records
    pool_marks: Records
    idle_until: Floats
    rings: Floats
    started_at: Floats
    idle_life_s: Floats
    belief: Ints
    noise: Floats


def run(
    until: float, arrivals: Floats, whose: Ints, index: int, fleet: Fleet, devices: Devices, models: Models
) -> tuple[int, int]:
    """Dispatch the arrivals before `until` from `index` on, then bring all devices to `until`.

    whose: the model of each arrival. Returns as `kernel.run`; `marks.missed` is the model whose window missed.
    """
    while index < arrivals.size and arrivals[index] < until:
        now, model = arrivals[index], whose[index]
        index += 1
        rules = models.rules[model]
        tally = RunTally(models.seconds[model], models.histogram[model], models.totals[model])
        tally.seconds[second_of(now, rules)].arrivals += 1
        if dispatch(now, now, model, fleet, devices, models):
            return index, QUEUE_FULL
        if window_closed(now, rules, tally.totals):
            devices.marks.missed = model
            return index, BREACHED
    settle(until, fleet, devices, models)
    return index, DONE


def settle(now: float, fleet: Fleet, devices: Devices, models: Models) -> None:
    """Complete everything that was answered by `now`; idle burstable servers show what they have earned."""
    devices.marks.due_at = -np.inf
    _advance(now, fleet, devices, models)
    for device in range(devices.counts.size):
        for place in range(devices.counts[device]):
            gain_credits(now, devices.tenants[device, place], fleet)
    for model in range(models.rules.size):
        _reap(now, model, models)


def _reap(now: float, model: int, models: Models) -> None:
    """Answer the calls of a model's Lambda that ended by `now`."""
    reap(
        now,
        models.rules[model],
        Pool(
            models.pool_marks[model],
            models.idle_until[model],
            models.rings[model],
            models.started_at[model],
            models.idle_life_s[model],
            models.belief[model],
            models.noise[model],
        ),
        RunTally(models.seconds[model], models.histogram[model], models.totals[model]),
    )


def start_environment(now: float, busy_s: float, model: int, models: Models) -> bool:
    """Start an environment of a model for a ping; False when too many were started at once."""
    return start_of_pool(
        now,
        np.nan,
        busy_s,
        models.rules[model],
        Pool(
            models.pool_marks[model],
            models.idle_until[model],
            models.rings[model],
            models.started_at[model],
            models.idle_life_s[model],
            models.belief[model],
            models.noise[model],
        ),
        RunTally(models.seconds[model], models.histogram[model], models.totals[model]),
    )


def dispatch(now: float, arrived_at: float, model: int, fleet: Fleet, devices: Devices, models: Models) -> bool:
    """Send one request somewhere; True when a queue has become full."""
    _advance(now, fleet, devices, models)
    rules, rows = models.rules[model], models.rows[model, : models.accepting[model]]
    deadline_at = arrived_at + rules.objective_s
    own, shared = rows[: models.own[model]], rows[models.own[model] :]
    outcome = BOUNCED
    zone = zone_of_entry(arrived_at, fleet.zones.entry)
    near = models.near[model, zone, : models.near_accepting[model, zone]]
    near_own, near_shared = near[: models.near_own[model, zone]], near[models.near_own[model, zone] :]
    if 0 < near_shared.size < shared.size:
        outcome = _offer(now, arrived_at, deadline_at, near_shared, True, rules, fleet, devices, models)
    if outcome == BOUNCED and rules.lambda_before_crossing and near.size < rows.size:
        outcome = _stay_or_call(now, arrived_at, deadline_at, near_own, model, fleet, devices, models)
    if outcome == BOUNCED and shared.size:
        outcome = _offer(now, arrived_at, deadline_at, shared, True, rules, fleet, devices, models)
    if outcome == BOUNCED:
        if 0 < near_own.size < own.size:
            outcome = _offer(now, arrived_at, deadline_at, near_own, False, rules, fleet, devices, models)
        if outcome == BOUNCED:
            outcome = _offer(now, arrived_at, deadline_at, own, False, rules, fleet, devices, models)
        if outcome != BOUNCED and shared.size and not rules.has_backup and arrived_at == now:
            row = _least_finish(now, deadline_at, shared, fleet, devices)
            if row != NONE and _spares_own(now, deadline_at, row, rules, fleet, devices):
                models.seconds[model][second_of(arrived_at, rules)].spared += 1
    if outcome == BOUNCED and shared.size:
        outcome = _offer(now, arrived_at, deadline_at, shared, False, rules, fleet, devices, models)
    if outcome == BOUNCED:
        outcome = _bounce(now, arrived_at, deadline_at, model, rows, fleet, devices, models)
    return bool(outcome == FULL)


def _stay_or_call(
    now: float,
    arrived_at: float,
    deadline_at: float,
    near_own: Ints,
    model: int,
    fleet: Fleet,
    devices: Devices,
    models: Models,
) -> int:
    """Offer it to the model's own instances in its zone, then to Lambda: a crossing costs more."""
    rules, outcome = models.rules[model], BOUNCED
    if near_own.size:
        outcome = _offer(now, arrived_at, deadline_at, near_own, False, rules, fleet, devices, models)
    if outcome == BOUNCED:
        _leave_calls(now, model, devices.marks.concurrency, models)
        pool = Pool(
            models.pool_marks[model],
            models.idle_until[model],
            models.rings[model],
            models.started_at[model],
            models.idle_life_s[model],
            models.belief[model],
            models.noise[model],
        )
        tally = RunTally(models.seconds[model], models.histogram[model], models.totals[model])
        outcome = offer_lambda(now, arrived_at, rules, pool, tally)
    return outcome


def _working(row: int, fleet: Fleet, devices: Devices) -> Ints:
    """The tenants with work of the device that this one runs on. shape (tenants,)."""
    return _working_on(fleet.servers[row].device_number, devices)


def _working_on(device: int, devices: Devices) -> Ints:
    found: Ints = devices.working[device, : devices.works[device]]
    return found


def _begin_work(row: int, device: int, devices: Devices) -> None:
    """A tenant that held nothing holds a request: it takes its place among those with work."""
    working, at = devices.working[device], devices.works[device]
    while at > 0 and _is_before(row, working[at - 1], devices.tenants[device]):
        working[at] = working[at - 1]
        at -= 1
    working[at] = row
    devices.works[device] += 1


def _is_before(row: int, other: int, tenants: Ints) -> bool:
    """True where it is placed before another tenant of its device."""
    place = 0
    while tenants[place] != row and tenants[place] != other:
        place += 1
    return bool(tenants[place] == row)


def _end_work(row: int, device: int, devices: Devices) -> None:
    """It holds nothing any more."""
    working, at = devices.working[device], 0
    while working[at] != row:
        at += 1
    devices.works[device] -= 1
    for place in range(at, devices.works[device]):
        working[place] = working[place + 1]


def _offer(
    now: float,
    arrived_at: float,
    deadline_at: float,
    rows: Ints,
    in_share: bool,
    rules: Record,
    fleet: Fleet,
    devices: Devices,
    models: Models,
) -> int:
    """Route it and let the Bouncer of that device say whether it stays there.

    in_share: only where the tenant has not taken what was planned for it.
    """
    row = _route(now, deadline_at, rows, rules, fleet, devices)
    if row == NONE or (in_share and not has_share(now / rules.speed, fleet.servers[row])):  # of real seconds
        return BOUNCED
    servers, tenants = fleet.servers, _working(row, fleet, devices)
    server = servers[row]
    finish_at = shared_finish_at(now, row, deadline_at, tenants, servers, fleet.queue)
    late_at = finish_at
    if rules.sigmas != 0.0 and server.cv > 0.0:
        deviation_s = shared_deviation_s(row, deadline_at, tenants, servers, fleet.queue)
        late_at = deviating_finish_at(now, finish_at, deviation_s, rules.sigmas)
    if not stays(finish_at, late_at, server.terminates_at, arrived_at, deadline_at, rules.factor):
        return BOUNCED
    if rules.factor < np.inf and not keeps_promises(
        now, row, deadline_at, tenants, servers, fleet.queue, rules.sigmas
    ):
        return BOUNCED
    if in_share:
        server.share_left -= 1.0
    is_planned = spares_own(in_share, rules.has_backup)
    return _enqueue_or_shed(row, now, arrived_at, finish_at, is_planned, fleet, devices, models)


def _spares_own(now: float, deadline_at: float, row: int, rules: Record, fleet: Fleet, devices: Devices) -> bool:
    """True where a shared instance that did not admit a request probably is in time, and is to take such ones.

    What is of the share is counted as if the tenant took it.
    """
    server = fleet.servers[row]
    in_share = server.shared and not rules.has_backup and has_share(now / rules.speed, server)  # of real seconds
    if not server.shared or not spares_own(in_share, rules.has_backup):
        return False
    tenants = _working(row, fleet, devices)
    if deadline_at < likely_finish_at(now, row, deadline_at, tenants, fleet.servers, fleet.queue):
        return False
    if in_share:
        server.share_left -= 1.0
    return True


def _route(now: float, deadline_at: float, rows: Ints, rules: Record, fleet: Fleet, devices: Devices) -> int:
    if rules.routing == BY_WEIGHT:
        return weighted(rows, fleet.servers)
    if rules.routing == BY_OUTSTANDING:
        return least_outstanding(rows, fleet.servers)
    return _least_finish(now, deadline_at, rows, fleet, devices)


def _least_finish(now: float, deadline_at: float, rows: Ints, fleet: Fleet, devices: Devices) -> int:
    """The tenant with the least predicted finish whose instance is still there by then."""
    best, best_at, servers = NONE, np.inf, fleet.servers
    for row in rows:
        tenants = _working(row, fleet, devices)
        at = shared_finish_at(now, row, deadline_at, tenants, servers, fleet.queue)
        for other in tenants:
            if servers[other].in_service > 0 and servers[other].free_at < now:
                at += OVERDUE_SHARE * servers[other].full_batch_s
        if at < best_at and at <= servers[row].terminates_at:
            best, best_at = row, at
    return best


def _bounce(
    now: float,
    arrived_at: float,
    deadline_at: float,
    model: int,
    rows: Ints,
    fleet: Fleet,
    devices: Devices,
    models: Models,
) -> int:
    """Its device did not admit it: Lambda, the instance that finishes first, or nobody."""
    rules = models.rules[model]
    tally = RunTally(models.seconds[model], models.histogram[model], models.totals[model])
    row = _least_finish(now, deadline_at, rows, fleet, devices)
    finish_at, harms_nobody = np.inf, False
    if row != NONE:
        tenants = _working(row, fleet, devices)
        harms_nobody = keeps_promises(now, row, deadline_at, tenants, fleet.servers, fleet.queue, rules.sigmas)
        # what would be shed where it is late itself makes nobody else late
        if not rules.shed_late or harms_nobody:
            finish_at = shared_finish_at(now, row, deadline_at, tenants, fleet.servers, fleet.queue)
    if rules.overflows:
        _leave_calls(now, model, devices.marks.concurrency, models)
        pool = Pool(
            models.pool_marks[model],
            models.idle_until[model],
            models.rings[model],
            models.started_at[model],
            models.idle_life_s[model],
            models.belief[model],
            models.noise[model],
        )
        reap(now, rules, pool, tally)
        in_flight = pool.marks.warm + pool.marks.cold
        warm = believed_warm(pool.belief, now)
        lambda_at = lambda_finish_at(now, in_flight, warm, rules.lambda_s, rules.cold_s)
        if harms_nobody and fleet.servers[row].shared and stays_late(finish_at, lambda_at, deadline_at):
            warm_one_more(now, deadline_at, rules, pool, tally)
            return _enqueue_or_shed(row, now, arrived_at, finish_at, True, fleet, devices, models)
        if overflow_to_lambda(now, arrived_at, finish_at, rules, pool, tally):
            return TAKEN
    give_up_s = rules.give_up_s
    if after_bounce(False, rules.shed_late, np.inf, finish_at, arrived_at, deadline_at, give_up_s) == SHED:
        shed(arrived_at, rules, tally)
        return TAKEN
    # what a shared instance cannot answer in time is load for the model's own fleet to come
    is_planned = row != NONE and _spares_own(now, deadline_at, row, rules, fleet, devices)
    return _enqueue_or_shed(row, now, arrived_at, finish_at, is_planned, fleet, devices, models)


def _leave_calls(now: float, model: int, most: int, models: Models) -> None:
    """Let a model have the calls of Lambda at once that the others leave of the account's."""
    own = models.pool_marks[model].warm + models.pool_marks[model].cold
    if most - (_calls(models) - own) <= own:
        for other in range(models.rules.size):
            _reap(now, other, models)
        own = models.pool_marks[model].warm + models.pool_marks[model].cold
    models.rules[model].concurrency = max(0, most - (_calls(models) - own))


def _calls(models: Models) -> int:
    """Calls of Lambda in flight, those that ended and were not looked at since too."""
    calls = 0
    for model in range(models.rules.size):
        calls += models.pool_marks[model].warm + models.pool_marks[model].cold
    return calls


def _enqueue_or_shed(
    row: int,
    now: float,
    arrived_at: float,
    finish_at: float,
    is_planned: bool,
    fleet: Fleet,
    devices: Devices,
    models: Models,
) -> int:
    """Queue it, or shed it where it would wait too long. is_planned: a shared instance takes it as planned."""
    server, queue = fleet.servers[row], fleet.queue
    rules = models.rules[server.model]
    if finish_at - arrived_at > rules.give_up_s:
        shed(
            arrived_at,
            rules,
            RunTally(models.seconds[server.model], models.histogram[server.model], models.totals[server.model]),
        )
        return TAKEN
    capacity = queue.shape[1]
    held = server.in_service + server.waiting
    queue[row, (server.head + held) & (capacity - 1)] = arrived_at
    server.waiting += 1
    if held == 0:
        _begin_work(row, server.device_number, devices)
    if server.shared and is_planned:
        models.seconds[server.model][second_of(arrived_at, rules)].on_shared += 1
    tenants = _working(row, fleet, devices)
    if is_idle(tenants, fleet.servers):
        _start_next(now, tenants, fleet, devices, models)
    return FULL if held + 2 > capacity else TAKEN


def _start_next(now: float, tenants: Ints, fleet: Fleet, devices: Devices, models: Models) -> bool:
    """Let a free device take its next batch; False where nothing waits."""
    row = next_tenant(tenants, fleet.servers, fleet.queue)
    if row == NONE:
        return False
    server = fleet.servers[row]
    start_batch(now, row, fleet, models.totals[server.model])
    devices.due_at[server.device_number] = server.done_at
    devices.marks.due_at = min(devices.marks.due_at, server.done_at)
    return True


def _advance(now: float, fleet: Fleet, devices: Devices, models: Models) -> None:
    """Complete the batches that ended by `now` and start what is next behind them."""
    if now < devices.marks.due_at:
        return
    due_at = np.inf
    for device in range(devices.counts.size):
        if devices.due_at[device] <= now:
            devices.due_at[device] = _advance_device(now, device, fleet, devices, models)
        due_at = min(due_at, devices.due_at[device])
    devices.marks.due_at = due_at


def _advance_device(now: float, device: int, fleet: Fleet, devices: Devices, models: Models) -> float:
    """The same for one device; when its batch in service ends, infinite where it is idle."""
    servers = fleet.servers
    while True:
        running = NONE
        for row in _working_on(device, devices):
            if servers[row].in_service > 0:
                running = row
        if running == NONE:
            return np.inf
        server = servers[running]
        if server.done_at > now:
            return float(server.done_at)
        finish_at = server.done_at
        complete_batch(
            running,
            models.rules[server.model],
            fleet,
            RunTally(models.seconds[server.model], models.histogram[server.model], models.totals[server.model]),
        )
        if server.waiting == 0:
            _end_work(running, device, devices)
        if not _start_next(finish_at, _working_on(device, devices), fleet, devices, models):
            return np.inf
