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
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

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
    """

    devices: Mapping[str, int]
    sizes: tuple[int, ...]
    delay_s: Mapping[str, tuple[tuple[float, ...], ...]]
    kappa: tuple[float, ...]

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
    def patience_s(self) -> Floats:
        """Wait that still lets the most accurate variant answer SWITCH_ABOVE in time. shape (types,)."""
        batch = min(SWITCH_ABOVE, self.sizes[-1])
        return np.maximum(BIN_S, SOFT_S - self.latency_s[:, -1, batch])


def time_utility(delay_s: Floats) -> Floats:
    """Utility of answers by their delay since the query was sent; NaN, no answer, has none. Same shape."""
    return np.fmin(1.0, np.fmax(0.0, (HARD_S - delay_s) / (HARD_S - SOFT_S)))


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
    return _switched(FIXED_BATCH, state, pool)


def heuristic_choice(state: QosState, pool: QosPool) -> QosChoice:
    """What waits, up to SWITCH_ABOVE, by the accurate model; a larger batch of the small one where that is needed.

    It is needed where the throughput of the accurate model is below the device's share of ALPHA x the arrival rate
    + BETA x the queue over the time that it may wait (`patience_s`). The batch is then the smallest whose
    throughput is enough. The paper's Eq. 2 is not at hand: this is a reconstruction from its aims (low delay, the
    required throughput), its two weights and its threshold.
    """
    needed_qps = pool.share[state.kind] * (
        ALPHA * state.rate_qps + BETA * state.queued / pool.patience_s[state.kind]
    )
    for place, size in enumerate(pool.sizes):
        variant = 0 if size > SWITCH_ABOVE else len(pool.kappa) - 1
        if pool.throughput_qps[state.kind, variant, place] >= needed_qps:
            return _switched(max(size, SWITCH_ABOVE), state, pool)
    return _switched(pool.sizes[-1], state, pool)


def _switched(batch: int, state: QosState, pool: QosPool) -> QosChoice:
    """The most accurate variant answers, the least accurate one where more than SWITCH_ABOVE are taken."""
    return QosChoice(batch, 0 if min(batch, state.queued) > SWITCH_ABOVE else len(pool.kappa) - 1)
