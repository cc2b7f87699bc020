"""Published figures of Fang et al.: throughputs by batch, weights, and the results of tables 2 and 4.

Z. Fang, T. Yu, O. J. Mengshoel, R. K. Gupta, "QoS-Aware Scheduling of Heterogeneous Servers for Inference in Deep
Neural Networks", CIKM 2017.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mark.dispatch.variants.qos import QosPool

SMALL, LARGE = "yolo-tiny", "yolo-full"
SIZES = (1, 2, 4, 8, 16, 32, 64)
KAPPA = (0.5, 1.0)
"""Weights of tiny YOLO (mAP 57.1) and full YOLO (63.4)."""
THROUGHPUT_QPS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "p2.xlarge": (
        (23.8, 35.7, 63.5, 90.9, 109.6, 131.1, 141.9),
        (14.5, 18.9, 24.2, 28.4, 31.5, 33.9, 34.6),
    ),
    "g2.2xlarge": (
        (25.6, 35.7, 51.9, 66.1, 73.7, 84.7, 91.2),
        (9.4, 9.4, 12.3, 14.7, 16.0, 16.8, math.nan),
    ),
}
"""Table 1, of SMALL and LARGE by SIZES. Full YOLO in batches of 64 did not run on the g2."""
LOAD_OF_TEN = 8.0
"""The ten devices of table 4 meet so many times the load of the one of table 2."""

FIXED, HEURISTIC, LEARNED = "fixed", "heuristic", "learned"
SCHEDULERS = (FIXED, HEURISTIC, LEARNED)
FEWER_ACTIONS_PERCENT = 97.0
"""Of the learned scheduler on one device, against a clock of 10 ms: "only 3% action computations"."""
PERIODS = ("12-15", "15-18", "18-21", "21-24")
"""Hours of the day that the tables report."""


@dataclass(frozen=True, slots=True)
class Reported:
    """One line of a table: mean and deviation of response quality, percent answered by the small model."""

    quality: float
    deviation: float
    small_percent: float


TABLE2: dict[str, tuple[Reported, ...]] = {
    FIXED: (
        Reported(0.883, 0.204, 20.2),
        Reported(0.818, 0.235, 33.8),
        Reported(0.860, 0.218, 25.0),
        Reported(0.863, 0.218, 25.4),
    ),
    HEURISTIC: (
        Reported(0.968, 0.117, 5.5),
        Reported(0.915, 0.185, 16.3),
        Reported(0.950, 0.146, 9.2),
        Reported(0.939, 0.161, 11.7),
    ),
    LEARNED: (
        Reported(0.978, 0.084, 2.0),
        Reported(0.931, 0.149, 8.2),
        Reported(0.961, 0.114, 4.1),
        Reported(0.949, 0.132, 6.1),
    ),
}
"""One p2.xlarge; by scheduler a line for each of PERIODS."""
TABLE4: dict[str, tuple[Reported, ...]] = {
    FIXED: (
        Reported(0.820, 0.231, 32.6),
        Reported(0.767, 0.242, 43.5),
        Reported(0.801, 0.237, 36.5),
        Reported(0.813, 0.234, 34.4),
    ),
    HEURISTIC: (
        Reported(0.948, 0.148, 9.6),
        Reported(0.883, 0.210, 22.8),
        Reported(0.925, 0.176, 14.4),
        Reported(0.916, 0.186, 16.4),
    ),
    LEARNED: (
        Reported(0.955, 0.139, 8.2),
        Reported(0.895, 0.202, 20.6),
        Reported(0.933, 0.168, 12.8),
        Reported(0.922, 0.179, 14.8),
    ),
}
"""Five g2.2xlarge and five p2.xlarge, likewise."""


def pool_of(devices: Mapping[str, int]) -> QosPool:
    """A pool with the delays that Table 1 implies."""
    return QosPool(
        devices=devices,
        sizes=SIZES,
        delay_s={
            name: tuple(tuple(size / qps for size, qps in zip(SIZES, row, strict=True)) for row in rows)
            for name, rows in THROUGHPUT_QPS.items()
        },
        kappa=KAPPA,
    )
