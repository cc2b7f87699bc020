"""What the load of each unit to come may be: expected requests that a capacity would carry.

A forecast gives quantiles of each unit's mean and of its highest 5 s window. Taken together (a high mean comes
with a high maximum) they are a distribution of the rate within that unit: one window in twelve runs at the
maximum, the others at what is left of the mean. Around each of these rates arrivals are Poisson; a fleet evens out
what comes within one objective's time, so the rate that counts is normal with the variance of that many seconds.

    carried[t, i] = E[min(rate in unit t, level i)],  requests/s

is all that a planner needs: an instance that serves the levels from z to z + c carries carried(z + c) -
carried(z).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import ndtr

from mark.domain.demand import WINDOW_S, Forecast
from mark.domain.errors import PlanInfeasible

NODES = 20
"""Equally likely cases that a distribution is cut into."""
LEVELS = 240
"""Levels of capacity that are told apart, from 0 to the highest rate that may come."""
TAIL_SIGMAS = 2.0
"""The top level lies so many standard deviations of arrivals above the highest quantile."""

EDGE, STEPS = 5.0, 64
_AT = np.linspace(-EDGE, EDGE, round(2 * EDGE * STEPS) + 1)
IDLE = _AT * ndtr(_AT) + np.exp(-0.5 * _AT**2) / math.sqrt(2.0 * math.pi)
"""E[max(x - Z, 0)] for a standard normal Z, at STEPS points a unit of x: what a level idles around its rate."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTable:
    """levels: shape (LEVELS + 1,), requests/s, evenly from 0; carried: shape (units, LEVELS + 1), requests/s."""

    levels: Floats
    carried: Floats
    unit_s: float


def expect_rates(forecast: Forecast, *, smoothing_s: float) -> RateTable:
    """The table of a forecast. smoothing_s: how long a request may wait. Errors: PlanInfeasible if not finite."""
    means = _cases(np.array(forecast.mean_rps, np.float64), forecast.quantiles)
    maxima = np.maximum(_cases(np.array(forecast.max_rps, np.float64), forecast.quantiles), means)
    if not means.size or not (np.isfinite(means).all() and np.isfinite(maxima).all()):
        raise PlanInfeasible("the forecast is empty or not finite; plan with the fallback forecast")
    windows = forecast.unit_s / WINDOW_S
    usual = np.maximum(0.0, (windows * means - maxima) / (windows - 1.0))
    top = float(maxima.max())
    top += TAIL_SIGMAS * math.sqrt(top / smoothing_s)
    levels = np.linspace(0.0, max(top, 1e-6), LEVELS + 1)
    return RateTable(
        levels=levels,
        carried=_carried(usual, maxima, 1.0 / windows, smoothing_s, levels),
        unit_s=forecast.unit_s,
    )


def _cases(rates: Floats, quantiles: tuple[float, ...]) -> Floats:
    """Equally likely values of each unit. rates: shape (units, quantiles); returns shape (units, NODES)."""
    if not rates.size:
        return np.empty((0, NODES))
    at = (np.arange(NODES) + 0.5) / NODES
    return np.array([np.interp(at, quantiles, row) for row in rates])


@njit(cache=True)
def _carried(
    usual: Floats, maxima: Floats, at_maximum: float, smoothing_s: float, levels: Floats
) -> Floats:  # pragma: no cover - compiled
    """E[min(rate, level)] over the cases. usual, maxima: shape (units, cases); returns (units, levels)."""
    units, cases = usual.shape
    found = np.zeros((units, len(levels)))
    for t in range(units):
        for k in range(2 * cases):
            rate = usual[t, k] if k < cases else maxima[t, k - cases]
            weight = (1.0 - at_maximum if k < cases else at_maximum) / cases
            sigma = math.sqrt(max(rate, 1e-9) / smoothing_s)
            for i in range(len(levels)):
                off = (levels[i] - rate) / sigma
                if off >= EDGE:
                    found[t, i] += weight * rate
                elif off <= -EDGE:
                    found[t, i] += weight * levels[i]
                else:
                    at = (off + EDGE) * STEPS
                    place = int(at)
                    idle = IDLE[place] + (at - place) * (IDLE[place + 1] - IDLE[place])
                    found[t, i] += weight * (levels[i] - sigma * idle)
        base = found[t, 0]  # what the normal has below zero
        for i in range(len(levels)):
            found[t, i] -= base
    return found
