"""Schedulers that weigh quality against delay: which batch a free device takes, and which model answers it.

Z. Fang, T. Yu, O. J. Mengshoel, R. K. Gupta, "QoS-Aware Scheduling of Heterogeneous Servers for Inference in Deep
Neural Networks", CIKM 2017. The quality of an answer is the weight kappa of the model that gave it times the
utility of its delay: 1 until the soft deadline, falling linearly to 0 at the hard one. Delays count from when a
query was sent, so that the network's part of them is spent when it arrives.

A scheduler is a function from a state to a choice: `fixed_choice` and `heuristic_choice` here, the learned one in
`qos_policy`, the paper's own heuristic in `mark.studies.fang.equation2`. All times are s, all rates queries/s.
Variants are numbers, the least accurate first.

`heuristic_choice` is ours. It compares all pairs of batch and variant by one estimate, from what the most accurate
variant would achieve if it answered everything from now on, in batches of SWITCH_ABOVE, as fast as all devices are
together. A pair gains what its answers are worth beyond that, and the time that it saves or costs all others. A
second is worth as many answers as are late then, of those that wait and of those that come in the next
RATE_WINDOW_S, at most what it costs to gain a second by a less accurate variant. The baseline's pair is one of
them, and taken where no other one promises more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Delay = TypeVar("Delay", float, Floats)

SOFT_S, HARD_S = 1.0, 2.0
"""Deadlines of the paper: utility is 1 up to the first and 0 from the second on."""
BIN_S = 0.2
BINS_AHEAD, BINS_OVERDUE = 6, 4
"""The paper's histogram of waiting queries: bins of 200 ms ahead of the soft deadline, and beyond it."""
BINS = BINS_AHEAD + BINS_OVERDUE
RATE_WINDOW_S = 5.0
"""The paper's window of the arrival rate."""
SWITCH_ABOVE = 8
"""The fixed baseline answers larger batches by the small model: assumed, the paper does not say when it does."""
FIXED_BATCH = 32
"""The fixed baseline takes all that waits, up to so many."""
LEAST_PRICE = 0.1
"""Least that a second is worth, as a share of the most: where nothing is late, larger batches save some."""


class QosRule(StrEnum):
    """Rules by which an instance with a queue of its own chooses batch and variant."""

    FIXED = "qos-fixed"
    HEURISTIC = "qos-heuristic"
    LEARNED = "qos-rl"


class QosTables(NamedTuple):
    """A pool as arrays, for the decisions that are compiled."""

    #: shape (sizes,), batch sizes, rising
    sizes: Ints
    #: shape (types, variants, sizes), queries/s of full batches
    throughput_qps: Floats
    #: shape (types, variants, largest size + 1), expected seconds of a batch; inf where it is unknown
    latency_s: Floats
    #: shape (variants,), weights
    kappa: Floats
    #: shape (devices,), type of each
    kind_of: Ints
    #: shape (types,), the most accurate variant's usual batch: the largest up to SWITCH_ABOVE that it runs
    usual: Ints
    #: shape (types,), share of the load that a device is to take
    share: Floats
    #: shape (types,), the least quality that a second of all devices costs, if a less accurate variant gains it
    price: Floats
    #: from the soft deadline to the hard one
    fade_s: float
    #: queries/s of all devices on their fastest variant and batch
    most_qps: float
    #: whether a scheduler may let a device wait that is free
    waits: bool


class QosState(NamedTuple):
    """Facts that a scheduler decides on, when a device is free and a query waits."""

    #: type of the free device
    kind: int
    #: shape (queued,): time left to the soft deadline of each query that waits, the most urgent first
    left_s: Floats
    #: arrivals in the last RATE_WINDOW_S, queries/s
    rate_qps: float
    #: shape (devices,): expected rest of each device's batch, 0 where it is free; by type, rising within a type
    rest_s: Floats

    @property
    def queued(self) -> int:
        """Queries waiting."""
        return self.left_s.size


class QosChoice(NamedTuple):
    """A batch of at most so many (0 waits), and the variant that answers it."""

    batch: int
    variant: int


@dataclass(frozen=True)
class QosPool:
    """Devices, and how long each type takes by variant and batch.

    devices: how many by type, in the order in which free ones are served. sizes: batch sizes that a scheduler
    chooses among, rising from 1. delay_s: by type one row a variant, the least accurate first, a time for each of
    `sizes`; NaN where it is unknown, and a batch of that size is not allowed. kappa: each variant's weight.
    waits: whether a scheduler may let a device wait that is free. fade_s: from the soft deadline to the hard one.
    """

    devices: Mapping[str, int]
    sizes: tuple[int, ...]
    delay_s: Mapping[str, tuple[tuple[float, ...], ...]]
    kappa: tuple[float, ...]
    waits: bool = True
    fade_s: float = HARD_S - SOFT_S

    def __post_init__(self) -> None:
        if not self.devices or min(self.devices.values()) < 1:
            raise Misconfigured("a pool needs at least one device of each of its types")
        missing = [name for name in self.devices if name not in self.delay_s]
        if missing:
            raise Misconfigured(f"no delays are known of {', '.join(missing)}; known: {', '.join(self.delay_s)}")

    @property
    def kinds(self) -> tuple[str, ...]:
        """Types of devices; a device's type is a number in this order."""
        return tuple(self.devices)

    @cached_property
    def kind_of(self) -> Ints:
        """Type of each device. shape (devices,)."""
        return np.repeat(np.arange(len(self.devices)), list(self.devices.values()))

    @cached_property
    def latency_s(self) -> Floats:
        """Expected seconds of a batch; between measured sizes on the line that joins them, inf beyond.

        shape (types, variants, largest size + 1); column 0 is 0.
        """
        items = np.arange(self.sizes[-1] + 1)
        found = np.full((len(self.kinds), len(self.kappa), items.size), np.inf)
        for kind, name in enumerate(self.kinds):
            for variant, row in enumerate(self.delay_s[name]):
                known = ~np.isnan(row)
                sizes, seconds = np.array(self.sizes)[known], np.array(row)[known]
                found[kind, variant] = np.interp(items, sizes, seconds, right=np.inf)
        found[:, :, 0] = 0.0
        return found

    @cached_property
    def throughput_qps(self) -> Floats:
        """Queries/s of full batches, 0 where the time is unknown. shape (types, variants, sizes)."""
        return np.array(self.sizes) / self.latency_s[:, :, list(self.sizes)]

    @cached_property
    def usual(self) -> Ints:
        """The largest batch up to SWITCH_ABOVE that the most accurate variant runs. shape (types,)."""
        known = np.isfinite(self.latency_s[:, -1, : SWITCH_ABOVE + 1])
        return np.asarray(np.where(known, np.arange(known.shape[1]), 0).max(axis=1))

    @cached_property
    def usual_qps(self) -> Floats:
        """Queries/s of the most accurate variant in such batches. shape (types,)."""
        return np.asarray(self.usual / self.latency_s[np.arange(self.usual.size), -1, self.usual])

    @cached_property
    def share(self) -> Floats:
        """Share of the load that one device of each type is to take: that of `usual_qps`. shape (types,)."""
        return np.asarray(self.usual_qps / (self.usual_qps * list(self.devices.values())).sum())

    @cached_property
    def most_qps(self) -> float:
        """Queries/s of all devices on their fastest variant and batch."""
        return float((self.throughput_qps.max(axis=(1, 2)) * list(self.devices.values())).sum())

    @cached_property
    def price(self) -> Floats:
        """Least quality that a second of all devices costs, by type of the device that gains it. shape (types,).

        A less accurate variant gains time against the most accurate one in batches of SWITCH_ABOVE. Of several
        such variants the dearest counts, each in its cheapest batch; inf where none gains any.
        """
        each_s = self.latency_s[:, :-1, list(self.sizes)] / self.sizes
        gained_s = self.share[:, None, None] * (1 / self.usual_qps[:, None, None] - each_s)
        lost = np.broadcast_to(self.kappa[-1] - np.array(self.kappa[:-1])[:, None], gained_s.shape)
        cost = np.divide(lost, gained_s, out=np.full(gained_s.shape, np.inf), where=gained_s > 0)
        cheapest = cost.min(axis=2, initial=np.inf)
        return np.asarray(np.where(np.isfinite(cheapest), cheapest, 0.0).max(axis=1, initial=0.0))

    @cached_property
    def tables(self) -> QosTables:
        """The pool as arrays."""
        return QosTables(
            sizes=np.array(self.sizes),
            throughput_qps=self.throughput_qps,
            latency_s=self.latency_s,
            kappa=np.array(self.kappa),
            kind_of=self.kind_of,
            usual=self.usual,
            share=self.share,
            price=self.price,
            fade_s=self.fade_s,
            most_qps=self.most_qps,
            waits=self.waits,
        )


def time_utility(delay_s: Delay, soft_s: float = SOFT_S, hard_s: float = HARD_S) -> Delay:
    """Utility of answers by their delay since the query was sent; NaN, no answer, has none. Same shape."""
    return np.fmin(1.0, np.fmax(0.0, (hard_s - delay_s) / (hard_s - soft_s)))  # type: ignore[no-any-return]


def response_quality(delay_s: Floats, variant: Ints, kappa: Floats) -> Floats:
    """Weight of the variant that answered times the utility of the delay; 0 where nobody answered. Same shape."""
    return np.where(variant < 0, 0.0, kappa[variant]) * time_utility(delay_s)


def deadline_bins(left_s: Floats) -> Ints:
    """Histogram of queries by the time left to their soft deadline, negative once it is over. shape (BINS,).

    The first bin holds those with most time, the last the latest. Queries beyond either end are in none.
    """
    found = np.zeros(BINS, np.int64)
    for left in left_s:
        place = BINS_AHEAD - 1 - math.floor(left / BIN_S)
        if 0 <= place < BINS:
            found[place] += 1
    return found


def fixed_choice(state: QosState, pool: QosPool) -> QosChoice:
    """The baseline: all that waits up to FIXED_BATCH; the model is assumed, the small one above SWITCH_ABOVE."""
    return QosChoice(*fixed_pair(state.queued, len(pool.kappa)))


def heuristic_choice(state: QosState, pool: QosPool) -> QosChoice:
    """The pair of batch and variant that gains most by our estimate, else the baseline's."""
    return QosChoice(*heuristic_pair(*state, pool.tables))


def fixed_pair(queued: int, variants: int) -> tuple[int, int]:
    """Batch and variant of `fixed_choice`. variants: how many there are."""
    return FIXED_BATCH, 0 if min(FIXED_BATCH, queued) > SWITCH_ABOVE else variants - 1


def heuristic_pair(
    kind: int, left_s: Floats, rate_qps: float, rest_s: Floats, tables: QosTables
) -> tuple[int, int]:
    """Batch and variant of `heuristic_choice`."""
    latency_s, share, fade_s = tables.latency_s[kind], tables.share[kind], tables.fade_s
    best, queued = tables.kappa.size - 1, left_s.size
    usual = tables.usual[kind]
    pool_qps = usual / latency_s[best, usual] / share
    begins_s = (
        latency_s[best, usual] - usual / pool_qps / 2
    )  # an answer comes when its batch ends, not at its turn
    for device in range(rest_s.size):
        begins_s += rest_s[device] * tables.share[tables.kind_of[device]]
    late = late_arrivals(begins_s + queued / pool_qps, rate_qps, pool_qps)
    for place in range(queued):
        if begins_s + (place + 1) / pool_qps > left_s[place]:
            late += 1.0
    batch, variant = fixed_pair(queued, best + 1)
    gained, usual_worth, counted, smaller = -np.inf, 0.0, 0, 0
    for size in tables.sizes:
        if smaller >= queued:
            break
        smaller, taken = size, min(size, queued)
        while counted < taken:
            ends_s = begins_s + (counted + 1) / pool_qps
            usual_worth += tables.kappa[best] * (1.0 - min(1.0, max(0.0, ends_s - left_s[counted]) / fade_s))
            if ends_s > left_s[counted]:
                late -= 1.0
            counted += 1
        price = max(LEAST_PRICE * tables.price[kind], min(tables.price[kind], late))
        for number in range(best + 1):
            took_s = latency_s[number, taken]
            if took_s == np.inf:
                continue
            worth, place = float(taken), 0
            while place < taken and left_s[place] < took_s:
                worth -= min(1.0, (took_s - left_s[place]) / fade_s)
                place += 1
            gain = tables.kappa[number] * worth - usual_worth - price * (took_s * share - taken / pool_qps)
            if gain > gained:
                gained, batch, variant = gain, size, number
    return int(batch), int(variant)


def late_arrivals(ends_s: float, rate_qps: float, pool_qps: float) -> float:
    """Queries of the next RATE_WINDOW_S that are late, if one that came now were answered after `ends_s`."""
    late_s, gained = ends_s - SOFT_S, 1.0 - rate_qps / pool_qps
    if late_s > 0.0:  # until the queue is short enough
        lasts_s = RATE_WINDOW_S if gained * RATE_WINDOW_S <= late_s else late_s / gained
    else:  # from when it is too long
        lasts_s = 0.0 if gained * RATE_WINDOW_S >= late_s else RATE_WINDOW_S - late_s / gained
    return rate_qps * lasts_s


def queue_left(queue: Floats, head: int, held: int, left_s: float, unit_s: float) -> Floats:
    """Time left to the soft deadline of those that wait for an instance with a queue of its own. shape (held,).

    queue: a ring of arrivals, of which `held` from `head` on wait. left_s: what an arrival at instant 0 has left
    now to its soft deadline; unit_s: length of what counts as a second.
    """
    found = np.empty(held)
    for place in range(held):
        found[place] = (queue[(head + place) % len(queue)] + left_s) / unit_s
    return found


def arrival_rate(queue: Floats, head: int, held: int, now: float, window_s: float) -> float:
    """Requests a second that came in the last `window_s` to an instance with a queue of its own.

    queue: a ring of arrivals in order, of which `held` from `head` on are there; those before were answered, as
    far back as the ring reaches. Where that is less than the window, the rate is that of what it holds.
    """
    count, size = 0, len(queue)
    last = now
    while count < size:
        arrived_at = queue[(head + held - 1 - count) % size]
        if not max(0.0, now - window_s) < arrived_at <= last:
            return count / window_s
        last = arrived_at
        count += 1
    return count / max(now - last, 1e-6 * window_s)  # all at one instant is a high rate, not an infinite one
