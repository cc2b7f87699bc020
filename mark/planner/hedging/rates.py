"""Expected rate that each capacity would carry, unit by unit, from the quantiles of a forecast.

A forecast gives quantiles of each unit's mean and of its highest 5 s window. Taken together (a high mean comes
with a high maximum) they are a distribution of the rate within that unit: one window in twelve runs at the
maximum, the others at what is left of the mean.

At a rate r a capacity C does not carry all of r, and above it not nothing: arrivals are random, and a request may
wait for so many seconds before it is too late. `full_queue.py` says how many find the queue full.

    carried[t, i] = E[r - turned away(r, level i)] over the rates of unit t,  requests/s

is all that a planner needs: an instance that serves the levels from z to z + c carries carried(z + c) -
carried(z).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mark.domain.demand import WINDOW_S, Demand, Forecast
from mark.domain.errors import PlanInfeasible
from mark.planner.hedging.full_queue import carried_rps

NODES = 20
"""Equally likely cases that a distribution is cut into."""
LEVELS = 240
"""Levels of capacity that are told apart, from 0 to the highest rate that may come."""
TOP_WAITS = 2.0
"""The top level lies so far above the highest rate that little is in excess there."""
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
    windows, cases = unit_s / WINDOW_S, means.shape[1]
    rates = np.hstack((_typical(means, maxima, windows), maxima))
    weights = np.repeat((1.0 - 1.0 / windows, 1.0 / windows), cases) / cases
    return carried_rps(rates, weights, wait_s, levels)


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
