"""Yardsticks of a load: what the best fleet with perfect knowledge of the trace costs, by two linear programs.

**Reference.** Every request is served by instances of the asked market and Lambda, without queueing and without
standbys. Fleets may be fractional and change every minute, launches cost their overhead and nothing else stands in
the way; what a second's capacity does not carry goes to Lambda at its warm price, or, without Lambda, may not
happen. Runs are measured by it (`x reference`), but it bounds none of them: one that misses what its objective
allows, lets requests wait or wakes standbys may cost less.

    min  sum rent n[o,t] + launch u[o,t] + lambda shortfall[s],   u[o,t] >= n[o,t] - n[o,t-1],
         shortfall[s] >= arrivals[s] - sum capacity[o] n[o,minute(s)]

An offering that is dearer than another both in rent per rps and in launch cost per rps is dropped. That is exact:
fleets are fractional, so the other one takes over its capacity, minute by minute, at no more cost. Where one
offering is left (always, when all boot equally long) the program separates by level of capacity: a fleet's
launches are its one-sided total variation, which by the coarea formula is the integral over all levels z of those
of the switch [capacity > z]; rent and shortfall are such integrals too. Each level is a chain of two states, on or
off, solved by dynamic programming. Levels further up are worth less at all times, so the optimal switches nest and
form a fleet. With several offerings left HiGHS solves the program; per minute only the sorted rates of its seconds
count, as segments whose saving is the number of seconds above.

**Floor.** Below the serving cost of *every* run that attains its target: `floor_usd` relaxes further, each time in
the safe direction; the reasons stand beside the terms. It rents in every market that a policy may rent in and uses
every standby that one may use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array

from mark.domain.errors import PlanInfeasible
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import CREDITED_STARTS_A_DAY, LambdaOffering, Offering
from mark.domain.offerings.times import CloudTimes, LognormalTime

MINUTE_S = 60
CELL_S = 60
"""Least cell of the floor: as long as a late request may wait, far above an objective, so that deferring work is
worth little. On a day of bursty traffic cells of 10 s raise the floor by half a percent and take some 20 times as
long.
"""
ONE_PERCENT = -2.3263478740408408
"""The standard normal's 1 % point: boots in the floor are as short as one in a hundred."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class YardstickInput:
    """All that the yardsticks look at. The first fleet is there already: its launches are free."""

    #: Length seconds, requests that arrived in each second of the run.
    arrivals: Floats
    #: Of the asked market.
    offerings: tuple[Offering, ...]
    #: What is rented where those are refused: floor only.
    fallbacks: tuple[Offering, ...] = ()
    #: Types that may stand by stopped: floor only.
    standbys: tuple[Offering, ...] = ()
    #: One slower than the objective counts as none.
    overflow: LambdaOffering | None
    #: Duration on a provisioned environment, USD a GiB second, beside what keeping it costs: floor only.
    provisioned_usd_per_gib_s: float = math.inf
    slo: Slo
    times: CloudTimes

    @property
    def shortfall_usd(self) -> float:
        """Price of a request on a warm Lambda; infinite where Lambda cannot keep the objective."""
        found = self.overflow
        able = found is not None and found.latency_s <= self.slo.latency_s
        return found.usd_per_warm_request if found is not None and able else math.inf

    @property
    def least_lambda_usd(self) -> float:
        """Least price of a request on Lambda, warm or provisioned and never idle; infinite where none is in time.

        Where calls vary some of a slow one are in time.
        """
        found = self.overflow
        if found is None or (found.latency_s > self.slo.latency_s and not found.cv):
            return math.inf
        provisioned = found.usd_per_provisioned_gib_s + self.provisioned_usd_per_gib_s
        per_gib_s = min(found.usd_per_gib_s, provisioned)
        return found.usd_per_request + found.memory_gib * found.latency_s * per_gib_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityUnit:
    """One unit of capacity, 1 request/s: its rent per second and what it costs to start."""

    name: str
    usd_per_s: float
    start_usd: float


def reference_usd(given: YardstickInput) -> float:
    """The reference, USD. Raises PlanInfeasible when there are arrivals and nothing to serve them."""
    supplies = undominated(
        [
            CapacityUnit(
                name=item.name,
                usd_per_s=item.usd_per_request,
                start_usd=item.launch_usd / item.capacity_rps,
            )
            for item in given.offerings
        ]
    )
    if not given.arrivals.any():
        return 0.0
    if not supplies:
        return _all_on_lambda(given)
    if len(supplies) == 1:
        return reference_by_levels(given, supplies[0])
    return reference_by_program(given, supplies)


def undominated(supplies: list[CapacityUnit]) -> tuple[CapacityUnit, ...]:
    """Those that no other one beats in both rent and start; of equals the first by name. Rent rises."""
    kept: list[CapacityUnit] = []
    for supply in sorted(supplies, key=lambda item: (item.usd_per_s, item.start_usd, item.name)):
        if not kept or supply.start_usd < kept[-1].start_usd * (1 - 1e-12):
            kept.append(supply)
    return tuple(kept)


def reference_by_levels(given: YardstickInput, supply: CapacityUnit) -> float:
    """The reference with one supply: a two-state dynamic program per level of capacity, all levels at once."""
    levels = np.unique(given.arrivals[given.arrivals > 0])
    widths = np.diff(levels, prepend=0.0)
    on = np.zeros(len(levels))
    off = np.zeros(len(levels))
    for start in range(0, len(given.arrivals), MINUTE_S):
        seconds = np.sort(given.arrivals[start : start + MINUTE_S])
        above = len(seconds) - np.searchsorted(seconds, levels, side="left")
        unserved_usd = np.where(above > 0, given.shortfall_usd, 0.0) * np.maximum(above, 1)
        stay_on = on if start == 0 else np.minimum(on, off + supply.start_usd)
        stay_off = off if start == 0 else np.minimum(on, off)
        on, off = stay_on + supply.usd_per_s * len(seconds), stay_off + unserved_usd
    return float(widths @ np.minimum(on, off))


def reference_by_program(given: YardstickInput, supplies: tuple[CapacityUnit, ...]) -> float:
    """The reference by HiGHS, for any number of supplies."""
    all_carried = math.isinf(given.shortfall_usd)
    minutes = [given.arrivals[i : i + MINUTE_S] for i in range(0, len(given.arrivals), MINUTE_S)]
    program = _Program()
    fleets = _fleet(program, supplies, [len(minute) for minute in minutes])
    for t, minute in enumerate(minutes):
        carried = [(fleet[t], -1.0) for fleet in fleets]
        if all_carried:
            program.at_most(carried, -float(minute.max()))
            continue
        levels, counts = np.unique(minute, return_counts=True)
        above = np.cumsum(counts[::-1])[::-1]
        segments = [
            program.variable(-given.shortfall_usd * int(above[k]), upper=float(width))
            for k, width in enumerate(np.diff(levels, prepend=0.0))
        ]
        program.at_most([(segment, 1.0) for segment in segments] + carried, 0.0)
    return program.solve() + (0.0 if all_carried else given.shortfall_usd * float(given.arrivals.sum()))


def floor_usd(given: YardstickInput) -> float:
    """The floor, USD: no run that attains its target on these arrivals costs less.

    Time is cut into cells of w = max(60 s, objective), counted from the end of the run. Let n be the *average*
    number of ready instances in a cell. Then, against any real run:

    - rent of ready instances is n x w exactly; the billed minute minimum, price factors, disks and all overhead
      are left out (0);
    - averages rise by no more in all than the fleet itself does, so launches are not overstated; a launch costs
      the 1 % quantile of the boot without its longest unbilled part, a wake likewise; the first fleet is free;
    - an instance gives its best profiled b / T_b (even over the objective), spread over the batch's run;
    - an answer in time is worked on in its arrival's cell or in the next (w is no less than the objective), so
      work of a cell may wait for the next one, all of it. What arrives in the last cell may stay in flight, even
      late (late requests wait up to 60 s), and then counts nowhere;
    - 1 - target of the requests may go unanswered for nothing; others go to Lambda at the warm price without cold
      starts. Without Lambda that keeps the objective there are no others;
    - any type may stand by in either market, and costs rent and wakes only. One without CPU credits is an
      offering that starts as a wake does. Of a burstable one's credits count all of the account's credited starts,
      and what is earned running, spendable at any time; what an unlimited type uses beyond is billed;
    - Lambda's environments may be provisioned to the second and are then never idle.

    Raises PlanInfeasible when nothing can serve the arrivals.
    """
    cell_s = max(CELL_S, math.ceil(given.slo.latency_s))
    ends = range(len(given.arrivals), 0, -cell_s)
    cells = [given.arrivals[max(0, end - cell_s) : end] for end in reversed(ends)]
    lengths, arrived = [len(cell) for cell in cells], [float(cell.sum()) for cell in cells]
    program = _Program()
    rented = [_best_case(item, given.times, given.times.launch) for item in (*given.offerings, *given.fallbacks)]
    woken = [_woken(item, given.times) for item in given.standbys if item.instance_type.credits is None]
    fleets = _fleet(program, undominated(rented + woken), lengths)
    burstable = [item for item in given.standbys if item.instance_type.credits is not None]
    sleepers = _burstable_work(program, burstable, given, lengths)
    served: list[tuple[int, float]] = []
    deferred: int | None = None
    for t, count in enumerate(arrived):
        now, later = program.variable(0.0, upper=count), program.variable(0.0, upper=count)
        served += [(now, -1.0), (later, -1.0)]
        program.at_most([(now, 1.0), (later, 1.0)], count)
        work = [(now, 1.0)] + ([(deferred, 1.0)] if deferred is not None else [])
        work += [(fleet[t], -float(lengths[t])) for fleet in fleets]
        program.at_most(work + [(work_of[t], -1.0) for work_of in sleepers], 0.0)
        deferred = later
    owed = given.slo.target * sum(arrived)
    if math.isfinite(given.least_lambda_usd):
        served.append((program.variable(given.least_lambda_usd), -1.0))
    program.at_most(served, -owed)
    return max(0.0, program.solve())


def _best_case(item: Offering, times: CloudTimes, start: LognormalTime) -> CapacityUnit:
    """An offering as the floor sees it: never worse than it is in a run, nor than the reference sees it."""
    best_rps = max(
        item.capacity_rps, *(point.batch / item.profile.latency_s(point.batch) for point in item.profile.points)
    )
    billed_s = max(0.0, start.at(ONE_PERCENT) - times.pending_max_s)
    start_usd = item.usd_per_hour / 3600.0 * billed_s
    if start is times.launch:
        start_usd = min(item.launch_usd, start_usd)
    return CapacityUnit(
        name=item.name, usd_per_s=item.usd_per_hour / 3600.0 / best_rps, start_usd=start_usd / best_rps
    )


def _woken(item: Offering, times: CloudTimes) -> CapacityUnit:
    return _best_case(item, times, times.wake_of(item.instance_type))


def _burstable_work(
    program: _Program, items: list[Offering], given: YardstickInput, lengths: list[int]
) -> list[list[int]]:
    """Variables by type: requests that woken burstable standbys answer in each cell, within their credits.

    The types share the account's credited starts.
    """
    found: list[list[int]] = []
    credited: list[tuple[int, float]] = []
    for item in items:
        burst = item.instance_type.credits
        assert burst is not None
        supply = _woken(item, given.times)
        (fleet,) = _fleet(program, (supply,), lengths)
        work = [program.variable(0.0) for _ in lengths]
        for t, length in enumerate(lengths):
            program.at_most([(work[t], 1.0), (fleet[t], -float(length))], 0.0)
        best_rps = item.usd_per_hour / 3600.0 / supply.usd_per_s
        per_request = burst.vcpus / 60.0 / best_rps  # one credit is a vCPU minute
        earned_per_s = burst.earn_per_hour / 3600.0 / best_rps
        row = [(index, per_request) for index in work]
        row += [(fleet[t], -earned_per_s * length) for t, length in enumerate(lengths)]
        if burst.unlimited:
            row.append((program.variable(burst.surplus_usd_per_vcpu_hour / 60.0), -1.0))
        if burst.launch_credits:
            starts = program.variable(0.0)
            credited.append((starts, 1.0))
            row.append((starts, -burst.launch_credits))
        program.at_most(row, 0.0)
        found.append(work)
    days = math.ceil(len(given.arrivals) / 86400)
    program.at_most(credited, float(CREDITED_STARTS_A_DAY * days))
    return found


def _all_on_lambda(given: YardstickInput) -> float:
    if math.isinf(given.shortfall_usd) and given.arrivals.any():
        raise PlanInfeasible("no offering and no Lambda that keeps the objective: add one of them")
    return given.shortfall_usd * float(given.arrivals.sum()) if given.arrivals.any() else 0.0


def _fleet(program: _Program, supplies: tuple[CapacityUnit, ...], lengths: list[int]) -> list[list[int]]:
    """Per supply the variables of its capacity, requests/s in each period; launches but the first are priced."""
    fleets = []
    for supply in supplies:
        size = [program.variable(supply.usd_per_s * length) for length in lengths]
        for before, after in pairwise(size):
            started = program.variable(supply.start_usd)
            program.at_most([(after, 1.0), (before, -1.0), (started, -1.0)], 0.0)
        fleets.append(size)
    return fleets


class _Program:
    """A linear program in the making: variables from 0 to their upper bound, rows `sum a x <= b`."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._upper: list[float] = []
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._values: list[float] = []
        self._limits: list[float] = []

    def variable(self, cost: float, upper: float = math.inf) -> int:
        self._cost.append(cost)
        self._upper.append(upper)
        return len(self._cost) - 1

    def at_most(self, terms: list[tuple[int, float]], limit: float) -> None:
        for column, value in terms:
            self._rows.append(len(self._limits))
            self._columns.append(column)
            self._values.append(value)
        self._limits.append(limit)

    def solve(self) -> float:
        """The least cost. Costs are scaled to about 1, where HiGHS' tolerances belong."""
        scale = max(map(abs, self._cost), default=0.0) or 1.0
        shape = (len(self._limits), len(self._cost))
        solve_program: Any = linprog  # its stubs know dense matrices only
        found = solve_program(
            np.array(self._cost) / scale,
            A_ub=coo_array((self._values, (self._rows, self._columns)), shape=shape).tocsr(),
            b_ub=np.array(self._limits),
            bounds=np.column_stack([np.zeros(len(self._upper)), self._upper]),
            method="highs-ipm",  # with crossover: exact, and 3-6 times faster than simplex on a week
        )
        if found.status != 0:
            raise PlanInfeasible(f"nothing can serve these arrivals: {found.message.splitlines()[0]}")
        return float(found.fun) * scale
