"""One tick: read the ports, forecast and plan when it is time, `step`, write it down, submit.

The same object in every world. It waits for nothing: its driver (the simulator's heap, or the service's loop)
sets the clock and calls `tick` at each period and whenever something happened.
"""

from __future__ import annotations

import math
from typing import Protocol

from mark.controller.planning import plan_fleet, plan_request
from mark.controller.policy import ControllerPolicy
from mark.controller.state import Decision, Observation, State
from mark.controller.step import step
from mark.domain.demand import HORIZON, Demand, Forecast
from mark.domain.errors import MarkError, PlanInfeasible
from mark.domain.fleet import FleetView
from mark.domain.orders import Fact, ForecastFailed, LaunchRefused, PlanFailed
from mark.domain.plan import Plan
from mark.ports import Clock, Cloud, DataPlane, Forecaster

KEEP_HISTORY = 14 * 24 * 60
"""Units of history that a forecaster is shown: two weeks."""


class Journal(Protocol):
    """Where ticks are written."""

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        """Write one tick; `before` is the fleet at the tick before it."""
        ...


class Controller:
    """The controller of one service. `fallback` answers for a forecaster that fails."""

    def __init__(
        self,
        *,
        policy: ControllerPolicy,
        clock: Clock,
        cloud: Cloud,
        data_plane: DataPlane,
        forecaster: Forecaster,
        fallback: Forecaster,
        journal: Journal,
        history: Demand,
    ) -> None:
        self.policy = policy
        self.state = State()
        self._clock = clock
        self._cloud = cloud
        self._data_plane = data_plane
        self._forecaster = forecaster
        self._fallback = fallback
        self._journal = journal
        self._history = history
        self._fleet = FleetView()
        self._plan_at = -math.inf

    def tick(self) -> Decision:
        """Observe, decide, write down, submit; returns what was decided."""
        now = self._clock.now()
        unit = self._data_plane.demand()
        if unit is not None:
            self._history = self._history.followed_by(unit, KEEP_HISTORY)
        fleet = self._cloud.observe()
        facts = list(self._cloud.facts())
        forecast, plan, recent = self._plan_if_due(now, fleet, facts)
        seen = Observation(
            now=now,
            fleet=fleet,
            demand=unit,
            forecast=forecast,
            plan=plan,
            facts=tuple(facts),
            slo=self._data_plane.slo_window(),
            lambda_warm=self._data_plane.lambda_warm(),
            recent_rps=recent,
        )
        decision = step(self.state, seen, self.policy)
        self._journal.append(self._fleet, seen, decision)
        self.state, self._fleet = decision.state, fleet
        for order in decision.orders:
            self._cloud.submit(order)
        return decision

    def _plan_if_due(
        self, now: float, fleet: FleetView, facts: list[Fact]
    ) -> tuple[Forecast | None, Plan | None, tuple[float, ...]]:
        """Forecast and plan once a period, and at once when a launch was refused. Failures are facts."""
        refused = any(isinstance(fact, LaunchRefused) for fact in facts)
        if now < self._plan_at and not refused:
            return None, None, ()
        if now >= self._plan_at:
            self._plan_at = now + self.policy.period_s
        forecast = self._forecast(now, facts)
        recent = self._data_plane.recent_rps()
        request = plan_request(
            self.state,
            self.policy,
            now=now,
            fleet=fleet,
            facts=facts,
            history=self._history,
            forecast=forecast,
            recent_rps=recent,
        )
        try:
            return forecast, plan_fleet(request, self.policy), recent
        except PlanInfeasible as error:
            facts.append(PlanFailed(error=str(error), at=now))
            return forecast, None, recent

    def _forecast(self, now: float, facts: list[Fact]) -> Forecast:
        try:
            forecast = self._forecaster.forecast(self._history, HORIZON)
            _check(forecast)
        except (MarkError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            # A user's forecaster may fail in any of these ways; planning goes on without it.
            name = type(self._forecaster).__name__
            facts.append(ForecastFailed(forecaster=name, error=f"{type(error).__name__}: {error}", at=now))
            return self._fallback.forecast(self._history, HORIZON)
        return forecast


def _check(forecast: Forecast) -> None:
    """Refuse nonsense: no horizon, or rates that are not finite and at least 0."""
    if not len(forecast):
        raise ValueError("the forecast is empty")
    for rows in (forecast.mean_rps, forecast.max_rps):
        for row in rows:
            if not all(math.isfinite(rate) and rate >= 0 for rate in row):
                raise ValueError("the forecast holds rates that are not finite and at least 0")
