"""What a request costs that no planned instance carries, by the level of load that it belongs to.

Lambda answers at once and dearly. Where stopped standbys can be woken, a surge is Lambda's only until they serve:
of an excursion above a level that lasts D seconds, Lambda carries the first w (to notice it and to wake), standbys
the rest, and waking is paid for:

    price(level) = (lambda min(D, w) + standby (max(D - w, 0) + waking)) / D      USD a request

D is what the history holds: the mean length of its excursions above that level, half an hour at most (what lasts
longer is worth a launch).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mark.domain.demand import Demand
from mark.domain.plan import Bridge, PlanRequest
from mark.planner.rates import RateTable

NOTICE_S = 10.0
"""A surge is taken for one when it has lasted two windows of 5 s."""
MINIMUM_S = 60.0
"""An instance is billed for so long each time it starts."""
LONGEST_PATIENCE_S = 60.0
"""As far back as windows are looked at."""
LONGEST_S = 1800.0
WORTH_WAKING = 0.4
"""Share of a standby that an excess must fill: below it Lambda is cheaper."""
FEWEST_UNITS = 60
"""With less history nothing is known of surges: standbys then carry UNKNOWN_SHARE of the usual load."""
UNKNOWN_SHARE = 0.5
USUAL_S = 300.0
"""How long a surge lasts of whose like the history holds none."""
SURGE_S = 900.0
"""What lies above the mean of so long before it is a surge: for what lasts longer a plan has rented."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Unplanned:
    """What becomes of the requests in each unit and cell between two levels that no planned instance carries.

    served: all of them; alone: those that Lambda answers when standbys are woken for the others; beside_usd: what
    the standbys cost then. All of shape (units, cells).
    """

    served: Floats
    alone: Floats
    beside_usd: Floats

    def usd(self, lambda_usd: float) -> Floats:
        """What they cost at Lambda's price of a request: standbys are woken where that is cheaper."""
        return np.minimum(self.alone * lambda_usd + self.beside_usd, self.served * lambda_usd)


def unplanned(request: PlanRequest, table: RateTable) -> Unplanned:
    """A standby is woken for what fills it: an excess that is smaller stays with Lambda, however long it lasts.

    It is never counted cheaper than what could be rented: a standby of a burstable type stands in, and has no
    credits to be the fleet.
    """
    history, bridge = request.history, request.bridge
    served = np.diff(table.carried, axis=1) * table.unit_s
    item = bridge.standby
    if item is None:
        return Unplanned(served, served, np.zeros_like(served))
    lasts_s = excursions_s(np.array(history.mean_rps, np.float64), table.levels[:-1], history.unit_s)
    by_lambda = np.minimum(lasts_s, bridge.wake_s + NOTICE_S) / lasts_s
    standby_usd = max(item.usd_per_request, min((o.usd_per_request for o in request.offerings), default=0.0))
    cells = math.ceil(WORTH_WAKING * item.capacity_rps / table.levels[1])
    bridged = np.zeros_like(served)
    bridged[:, : max(0, served.shape[1] - cells)] = served[:, cells:]
    waking = bridge.wake_s / lasts_s
    return Unplanned(
        served, served - bridged * (1.0 - by_lambda), bridged * standby_usd * (1.0 - by_lambda + waking)
    )


def pool_size(history: Demand, bridge: Bridge) -> int | None:
    """Standbys that are worth their disks, by the surges that the history holds; None without one.

    A surge is what lies above the mean of the SURGE_S before it: what lasts longer, or comes every day at its
    hour, is the plan's. The k-th standby serves the k-th slice of that, while it is filled far enough to wake
    it. It gains what Lambda would cost then, less the first w seconds of each excursion; it costs its rent then
    and its disk always. As many are kept as gain most together.
    """
    item = bridge.standby
    if item is None or not len(history) or not math.isfinite(bridge.lambda_usd):
        return None
    rates = np.array(history.mean_rps, np.float64)
    if len(history) < FEWEST_UNITS:
        return math.ceil(UNKNOWN_SHARE * float(np.quantile(rates, 0.5)) / item.capacity_rps)
    excess = surges_rps(rates, max(1, round(SURGE_S / history.unit_s)))
    hours = len(excess) * history.unit_s / 3600.0
    gained = best = 0.0
    size = 0
    for count in range(math.ceil(float(excess.max()) / item.capacity_rps)):
        low = count * item.capacity_rps
        wakes = low + WORTH_WAKING * item.capacity_rps
        woken = excess > wakes
        lasts_s = float(excursions_s(excess, np.array([wakes]), history.unit_s)[0])
        busy_h = float(woken.mean()) * hours
        share = max(0.0, 1.0 - (bridge.wake_s + NOTICE_S) / lasts_s)
        served = np.clip(excess[woken] - low, 0.0, item.capacity_rps)
        gained += share * float(served.sum()) * history.unit_s * bridge.lambda_usd
        gained -= item.usd_per_hour * busy_h * (1.0 + bridge.wake_s / lasts_s) + bridge.asleep_usd_per_hour * hours
        if gained > best:
            best, size = gained, count + 1
    return size


def surges_rps(rates: Floats, units: int) -> Floats:
    """What each unit lies above the mean of so many before it, requests/s. rates: shape (n,); (n - units,)."""
    sums = np.concatenate(([0.0], np.cumsum(rates)))
    before = (sums[units:-1] - sums[: -units - 1]) / units
    return np.maximum(0.0, rates[units:] - before)


def patience_s(history: Demand, bridge: Bridge, kept_rps: float) -> float:
    """How long an excess over the fleet must last before a standby is woken for it.

    No longer than it takes to notice, where the history says that such an excess mostly lasts: of the units that
    held a window above the level, so many were followed by one that lies above it on average. Else until Lambda
    has cost as much as waking would (the ski rental's rule: never more than twice the best).
    """
    item = bridge.standby
    if item is None or not math.isfinite(bridge.lambda_usd):
        return NOTICE_S
    level = kept_rps + WORTH_WAKING * item.capacity_rps
    means, maxima = np.array(history.mean_rps, np.float64), np.array(history.max_rps, np.float64)
    burst = maxima[:-1] > level
    lasting = float((means[1:][burst] > level).mean()) if burst.any() else 0.0
    lasts_s = float(excursions_s(means, np.array([level]), history.unit_s)[0])
    rent_usd_per_s = item.usd_per_hour / 3600.0
    woken_usd = rent_usd_per_s * (bridge.wake_s + MINIMUM_S)
    lambda_usd_per_s = bridge.lambda_usd * item.capacity_rps
    gained = lasting * max(0.0, lasts_s - bridge.wake_s) * (lambda_usd_per_s - rent_usd_per_s)
    return NOTICE_S if gained > woken_usd else min(LONGEST_PATIENCE_S, NOTICE_S + woken_usd / lambda_usd_per_s)


def excursions_s(rates: Floats, levels: Floats, unit_s: float) -> Floats:
    """Mean length of the stretches in which the rate lies above each level. rates: shape (units,)."""
    if not len(rates):
        return np.full(len(levels), USUAL_S)
    return np.clip(_excursions(rates, levels, unit_s), unit_s, LONGEST_S)


@njit(cache=True)
def _excursions(rates: Floats, levels: Floats, unit_s: float) -> Floats:  # pragma: no cover - compiled
    found = np.empty(len(levels))
    for i in range(len(levels)):
        above, begun, was = 0, 0, False
        for rate in rates:
            now = rate > levels[i]
            above += now
            begun += now and not was
            was = now
        found[i] = above * unit_s / begun if begun else USUAL_S
    return found
