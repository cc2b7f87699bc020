"""Latencies learned while queries are served: a line over sizes at first, then a table (Kairos, section 5.1).

A row of the profile that was answered has the mean of its answers. The others of that type lie on the line of
least squares through all of its answers, through the origin while they have one size. A type without an answer is
taken to answer at once, so that it is tried. Plain functions over arrays that the caller owns; times are ms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mark.dispatch.central.kairos import Timing

Floats = NDArray[np.float64]
SUMS = 5


class Learning(NamedTuple):
    """Answers so far."""

    #: shape (rows,), the size of each row; empty where nothing is to be learned
    sizes: Floats
    #: shape (types, SUMS): answers, and the sums of size, time, size x size, size x time
    sums: Floats
    #: shape (types, rows): answers of each row, and the sum of their times
    answers: Floats
    total_ms: Floats


def start_learning(types: int, sizes: Floats) -> Learning:
    """Nothing is known yet. sizes: shape (rows,)."""
    return Learning(sizes, np.zeros((types, SUMS)), np.zeros((types, sizes.size)), np.zeros((types, sizes.size)))


def learn(kind: int, row: int, took_ms: float, learning: Learning, timing: Timing) -> None:
    """Take in an answer, and predict its type anew: its latencies in `timing`, and all weights."""
    size, sums = learning.sizes[row], learning.sums[kind]
    sums[0] += 1.0
    sums[1] += size
    sums[2] += took_ms
    sums[3] += size * size
    sums[4] += size * took_ms
    learning.answers[kind, row] += 1.0
    learning.total_ms[kind, row] += took_ms
    spread = sums[0] * sums[3] - sums[1] * sums[1]
    slope, start = sums[2] / sums[1], 0.0
    if spread > 1e-9 * sums[3]:
        slope = max(0.0, (sums[0] * sums[4] - sums[1] * sums[2]) / spread)
        start = (sums[2] - slope * sums[1]) / sums[0]
    latency_ms, weight = timing.latency_ms, timing.weight
    rows = learning.sizes.size
    for other in range(rows):
        if learning.answers[kind, other] > 0:
            latency_ms[kind, other] = learning.total_ms[kind, other] / learning.answers[kind, other]
        else:
            latency_ms[kind, other] = max(0.0, start + slope * learning.sizes[other])
    for other in range(weight.size):
        base_ms, own_ms = latency_ms[0, rows - 1], latency_ms[other, rows - 1]
        weight[other] = base_ms / own_ms if base_ms > 0 and own_ms > 0 else 1.0
