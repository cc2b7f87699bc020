"""Shortfall cost: the price of a request above the planned capacity, by the level of load that it belongs to.

Backup capacity serves it: Lambda at once and dearly; where the excess lasts, Lambda only until capacity serves
that was started when it began: a standby that was woken, or an instance that was launched. Of an excursion above a
level that lasts D seconds, Lambda carries the first w (to notice it and to start the other, again where a wake is
refused), the other the rest, and its start is paid for:

    price(level) = (lambda min(D, w) + other max(D - w, 0) + start) / D      USD a request

The cheapest way counts, as far as there is enough of it: standbys next above the fleet, as many as exist (where
Lambda is in time); launches up to what limits of the account and of the policy leave. A launch waits for the plan
as well (PLAN_LAG_S, in w), and its `other` is RUNS_LONGER times its rent for a request: it is full half of the
time that it is paid. D is what the history holds: the mean length of its excursions above that level, half an hour
at most. So the price has the value of waiting in it: an instance for what may come is worth its rent only as far
as one that is ordered when it does come would be too late (a real option; Dixit and Pindyck, "Investment under
Uncertainty", 1994).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mark.domain.demand import Demand
from mark.domain.offerings.offering import Offering
from mark.domain.plan import Backup, PlanRequest
from mark.planner.hedging.rates import RateTable

DETECTION_S = 10.0
"""A surge is taken for one when it has lasted two windows of 5 s."""
MINIMUM_S = 60.0
"""An instance is billed for so long each time it starts."""
LONGEST_DELAY_S = 60.0
"""As far back as windows are looked at."""
LONGEST_S = 1800.0
WORTH_WAKING = 0.4
"""Share of a standby, or of an instance, that an excess must fill: below it Lambda is cheaper."""
RUNS_LONGER = 2.0
"""An instance that is launched for an excess is paid so many times as long as it is full: half of it is idle."""
PLAN_LAG_S = 60.0
"""A plan sees an excess once the unit in which it began is over."""
FEWEST_UNITS = 60
"""With less history nothing is known of surges: standbys then carry UNKNOWN_SHARE of the usual load."""
UNKNOWN_SHARE = 0.5
USUAL_S = 300.0
"""Length of a surge where the history holds none as high."""
SURGE_BASELINE_S = 900.0
"""A surge is load above the mean of this long before it: a plan has rented for what lasts longer."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StartedLater:
    """One way to serve an excess that lasts: Lambda at first, then what was started as it began."""

    #: Requests that Lambda serves all the same, shape (units, cells).
    left_to_lambda: Floats
    #: Cost of what serves the others, its start included, USD, shape (units, cells).
    beside_usd: Floats
    #: Cells above the fleet, whichever it is, that there is enough of it for; None for all.
    reach: int | None = None


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Expected requests above the planned capacity, by unit and cell between two levels: shape (units, cells)."""

    #: All of them.
    served: Floats
    ways: tuple[StartedLater, ...] = ()

    @property
    def left_to_lambda(self) -> Floats:
        """The fewest that Lambda serves, by the way that leaves it least."""
        return self._cheapest(self.served, [way.left_to_lambda for way in self.ways])

    def usd(self, lambda_usd: float) -> Floats:
        """Their cost at Lambda's price of a request, USD, each served the cheapest way."""
        by_way = [way.left_to_lambda * lambda_usd + way.beside_usd for way in self.ways]
        return self._cheapest(self.served * lambda_usd, by_way)

    def _cheapest(self, by_lambda: Floats, by_way: Sequence[Floats]) -> Floats:
        """Share of each cell in the sum of those above a fleet, where each of them is served the cheapest way.

        A way of limited reach serves the cells next above the fleet. So one cell more of the fleet saves what that
        cell costs by it, and the cell that comes into its reach then no longer costs Lambda.
        """
        cells = by_lambda.shape[1]
        reaches = [cells if way.reach is None else min(way.reach, cells) for way in self.ways]
        found, come_into_reach = by_lambda, []
        for reach, cost in sorted(zip(reaches, by_way, strict=True), key=lambda way: way[0], reverse=True):
            cheaper = np.minimum(found, cost)
            if reach < cells:
                come_into_reach.append((reach, found - cheaper))
            found = cheaper
        for reach, gained in come_into_reach:
            found[:, : cells - reach] += gained[:, reach:]
        return found


def expected_shortfall(request: PlanRequest, table: RateTable) -> Shortfall:
    """The shortfall of an empty fleet, by the ways to serve it.

    Where Lambda is not in time, what waits for a launch is missed, which `miss_penalty.py` limits: only standbys
    are counted on then, in any number. Their number follows the price of a miss, and with it the plan: a plan that
    counted those that exist would chase its own (decision 0043).
    """
    history, backup = request.history, request.backup
    served = np.diff(table.carried, axis=1) * table.unit_s
    lasts_s = excursions_s(np.array(history.mean_rps, np.float64), table.levels[:-1], history.unit_s)

    def way(
        item: Offering,
        started: tuple[Floats, Floats],
        *,
        above_rps: float = 0.0,
        below_rps: float = math.inf,
        count: int | None = None,
    ) -> StartedLater:
        """The way to serve, between those rates, an excess that fills the item; Lambda serves a smaller one."""
        by_lambda, other_usd = started
        reach = None if count is None else round(count * item.capacity_rps / table.levels[1])
        cells = math.ceil(WORTH_WAKING * item.capacity_rps / table.levels[1])
        filling = np.zeros_like(served)
        filling[:, : max(0, served.shape[1] - cells)] = served[:, cells:]
        filling[:, (table.levels[:-1] < above_rps) | (table.levels[1:] > below_rps)] = 0.0
        return StartedLater(served - filling * (1.0 - by_lambda), filling * other_usd, reach)

    ways = []
    item = backup.standby
    is_late = not math.isfinite(backup.lambda_usd)
    if item is not None and (backup.standbys or is_late):
        # never cheaper than a rented one: a standby of a burstable type has no credits to be the fleet
        usd = max(item.usd_per_request, min((o.usd_per_request for o in request.offerings), default=0.0))
        started = _started(lasts_s, backup.until_awake_s, usd, usd * backup.wake_s)
        ways.append(way(item, started, count=None if is_late else backup.standbys))
    if math.isfinite(backup.lambda_usd):
        ways += [
            way(
                offering,
                _launched(lasts_s, offering),
                above_rps=_begun_rps(history, offering),
                below_rps=request.launchable_rps(offering),
            )
            for offering in request.launchable
        ]
    return Shortfall(served, tuple(ways))


def _begun_rps(history: Demand, item: Offering) -> float:
    """The rate exceeded for as long as a launch takes: no plan waits below it, it may launch itself."""
    units = math.ceil((PLAN_LAG_S + item.boot_s) / history.unit_s)
    return min(history.mean_rps[-units:], default=0.0)


def _started(lasts_s: Floats, ready_s: float, request_usd: float, start_usd: float) -> tuple[Floats, Floats]:
    """Share of an excursion's requests that Lambda serves until what is started serves, and what that costs.

    lasts_s: shape (n,); request_usd: of a request that it serves; start_usd: of its start, for a request a second
    of its capacity. Returns the share and USD for each request of the excursion, each of shape (n,).
    """
    by_lambda = np.minimum(lasts_s, ready_s + DETECTION_S) / lasts_s
    return by_lambda, request_usd * (1.0 - by_lambda) + start_usd / lasts_s


def _launched(lasts_s: Floats, item: Offering) -> tuple[Floats, Floats]:
    """The same for an instance that is launched."""
    launch_usd = item.launch_usd / item.capacity_rps
    return _started(lasts_s, PLAN_LAG_S + item.boot_s, RUNS_LONGER * item.usd_per_request, launch_usd)


def standby_target(
    history: Demand, backup: Backup, launchable: Iterable[Offering] = (), *, alone_rps: float = 0.0
) -> int | None:
    """Size of the standby set that is worth its disks, by the surges that the history holds; None without one.

    A surge is what lies above the mean of the SURGE_BASELINE_S before it: what lasts longer, or comes every day
    at its hour, is the plan's. The k-th standby serves the k-th slice of that, while it is filled far enough to
    wake it. It gains what Lambda would cost then, or Lambda and one of `launchable` where that is cheaper, less
    Lambda in the first w seconds of each excursion; it costs its rent then and its disk always. As many are kept
    as gain most together, and more where some cannot be woken.

    alone_rps: the capacity of a fleet that is one instance. What it carries is no surge, however suddenly it came:
    the instance cannot be smaller. A larger fleet's headroom changes with each plan, and standbys would with it.
    """
    item = backup.standby
    if item is None or not len(history) or not math.isfinite(backup.lambda_usd):
        return None
    if len(history) < FEWEST_UNITS:
        return math.ceil(UNKNOWN_SHARE * float(np.quantile(history.mean_rps, 0.5)) / item.capacity_rps)
    if max(history.mean_rps) <= WORTH_WAKING * item.capacity_rps:  # no surge would ever wake the first
        return 0
    rates = np.array(history.mean_rps, np.float64)
    units = max(1, round(SURGE_BASELINE_S / history.unit_s))
    excess = np.minimum(surges_rps(rates, units), np.maximum(0.0, rates[units:] - alone_rps))
    unit_h = history.unit_s / 3600.0
    slices = math.ceil(float(excess.max()) / item.capacity_rps)
    low = item.capacity_rps * np.arange(slices, dtype=np.float64)
    wakes = low + WORTH_WAKING * item.capacity_rps
    lasts_s = excursions_s(excess, wakes, history.unit_s)
    served, busy = _slices(excess, low, low + item.capacity_rps, wakes)
    without_usd = np.full(slices, backup.lambda_usd)
    for by_lambda, other_usd in (_launched(lasts_s, offering) for offering in launchable):
        without_usd = np.minimum(without_usd, by_lambda * backup.lambda_usd + other_usd)
    until_awake = np.minimum(lasts_s, backup.until_awake_s + DETECTION_S) / lasts_s
    saved_usd = without_usd - until_awake * backup.lambda_usd
    awake_usd = item.usd_per_hour * busy * unit_h * (1.0 + backup.wake_s / lasts_s)
    asleep_usd = backup.asleep_usd_per_hour * len(excess) * unit_h
    gained = np.cumsum(saved_usd * served * history.unit_s - awake_usd - asleep_usd)
    size = int(gained.argmax()) + 1 if gained.max(initial=0.0) > 0.0 else 0
    return round(size / (1.0 - backup.wake_refused))


def _slices(excess: Floats, low: Floats, high: Floats, wakes: Floats) -> tuple[Floats, Ints]:
    """Sum of what the units whose excess lies above `wakes` hold between `low` and `high`, and their number.

    excess: shape (units,), requests/s; the others and both answers: shape (slices,).
    """
    rising = np.sort(excess)
    sums = np.concatenate(([0.0], np.cumsum(rising)))
    first = np.searchsorted(rising, wakes, side="right")
    full = np.maximum(first, np.searchsorted(rising, high))
    served = sums[full] - sums[first] - (full - first) * low + (len(rising) - full) * (high - low)
    return served, len(rising) - first


def surges_rps(rates: Floats, units: int) -> Floats:
    """Excess of each unit over the mean of so many before it, requests/s. rates: shape (n,); (n - units,)."""
    sums = np.concatenate(([0.0], np.cumsum(rates)))
    before = (sums[units:-1] - sums[: -units - 1]) / units
    return np.maximum(0.0, rates[units:] - before)


def wake_delay_s(history: Demand, backup: Backup, kept_rps: float) -> float:
    """Delay before a standby is woken for an excess over the fleet, seconds: a ski-rental problem.

    No longer than it takes to notice, where such an excess mostly lasted: of the units that held a window above
    the level, so many were followed by one that lies above it on average. Else until Lambda has cost as much as
    waking would (the ski rental's rule: never more than twice the best).
    """
    item = backup.standby
    if item is None or not math.isfinite(backup.lambda_usd):
        return DETECTION_S
    level = kept_rps + WORTH_WAKING * item.capacity_rps
    rent_usd_per_s = item.usd_per_hour / 3600.0
    woken_usd = rent_usd_per_s * (backup.wake_s + MINIMUM_S)
    lambda_usd_per_s = backup.lambda_usd * item.capacity_rps
    patient_s = min(LONGEST_DELAY_S, DETECTION_S + woken_usd / lambda_usd_per_s)
    if max(history.max_rps, default=0.0) <= level:
        return patient_s
    means, maxima = np.array(history.mean_rps, np.float64), np.array(history.max_rps, np.float64)
    burst = maxima[:-1] > level
    lasting = float((means[1:][burst] > level).mean()) if burst.any() else 0.0
    lasts_s = float(excursions_s(means, np.array([level]), history.unit_s)[0])
    gained = lasting * max(0.0, lasts_s - backup.until_awake_s) * (lambda_usd_per_s - rent_usd_per_s)
    return DETECTION_S if gained > woken_usd else patient_s


def excursions_s(rates: Floats, levels: Floats, unit_s: float) -> Floats:
    """Mean length of the stretches in which the rate lies above each level, s: shape (levels,).

    rates: shape (units,); levels: rising.
    """
    if not len(rates):
        return np.full(len(levels), USUAL_S)
    return np.clip(_excursions(rates, levels, unit_s, USUAL_S), unit_s, LONGEST_S)


@njit(cache=True)
def _excursions(
    rates: Floats, levels: Floats, unit_s: float, usual_s: float
) -> Floats:  # pragma: no cover - compiled
    count, was = len(levels), 0
    ends, begins = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    for rate in rates:
        now, end = 0, count
        while now < end:  # so many levels lie below the rate
            middle = (now + end) // 2
            if levels[middle] < rate:
                now = middle + 1
            else:
                end = middle
        ends[now] += 1
        if now > was:  # a stretch above each of the levels between begins
            begins[was] += 1
            begins[now] -= 1
        was = now
    found, above, begun = np.empty(count), len(rates), 0
    for i in range(count):
        above -= ends[i]
        begun += begins[i]
        found[i] = above * unit_s / begun if begun else usual_s
    return found
