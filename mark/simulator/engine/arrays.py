"""The arrays that the engine owns: how they are made, grown and summed up."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mark.cloudmodel import noise
from mark.controller.policy import MonitorPolicy
from mark.dispatch.overflow import BUCKETS
from mark.dispatch.policy import Bounced, DispatchPolicy, Late, Routing
from mark.dispatch.variants.qos import QosRule
from mark.dispatch.variants.qos_policy import UNTRAINED, network_of
from mark.dispatch.variants.serving import VariantServing
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import LambdaOffering
from mark.simulator.engine import kernel
from mark.simulator.engine.kernel_lambda import POOL, Pool
from mark.simulator.engine.kernel_tally import (
    COARSE_BINS,
    COARSE_S,
    FINE_BINS,
    FINE_S,
    HISTOGRAM_BINS,
    SECOND,
    TOTAL,
    Floats,
    Ints,
    Record,
    Records,
    RunTally,
)
from mark.simulator.results import Latency

FIRST_SLOTS, FIRST_QUEUE = 32, 64
LIVES = 4096
"""Draws of a Lambda environment's idle life, used in turn."""
DRAWS = 2**14
"""Draws of a time's noise, used in turn; a power of two."""
ONE_ZONE: Floats = np.ones(1)
"""Entry of requests where zones are not told apart."""
ENDLESS = int(np.iinfo(np.int64).max)
"""Requests of a window that never fills: nobody watches."""
_ROUTING = {
    Routing.LEAST_FINISH: kernel.BY_FINISH,
    Routing.WEIGHTED: kernel.BY_WEIGHT,
    Routing.LEAST_OUTSTANDING: kernel.BY_OUTSTANDING,
}


def rules(
    slo: Slo,
    dispatch: DispatchPolicy,
    overflow: LambdaOffering | None,
    *,
    start_at: float,
    seconds: int,
    monitor: MonitorPolicy | None,
    speed: float = 1.0,
    network_s: float = 0.0,
) -> Record:
    """The rules of a run as numbers, on the trace's clock: what takes real seconds takes `speed` times as long."""
    overflows = overflow is not None and dispatch.bounced is Bounced.LAMBDA
    values = {
        "routing": _ROUTING[dispatch.routing],
        "factor": math.inf if dispatch.admission_factor is None else dispatch.admission_factor,
        "shed_late": dispatch.late is Late.SHED,
        "give_up_s": dispatch.give_up_s * speed,
        "objective_s": slo.latency_s * speed,
        "target": slo.target,
        "start_at": start_at,
        "last_second": seconds - 1,
        "monitor_requests": monitor.requests if monitor else ENDLESS,
        "monitor_s": monitor.seconds if monitor else math.inf,
        "overflows": overflows,
        "has_backup": overflows and overflow is not None and overflow.is_backup(slo.latency_s),
        "lambda_s": overflow.latency_s * speed if overflow else 0.0,
        "cold_s": overflow.cold_start_s * speed if overflow else 0.0,
        "concurrency": overflow.concurrency if overflow else 0,
        "burst": overflow.burst if overflow else 1,
        "burst_window_s": overflow.burst_window_s * speed if overflow else 0.0,
        "speed": speed,
        "sigmas": dispatch.admission_sigmas,
        "network_s": network_s * speed,
    }
    made = records(kernel.RULES, 1)
    for name, value in values.items():
        made[name] = value
    return made[0]


def records(dtype: np.dtype[np.void], count: int) -> Records:
    """`count` records of zeros whose fields read as attributes."""
    return np.zeros(count, dtype).view(np.recarray)


def fleet(
    count: int,
    queue: int,
    max_batch: int,
    *,
    sized: bool,
    variants: kernel.Variants | None = None,
    entry: Floats = ONE_ZONE,
    central: kernel.Central | None = None,
) -> kernel.Fleet:
    """Room for `count` instances, each with a ring of `queue` requests, which have sizes where `sized`."""
    nobody = padded([[]] * entry.size)
    return kernel.Fleet(
        servers=records(kernel.SERVER, count),
        queue=np.zeros((count, queue)),
        sizes=np.zeros((count, queue), np.int64) if sized else None,
        batch_s=np.zeros((count, max_batch + 1)),
        noise=np.ones((1, DRAWS)),
        variants=variants,
        zones=kernel.Zones(entry, *nobody),
        central=central,
    )


def padded(lists: Sequence[Sequence[int] | Ints]) -> tuple[Ints, Ints]:
    """Lists of numbers as rows of one array, and their lengths."""
    counts = np.array([len(one) for one in lists], np.int64)
    rows = np.zeros((len(lists), max(1, int(counts.max(initial=0)))), np.int64)
    for place, one in enumerate(lists):
        rows[place, : len(one)] = one
    return rows, counts


def variants(serving: VariantServing, made: Record) -> kernel.Variants:
    """The variants of a run with these rules."""
    horizon_s, speed = float(made.objective_s - made.network_s), float(made.speed)
    return kernel.Variants(
        latency_s=serving.latency_s(speed),
        accuracy=np.array([variant.accuracy for variant in serving.table.variants]),
        fastest=np.array([serving.fastest(name) for name in serving.types]),
        least_s=np.array([speed * serving.least_s(name) for name in serving.types]),
        choices=serving.choices(horizon_s, speed),
        horizon_s=horizon_s,
        soft_s=speed * serving.deadlines.soft_s,
        hard_s=speed * serving.deadlines.hard_s,
        floor=serving.floor,
        left_s=speed * serving.deadlines.soft_s - float(made.network_s),
        qos=serving.qos_tables(),
        heuristic=serving.dispatch.rule is QosRule.HEURISTIC,
        network=network_of(serving.weights) if serving.weights else UNTRAINED,
    )


def central(serving: VariantServing, made: kernel.Variants, speed: float) -> kernel.Central:
    """An empty queue for all instances."""
    shared = serving.shared(made.choices, made.horizon_s, speed)
    marks = records(kernel.CENTRAL, 1)[0]
    return kernel.Central(np.zeros(FIRST_QUEUE), np.zeros(FIRST_QUEUE), marks, shared, made)


def with_longer_central(old: kernel.Fleet) -> kernel.Fleet:
    """Twice the room in the queue of all instances, unrolled so that it starts at its head."""
    assert old.central is not None, "asked of a fleet with one"
    queue, held, marks = old.central.queue, old.central.held, old.central.marks
    places = np.arange(queue.size)
    longer = [
        np.pad(ring[(head + places) % queue.size], (0, queue.size))
        for ring, head in ((queue, marks.head), (held, marks.held_head))
    ]
    marks.head = marks.held_head = 0
    return old._replace(central=old.central._replace(queue=longer[0], held=longer[1]))


def with_more_slots(old: kernel.Fleet) -> kernel.Fleet:
    """Twice the slots."""
    count = old.servers.size
    servers = records(kernel.SERVER, 2 * count)
    servers[:count] = old.servers
    rows = ((0, count), (0, 0))
    sizes = None if old.sizes is None else np.pad(old.sizes, rows)
    queue, batch_s = np.pad(old.queue, rows), np.pad(old.batch_s, rows)
    return old._replace(servers=servers, queue=queue, sizes=sizes, batch_s=batch_s)


def with_wider_batches(old: kernel.Fleet, max_batch: int) -> kernel.Fleet:
    """Room for batches of up to `max_batch`."""
    more = max_batch + 1 - old.batch_s.shape[1]
    return old._replace(batch_s=np.pad(old.batch_s, ((0, 0), (0, more))))


def with_longer_queues(old: kernel.Fleet) -> kernel.Fleet:
    """Rings twice as long, unrolled so that each starts at its head."""
    if old.central is not None:
        return with_longer_central(old)
    size = old.queue.shape[1]
    places = (old.servers.head[:, None] + np.arange(size)[None, :]) % size
    more = ((0, 0), (0, size))
    queue = np.pad(np.take_along_axis(old.queue, places, axis=1), more)
    sizes = None if old.sizes is None else np.pad(np.take_along_axis(old.sizes, places, axis=1), more)
    old.servers.head = 0
    return old._replace(queue=queue, sizes=sizes)


def pool(made: Record, overflow: LambdaOffering | None, rng: np.random.Generator) -> Pool:
    """An empty pool of Lambda environments."""
    room = max(1, int(made.concurrency))
    low, high = (overflow.idle_min_s, overflow.idle_max_s) if overflow else (0.0, 1.0)
    return Pool(
        marks=records(POOL, 1)[0],
        idle_until=np.zeros(room),
        rings=np.zeros((4, room)),
        started_at=np.zeros(int(made.burst)),
        idle_life_s=rng.uniform(low, high, LIVES),
        belief=np.zeros((2, BUCKETS), np.int64),
        noise=noise_factors(overflow.cv if overflow else 0.0, rng.standard_normal(DRAWS)),
    )


def noise_factors(cv: float, normals: Floats) -> Floats:
    """Factors on an expected time, one for each standard normal number."""
    return np.array(noise.noise_factors(cv, normals.tolist()))


def tally(start_at: float, seconds: int) -> RunTally:
    """Nothing has happened yet."""
    totals = records(TOTAL, 1)[0]
    totals.opened_at = start_at
    totals.closed_at = -np.inf
    return RunTally(
        seconds=records(SECOND, seconds),
        histogram=np.zeros(HISTOGRAM_BINS, np.int64),
        totals=totals,
    )


def summarise(made: RunTally) -> Latency:
    """Percentiles (upper edge of their bin), mean and the tail of the latencies counted in a tally."""
    edges = np.concatenate(
        (
            np.arange(1, FINE_BINS + 1) * FINE_S,
            FINE_BINS * FINE_S + np.arange(1, COARSE_BINS + 1) * COARSE_S,
        )
    )
    answered = int(made.histogram.sum())
    if answered == 0:
        empty = np.empty(0)
        return Latency(mean_s=0.0, p50_s=0.0, p95_s=0.0, p99_s=0.0, ccdf_s=empty, ccdf_share=empty)
    below = np.cumsum(made.histogram)
    p50, p95, p99 = (float(edges[np.searchsorted(below, q * answered)]) for q in (0.5, 0.95, 0.99))
    used = np.flatnonzero(made.histogram)
    return Latency(
        mean_s=float(made.totals.latency_sum) / answered,
        p50_s=p50,
        p95_s=p95,
        p99_s=p99,
        ccdf_s=edges[used],
        ccdf_share=1.0 - below[used] / answered,
    )
