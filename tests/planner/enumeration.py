"""Small instances whose cheapest schedule is found by enumerating all fleets in all units.

A planner's gap is what its first fleet costs, with the best continuation after it, over that optimum. It is
infinite where a first fleet does not carry its rate.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mark.domain.demand import Demand, point_forecast
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Offering
from mark.domain.plan import Plan, PlanRequest
from mark.planner.queueing import usable_rps
from scripts.bench.engine import an_offering

INSTANCES = 200
MOST_FLEETS = 400
"""An instance has at most so many fleets a unit, or another one is drawn."""
SLO = Slo(latency_s=0.6, target=0.98)
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
