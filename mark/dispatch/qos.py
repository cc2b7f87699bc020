"""Schedulers that weigh quality against delay: which batch a free device takes, and which model answers it.

Z. Fang, T. Yu, O. J. Mengshoel, R. K. Gupta, "QoS-Aware Scheduling of Heterogeneous Servers for Inference in Deep
Neural Networks", CIKM 2017. The quality of an answer is the weight kappa of the model that gave it times the
utility of its delay: 1 until the soft deadline, falling linearly to 0 at the hard one. Delays count from when a
query was sent, so that the network's part of them is spent when it arrives.

A scheduler is a function from a state to a choice: `fixed_choice` and `heuristic_choice` here, the learned one in
`qos_policy`. All times are s, all rates queries/s. Variants are numbers, the least accurate first.
"""

from __future__ import annotations

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
BINS_BEFORE, BINS_AFTER = 4, 6
"""The paper's histogram of waiting queries: bins of 200 ms before and after the soft deadline."""
BINS = BINS_BEFORE + BINS_AFTER
RATE_WINDOW_S = 5.0
"""The paper's window of the arrival rate."""
ALPHA = BETA = 0.5
"""The paper's weights of the heuristic."""
SWITCH_ABOVE = 8
"""Larger batches are answered by the small model: the heuristic's threshold, and the fixed baseline's."""
FIXED_BATCH = 32
"""The fixed baseline takes all that waits, up to so many."""


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
    #: shape (types,), share of the load that a device is to take
    share: Floats
    #: shape (types,), wait that still lets the most accurate variant answer in time
    patience_s: Floats
    #: queries/s of all devices on their fastest variant and batch
    most_qps: float
    #: whether a scheduler may let a device wait that is free
    waits: bool


class QosState(NamedTuple):
    """Facts that a scheduler decides on, when a device is free and a query waits."""

    #: type of the free device
    kind: int
    #: shape (BINS,): queries waiting by time left to the soft deadline, most time first
    bins: Ints
    #: queries waiting
    queued: int
    #: arrivals in the last RATE_WINDOW_S, queries/s
    rate_qps: float
    #: shape (types,): share of each type's devices that are free
    free: Floats


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
    waits: whether a scheduler may let a device wait that is free.
    """

    devices: Mapping[str, int]
    sizes: tuple[int, ...]
    delay_s: Mapping[str, tuple[tuple[float, ...], ...]]
    kappa: tuple[float, ...]
    waits: bool = True

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
    def share(self) -> Floats:
        """Share of the load that one device of each type is to take: that of its rate. shape (types,).

        The rate is the most accurate variant's, in batches of SWITCH_ABOVE.
        """
        batch = min(SWITCH_ABOVE, self.sizes[-1])
        rate = batch / self.latency_s[:, -1, batch]
        return np.asarray(rate / (rate * list(self.devices.values())).sum())

    @cached_property
    def most_qps(self) -> float:
        """Queries/s of all devices on their fastest variant and batch."""
        return float((self.throughput_qps.max(axis=(1, 2)) * list(self.devices.values())).sum())

    @cached_property
    def tables(self) -> QosTables:
        """The pool as arrays."""
        return QosTables(
            sizes=np.array(self.sizes),
            throughput_qps=self.throughput_qps,
            share=self.share,
            patience_s=self.patience_s,
            most_qps=self.most_qps,
            waits=self.waits,
        )

    @cached_property
    def patience_s(self) -> Floats:
        """Wait that still lets the most accurate variant answer SWITCH_ABOVE in time. shape (types,)."""
        batch = min(SWITCH_ABOVE, self.sizes[-1])
        return np.maximum(BIN_S, SOFT_S - self.latency_s[:, -1, batch])


def time_utility(delay_s: Delay, soft_s: float = SOFT_S, hard_s: float = HARD_S) -> Delay:
    """Utility of answers by their delay since the query was sent; NaN, no answer, has none. Same shape."""
    return np.fmin(1.0, np.fmax(0.0, (hard_s - delay_s) / (hard_s - soft_s)))  # type: ignore[no-any-return]


def response_quality(delay_s: Floats, variant: Ints, kappa: Floats) -> Floats:
    """Weight of the variant that answered times the utility of the delay; 0 where nobody answered. Same shape."""
    return np.where(variant < 0, 0.0, kappa[variant]) * time_utility(delay_s)


def deadline_bins(left_s: Floats) -> Ints:
    """Histogram of queries by the time left to their soft deadline, negative once it is over. shape (BINS,).

    The first bin holds those with most time, the last those that are latest; neither has an end.
    """
    place = BINS_BEFORE - 1 - np.floor(left_s / BIN_S)
    return np.bincount(np.clip(place, 0, BINS - 1).astype(np.int64), minlength=BINS)


def fixed_choice(state: QosState, pool: QosPool) -> QosChoice:
    """The paper's baseline: all that waits up to FIXED_BATCH, by the small model above SWITCH_ABOVE."""
    return QosChoice(*fixed_pair(state.queued, len(pool.kappa)))


def heuristic_choice(state: QosState, pool: QosPool) -> QosChoice:
    """Waiting requests up to SWITCH_ABOVE by the accurate model; a larger batch of the small one where needed.

    It is needed where the throughput of the accurate model is below the device's share of ALPHA x the arrival rate
    + BETA x the queue over the time that it may wait (`patience_s`). The batch is then the smallest whose
    throughput is enough. The paper's Eq. 2 is not at hand: this is a reconstruction from its aims (low delay, the
    required throughput), its two weights and its threshold.
    """
    return QosChoice(*heuristic_pair(state.kind, state.queued, state.rate_qps, pool.tables))


def fixed_pair(queued: int, variants: int) -> tuple[int, int]:
    """Batch and variant of `fixed_choice`. variants: how many there are."""
    return _switched(FIXED_BATCH, queued, variants)


def heuristic_pair(kind: int, queued: int, rate_qps: float, tables: QosTables) -> tuple[int, int]:
    """Batch and variant of `heuristic_choice`."""
    needed_qps = tables.share[kind] * (ALPHA * rate_qps + BETA * queued / tables.patience_s[kind])
    variants = tables.throughput_qps.shape[1]
    for place in range(tables.sizes.size):
        size = tables.sizes[place]
        variant = 0 if size > SWITCH_ABOVE else variants - 1
        if tables.throughput_qps[kind, variant, place] >= needed_qps:
            return _switched(max(int(size), SWITCH_ABOVE), queued, variants)
    return _switched(int(tables.sizes[-1]), queued, variants)


def _switched(batch: int, queued: int, variants: int) -> tuple[int, int]:
    """The most accurate variant answers, the least accurate one where more than SWITCH_ABOVE are taken."""
    return batch, 0 if min(batch, queued) > SWITCH_ABOVE else variants - 1


def queue_bins(queue: Floats, head: int, held: int, left_s: float, unit_s: float) -> Ints:
    """`deadline_bins` of an instance with a queue of its own. shape (BINS,).

    queue: a ring of arrivals, of which `held` from `head` on wait. left_s: what an arrival at instant 0 has left
    now to its soft deadline; unit_s: length of what the bins count as a second.
    """
    found = np.empty(held)
    for place in range(held):
        found[place] = (queue[(head + place) % len(queue)] + left_s) / unit_s
    return deadline_bins(found)


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
