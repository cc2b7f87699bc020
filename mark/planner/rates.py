"""Expected rate that each capacity would carry, unit by unit, from the quantiles of a forecast.

A forecast gives quantiles of each unit's mean and of its highest 5 s window. Taken together (a high mean comes
with a high maximum) they are a distribution of the rate within that unit: one window in twelve runs at the
maximum, the others at what is left of the mean.

At a rate r a capacity C does not carry all of r, and above it not nothing: arrivals are random, and a request may
wait for w seconds before it is too late. As a diffusion between an empty queue and one that is w seconds long
(heavy traffic, Poisson arrivals, the variance of r a second) the rate that finds it full is

    shortfall(r, C) = x / (e^x - 1) / 2w,   x = 2 w (C - r)

which is r - C far above the capacity, nothing far below, and 1 / 2w where they meet: what a request may wait, not
how much arrives, says how much is in excess there. With an empty fleet all is: the formula is scaled to
that.

    carried[t, i] = E[r - shortfall(r, level i)] over the rates of unit t,  requests/s

is all that a planner needs: an instance that serves the levels from z to z + c carries carried(z + c) -
carried(z).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mark.domain.demand import WINDOW_S, Demand, Forecast
from mark.domain.errors import PlanInfeasible

NODES = 20
"""Equally likely cases that a distribution is cut into."""
LEVELS = 240
"""Levels of capacity that are told apart, from 0 to the highest rate that may come."""
TOP_WAITS = 2.0
"""The top level lies so far above the highest rate that little is in excess there."""
EDGE, STEPS = 20.0, 16
_AT = np.linspace(-EDGE, EDGE, round(2 * EDGE * STEPS) + 1)
_AT[len(_AT) // 2] = 1e-9
SHORTFALL = _AT / np.expm1(_AT)
"""x / (e^x - 1) at STEPS points a unit of x; beyond the edges it is -x, or nothing."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTable:
    """levels: shape (LEVELS + 1,), requests/s, evenly from 0; carried: shape (units, LEVELS + 1), requests/s."""

    levels: Floats
    carried: Floats
    unit_s: float


def expect_rates(forecast: Forecast, *, wait_s: float, past: Demand | None = None) -> RateTable:
    """The table of a forecast. wait_s: how long a request may wait. Errors: PlanInfeasible if not finite.

    past: units that count as much as the forecast does, each as likely in every unit to come.
    """
    means, maxima = expected_cases(forecast)
    seen = np.empty((0, 1)) if past is None else np.array(past.max_rps, np.float64)[:, None]
    highest = max(float(maxima.max()), float(seen.max(initial=0.0)))
    levels = np.linspace(0.0, _top_rps(highest, wait_s), LEVELS + 1)
    carried = _carried_by(means, maxima, forecast.unit_s, wait_s, levels)
    if past is not None and len(past):
        seen_means = np.array(past.mean_rps, np.float64)[None]
        carried = 0.5 * (carried + _carried_by(seen_means, seen.T, past.unit_s, wait_s, levels))
    return RateTable(levels=levels, carried=carried, unit_s=forecast.unit_s)


class Cases(NamedTuple):
    """Equally likely values of each unit's mean and of its highest window: shape (units, NODES), requests/s."""

    means: Floats
    maxima: Floats

    def mean_rps(self, unit_s: float) -> Floats:
        """Expected rate in each unit, shape (units,), requests/s: what endless capacity would carry."""
        windows = unit_s / WINDOW_S
        rates: Floats = ((windows - 1.0) * _typical(*self, windows) + self.maxima).mean(axis=1) / windows
        return rates

    def carried_at_most(self, unit: int, *, unit_s: float, wait_s: float) -> float:
        """What the highest level of the forecast's table carries in a unit, requests/s."""
        top = np.array([_top_rps(float(self.maxima.max()), wait_s)])
        return float(_carried_by(self.means[unit][None], self.maxima[unit][None], unit_s, wait_s, top)[0, 0])


def expected_cases(forecast: Forecast) -> Cases:
    """The cases of a forecast. Errors: PlanInfeasible if not finite."""
    means = _cases(np.array(forecast.mean_rps, np.float64), forecast.quantiles)
    maxima = np.maximum(_cases(np.array(forecast.max_rps, np.float64), forecast.quantiles), means)
    if not means.size or not (np.isfinite(means).all() and np.isfinite(maxima).all()):
        raise PlanInfeasible("the forecast is empty or not finite; plan with the fallback forecast")
    return Cases(means, maxima)


def _top_rps(highest_rps: float, wait_s: float) -> float:
    """The top level of a table, where that is the highest rate that may come."""
    return highest_rps + TOP_WAITS / wait_s


def _typical(means: Floats, maxima: Floats, windows: float) -> Floats:
    """The rate outside the highest of a unit's windows."""
    return np.maximum(0.0, (windows * means - maxima) / (windows - 1.0))


def _carried_by(means: Floats, maxima: Floats, unit_s: float, wait_s: float, levels: Floats) -> Floats:
    """means, maxima: shape (units, cases); returns shape (units, levels)."""
    windows = unit_s / WINDOW_S
    return _carried(_typical(means, maxima, windows), maxima, 1.0 / windows, wait_s, levels)


def _cases(rates: Floats, quantiles: tuple[float, ...]) -> Floats:
    """Equally likely values of each unit: `np.interp` of all rows at once.

    rates: shape (units, quantiles); returns shape (units, NODES).
    """
    if not rates.size:
        return np.empty((0, NODES))
    at, known = (np.arange(NODES) + 0.5) / NODES, np.array(quantiles)
    if len(known) == 1:
        return np.repeat(rates, NODES, axis=1)
    left = np.clip(np.searchsorted(known, at, side="right") - 1, 0, len(known) - 2)
    slopes = np.diff(rates, axis=1) / np.diff(known)
    cases: Floats = slopes[:, left] * (at - known[left]) + rates[:, left]
    cases[:, at <= known[0]] = rates[:, :1]  # flat beyond the levels
    cases[:, at >= known[-1]] = rates[:, -1:]
    return cases


@njit(cache=True)
def _carried(
    typical: Floats, maxima: Floats, at_maximum: float, wait_s: float, levels: Floats
) -> Floats:  # pragma: no cover - compiled
    """E[r - shortfall(r, level)], shape (units, levels), over the cases. typical, maxima: shape (units, cases).

    levels: rising, so that nothing is worked out from the first level on above which nothing is in excess.
    """
    units, cases = typical.shape
    found = np.zeros((units, len(levels)))
    for t in range(units):
        for k in range(2 * cases):
            rate = typical[t, k] if k < cases else maxima[t, k - cases]
            if rate == 0.0:
                continue
            weight = (1.0 - at_maximum if k < cases else at_maximum) / cases
            _add(found[t], weight * rate, rate, wait_s, levels)
    return found


@njit(cache=True)
def _add(found: Floats, most: float, rate: float, wait_s: float, levels: Floats) -> None:  # pragma: no cover
    """Add what is carried of one rate, `most` of it at the highest levels. found, levels: shape (levels,).

    The loops have no branch that the processor must guess, which takes a third of the time.
    """
    alone = _shortfall(-2.0 * wait_s * rate)
    some, end = 0, len(levels)
    while some < end:  # of the levels so many have something in excess
        middle = (some + end) // 2
        if 2.0 * wait_s * (levels[middle] - rate) < EDGE:
            some = middle + 1
        else:
            end = middle
    for i in range(some):
        x = 2.0 * wait_s * (levels[i] - rate)
        at = (x + EDGE) * STEPS
        place = np.uint32(max(0, int(at)))
        low = SHORTFALL[place]
        between = low + (at - int(at)) * (SHORTFALL[place + np.uint32(1)] - low)
        found[i] += most * (1.0 - (-x if x <= -EDGE else between) / alone)
    for i in range(some, len(levels)):
        found[i] += most


@njit(cache=True)
def _shortfall(x: float) -> float:  # pragma: no cover - compiled
    if x <= -EDGE:
        return -x
    if x >= EDGE:
        return 0.0
    at = (x + EDGE) * STEPS
    place = int(at)
    return float(SHORTFALL[place] + (at - place) * (SHORTFALL[place + 1] - SHORTFALL[place]))
