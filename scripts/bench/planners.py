"""The planners side by side: `python -m scripts.bench.planners`.

Against the optimum: 200 small instances whose cheapest schedule is found by enumerating all fleets in all units. A
planner's gap is what its first fleet costs, with the best continuation after it, over that optimum. A first fleet
that does not carry its rate (it may leave some to Lambda) has no gap here and is counted.

Time: 60 units x 20 offerings x 5,000 instances, and for `milp` also 12 offerings, with fleets of about 10 to 300.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from statistics import mean, median

import numpy as np
from numpy.typing import NDArray

from mark.controller.plan_request import plan_fleet, planner_names
from mark.controller.policy import ControllerPolicy
from mark.domain.demand import Demand, point_forecast
from mark.domain.objective import Slo
from mark.domain.offering import Offering
from mark.domain.plan import Plan, PlanRequest
from mark.planner.milp import cheapest_schedule
from mark.planner.queueing import usable_rps
from scripts.bench.engine import a_request, an_offering, say

COMPARED = ("greedy", "milp", "hedged")
INSTANCES = 200
MOST_FLEETS = 400
"""An instance has at most so many fleets a unit, or another one is drawn."""
ROUNDS = 5
SLO = Slo(latency_s=0.6, target=0.98)
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def main() -> None:
    """Gaps and times, or the one of both that the command line names."""
    wanted = sys.argv[1:] or ["gaps", "times"]
    if "gaps" in wanted:
        print_gaps()
    if "times" in wanted:
        print_times()


def print_gaps() -> None:
    """Gap between each planner's first fleet and the optimum."""
    enumerations = [Enumeration(request) for request in small_requests(INSTANCES)]
    for name in registered():
        gaps = [seen.gap(asked(name, seen.request)) for seen in enumerations]
        known = [gap for gap in gaps if math.isfinite(gap)]
        optimal = sum(1 for gap in known if gap < 1e-9)
        short = f", {len(gaps) - len(known)} do not carry the rate" if len(known) < len(gaps) else ""
        figure = f"{mean(known):.2%} mean, {max(known):.1%} max" if known else "none"
        say(f"gap to the optimum, {len(gaps)} instances, {name}", figure, f"{optimal} optimal{short}")
    worst = max(abs(cheapest_schedule(seen.request).usd / seen.optimum_usd - 1.0) for seen in enumerations)
    say("milp's own figure for its schedule, off the optimum by", f"{worst:.1e} at most", "")


def print_times() -> None:
    """Seconds a plan."""
    large = a_request(5_000)
    for name in registered():
        took = timed(lambda name=name: asked(name, large))  # type: ignore[misc]
        say(f"plan, 60 units x 20 offerings x 5,000 instances, {name}", f"{took * 1e3:.0f} ms", "")
    for instances in (10, 30, 300):
        requests = [typical_request(instances, seed) for seed in range(ROUNDS)]
        seconds = [timed(lambda item=item: asked("milp", item), rounds=1) for item in requests]  # type: ignore[misc]
        figure = f"{median(seconds) * 1e3:.0f} ms, {max(seconds) * 1e3:.0f} at most"
        say(f"plan, 60 units x 12 offerings x {instances} instances, milp", figure, "<= 300")


def registered() -> list[str]:
    """The compared planners that this build has."""
    return [name for name in COMPARED if name in planner_names()]


def asked(planner: str, request: PlanRequest) -> Plan:
    """The plan of a planner of that name."""
    policy = ControllerPolicy(name=planner, planner=planner, slo=request.slo, offerings=request.offerings)
    return plan_fleet(request, policy)


def timed(work: Callable[[], object], *, rounds: int = ROUNDS) -> float:
    """Median seconds after a first run, which compiles."""
    work()
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return median(took)


def small_requests(count: int, seed: int = 7) -> list[PlanRequest]:
    """Random instances that can be enumerated: two or three offerings, three to six units, some of it running."""
    rng = np.random.default_rng(seed)
    requests: list[PlanRequest] = []
    while len(requests) < count:
        request = _draw_small(rng)
        if Enumeration(request).fleets <= MOST_FLEETS:
            requests.append(request)
    return requests


def _draw_small(rng: np.random.Generator) -> PlanRequest:
    offerings = []
    for k in range(int(rng.integers(2, 4))):
        single_s = float(rng.uniform(0.02, 0.2))
        usd = float(rng.uniform(0.5, 1.5)) * 0.02 / single_s
        drawn = an_offering(f"type-{k}", usd=usd, batch_s={1: single_s}, max_batch=1)
        # From launches that are free to such that cost ten minutes of rent.
        offerings.append(replace(drawn, launch_usd=usd * float(rng.uniform(0.0, 10.0)) / 60.0))
    units, lead = int(rng.integers(3, 7)), int(rng.integers(0, 3))
    top = float(rng.uniform(0.5, 6.0)) * max(item.capacity_rps for item in offerings)
    rates = tuple(float(rate) for rate in top * rng.uniform(0.0, 1.0, lead + units))
    running = tuple((item.name, int(rng.integers(0, 4))) for item in offerings)
    return a_small(rates, tuple(offerings), running, lead)


def a_small(
    rates: tuple[float, ...], offerings: tuple[Offering, ...], running: tuple[tuple[str, int], ...], lead: int
) -> PlanRequest:
    """A request with a point forecast and nothing known of the past."""
    return PlanRequest(
        now=0.0,
        history=Demand(end_at=0.0, mean_rps=(), max_rps=()),
        forecast=point_forecast(0.0, mean_rps=rates, max_rps=rates, source="bench"),
        offerings=offerings,
        running=running,
        slo=SLO,
        lead_units=lead,
    )


def typical_request(instances: int, seed: int) -> PlanRequest:
    """Twelve types of three families and four sizes, an hour of a noisy wave, two thirds of it running."""
    rng = np.random.default_rng(seed)
    offerings = []
    for family, (usd, single_s) in {"c": (0.085, 0.1), "m": (0.096, 0.12), "r": (0.126, 0.11)}.items():
        for size in range(4):
            speed = 1.9**size  # twice the price, not quite twice as fast
            offerings.append(
                an_offering(f"{family}.{size}", usd=usd * 2**size, batch_s={1: single_s / speed}, max_batch=1)
            )
    peak = instances * offerings[0].capacity_rps
    wave = 0.8 + 0.2 * np.sin(np.arange(60) / 9.0 + seed) + rng.normal(0.0, 0.05, 60)
    rates = tuple(float(rate) for rate in peak * wave)
    running = tuple((item.name, instances // 6) for item in offerings[:4])
    return a_small(rates, tuple(offerings), running, 5)


class Enumeration:
    """All schedules of a small request, by dynamic programming over all fleets in all units from the lead on.

    A fleet holds of each offering at most what carries the highest rate alone: more is of no use.
    """

    def __init__(self, request: PlanRequest) -> None:
        self.request = request
        self._items = sorted(request.offerings, key=lambda item: item.name)
        rates = np.array(request.forecast.max_at(0.5))[request.lead_units :]
        self._rate = float(rates[0])
        # As planners do: sized for the rate at the lead.
        self._usable = np.array([usable_rps(item, request.slo, self._rate) for item in self._items])
        self._rent = np.array([item.usd_per_hour * request.forecast.unit_s / 3600.0 for item in self._items])
        self._launch = np.array([item.launch_usd for item in self._items])
        self._running = np.array([dict(request.running).get(item.name, 0) for item in self._items])
        self.most: Ints = np.ceil(rates.max() / self._usable - 1e-12).astype(np.int64)
        self._later = rates[1:]

    @property
    def fleets(self) -> int:
        """The number of fleets."""
        return int(np.prod(self.most + 1))

    @cached_property
    def _to_go(self) -> tuple[Ints, Floats]:
        """All fleets, shape (fleets, offerings), and what follows the first unit at the least, USD, after each."""
        counts = np.stack(np.meshgrid(*(np.arange(top + 1) for top in self.most), indexing="ij"), axis=-1)
        fleets = counts.reshape(-1, len(self.most))
        started = np.maximum(0, fleets[None, :, :] - fleets[:, None, :]) @ self._launch  # from, to
        after = np.zeros(len(fleets))
        for rate in self._later[::-1]:
            here = np.where(fleets @ self._usable >= rate - 1e-9, fleets @ self._rent, math.inf) + after
            after = (started + here[None, :]).min(axis=1)
        return fleets, after

    @cached_property
    def optimum_usd(self) -> float:
        """The cost of the cheapest schedule."""
        fleets, after = self._to_go
        return float((self._first_usd(fleets) + after).min())

    def _first_usd(self, fleets: Ints) -> Floats:
        """Rent and launches of fleets in the first unit; infinite where one does not carry its rate."""
        usd = fleets @ self._rent + np.maximum(0, fleets - self._running) @ self._launch
        return np.where(fleets @ self._usable >= self._rate - 1e-9, usd, math.inf)

    def gap(self, plan: Plan) -> float:
        """Cost of the plan's fleet with the best continuation, over the optimum, less 1."""
        counts = {item.offering: item.count for item in plan.counts}
        wanted = np.array([[counts.get(item.name, 0) for item in self._items]])
        fleets, after = self._to_go
        (found,) = np.flatnonzero((fleets == np.minimum(wanted, self.most)).all(axis=1))
        return float((self._first_usd(wanted)[0] + after[found]) / self.optimum_usd - 1.0)


if __name__ == "__main__":
    main()
