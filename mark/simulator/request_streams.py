"""Arrivals of single requests, as times: bursty, accelerating, or with the rates of a trace.

A stream is a renewal process on the clock of its own expected arrivals, laid on real time by its rate. All times
are s, all rates requests/s, CV^2 the squared coefficient of variation of the gaps: 0 is even, 1 a Poisson process.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured

Floats = NDArray[np.float64]


def bursty_arrivals(
    base_rps: float, burst_rps: float, cv2: float, duration_s: float, rng: np.random.Generator
) -> Floats:
    """An even stream and one with gamma gaps, together (SuperServe, section 6.2.1). shape (arrivals,), rising."""
    even_s = np.arange(math.floor(base_rps * duration_s)) / base_rps if base_rps else np.empty(0)
    edges_s = np.array([0.0, duration_s])
    return np.sort(np.concatenate((even_s, arrivals_of_rates(np.array([burst_rps]), edges_s, cv2, rng))))


def accelerating_rates(
    from_rps: float, to_rps: float, acceleration: float, *, begins_s: float, duration_s: float
) -> tuple[Floats, Floats]:
    """Edges and mean rates of steps of 10 ms: steady until `begins_s`, then up by `acceleration` each second.

    Returns rates, shape (steps,), and edges in s, shape (steps + 1,).
    """
    if not (acceleration > 0 and to_rps >= from_rps):
        raise Misconfigured(
            f"a rate rises by more than 0 requests/s^2 to at least where it was, not {acceleration:g}"
        )
    edges_s = np.linspace(0.0, duration_s, math.ceil(duration_s * 100) + 1)
    middle_s = (edges_s[1:] + edges_s[:-1]) / 2
    return np.clip(from_rps + acceleration * (middle_s - begins_s), from_rps, to_rps), edges_s


def arrivals_of_rates(rates_rps: Floats, edges_s: Floats, cv2: float, rng: np.random.Generator) -> Floats:
    """Arrivals with gamma gaps on a clock that runs with the rate.

    rates_rps: shape (steps,); edges_s: shape (steps + 1,), s.
    """
    if not (np.isfinite(rates_rps).all() and (rates_rps >= 0).all() and cv2 >= 0):
        raise Misconfigured("rates and the variation of gaps are 0 or more")
    expected = np.concatenate(([0.0], np.cumsum(rates_rps * np.diff(edges_s))))
    return np.interp(_renewals(float(expected[-1]), cv2, rng), expected, edges_s)


def _renewals(end: float, cv2: float, rng: np.random.Generator) -> Floats:
    """Points below `end` with gaps of mean 1."""
    if cv2 == 0:
        return np.arange(math.ceil(end), dtype=np.float64)
    count = math.ceil(end + 6 * math.sqrt(cv2 * (end + 1)) + 10)
    points = np.cumsum(rng.gamma(1 / cv2, cv2, count))
    while points[-1] < end:  # so few gaps were six standard deviations too short
        points = np.concatenate((points, points[-1] + np.cumsum(rng.gamma(1 / cv2, cv2, count))))
    return points[points < end]
