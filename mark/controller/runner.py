"""One tick: read the ports, forecast and plan when it is time, `step`, write it down, submit.

The same object in every world. It waits for nothing: its driver (the simulator's heap, or the service's loop)
sets the clock and calls `tick` at each period and whenever something happened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

from mark.controller.at_risk import with_risks
from mark.controller.event_forecasts import with_events, without_events
from mark.controller.journal import Checkpoint
from mark.controller.limits.quotas import counted, known_quotas, no_new_quotas, takes_alone
from mark.controller.limits.service_cap import Divide, undivided
from mark.controller.limits.spending_limit import apply_spending_limit, no_spending_limit
from mark.controller.plan_request import plan_fleet, plan_request
from mark.controller.policy import ControllerPolicy
from mark.controller.recovery import Recovered, unseen_orders
from mark.controller.service_time_ratios import ServiceTimeRatios
from mark.controller.state import Decision, Observation, State
from mark.controller.step import apply_observation, decide
from mark.controller.surges import is_surging
from mark.domain.billing.spending import SpendingLimit
from mark.domain.commitments.owned import Commitments
from mark.domain.demand import KEEP_HISTORY, Demand, Forecast
from mark.domain.errors import PlanInfeasible, failure_words
from mark.domain.fleet.instances import FleetView
from mark.domain.fleet.orders import Fact, ForecastFailed, LaunchRefused, PlanFailed
from mark.domain.front import Front
from mark.domain.load.announced_events import Events, no_events
from mark.domain.offerings.quota import Quotas
from mark.planner.baselines import PlanFunction
from mark.ports import Clock, Cloud, DataPlane, Forecaster

PUNCTUAL = 1e-6
"""A tick this share of a period early counts as on time."""


def no_new_commitments() -> Commitments | None:
    """The reading of a world whose commitments are its policy's: a replay's, or a test's."""
    return None


def no_front() -> Front | None:
    """The reading of a world that tells no zones apart."""
    return None


def no_shared_rps() -> float | None:
    """The reading of a world whose models share nothing."""
    return None


def no_shared_boots() -> bool:
    """The same, of shared instances that boot."""
    return False


class Journal(Protocol):
    """The journal as the controller needs it."""

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        """Write one tick; `before` is the fleet at the tick before it."""
        ...


class Controller:
    """The controller of one model. `fallback` answers for a forecaster that fails.

    `measure`, where there is one, gives before each plan how fast the offerings were measured to be;
    `spending_limit` at each tick what may be rented, `quotas` what is left for this model of the account's as they
    were last read (None: never), `took` hears of the instances by offering that it takes of them,
    `commitments` what of the account's is left for this model (None: what the policy says),
    `front` says where requests come in,
    `events` before each plan those that were announced while it ran, beside the policy's. `explained`: whether
    somebody reads the journal; else plans lack the figures of their excuses, which decide nothing. `divide` keeps
    a plan within the model's part of the service's cap. `own`: a user's planner, in place of the policy's.
    `recovered` is where the controller before it stopped, `history` then includes the units that one saw. A tick
    that raised leaves the ports in between: recover from the journal, as after a crash.
    """

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
        recovered: Recovered | None = None,
        measure: Callable[[], ServiceTimeRatios] | None = None,
        spending_limit: Callable[[], SpendingLimit] = no_spending_limit,
        quotas: Callable[[], Quotas | None] = no_new_quotas,
        took: Callable[[Mapping[str, int]], None] = takes_alone,
        commitments: Callable[[], Commitments | None] = no_new_commitments,
        events: Callable[[], Events] = no_events,
        shared_rps: Callable[[], float | None] = no_shared_rps,
        front: Callable[[], Front | None] = no_front,
        shared_boots: Callable[[], bool] = no_shared_boots,
        explained: bool = True,
        divide: Divide = undivided,
        own: PlanFunction | None = None,
    ) -> None:
        self.policy = policy
        self._explained = explained
        self.state = recovered.state if recovered else State()
        self._clock = clock
        self._cloud = cloud
        self._data_plane = data_plane
        self._forecaster = forecaster
        self._fallback = fallback
        self._journal = journal
        self._measure, self._read_quotas, self._read_events = measure, quotas, events
        self._took = took
        self._read_commitments = commitments
        self._read_shared_rps, self._read_shared_boots = shared_rps, shared_boots
        self._read_front = front
        self._read_limit, self._spending_limit = spending_limit, SpendingLimit.NONE
        self._divide, self._own = divide, own
        self._history = history
        self._fleet = recovered.fleet if recovered else FleetView()
        self._lambda_warm = 0
        self._latest: Forecast | None = None
        self._forecast_failure: ForecastFailed | None = None
        self._first_at = recovered.first_at if recovered else -math.inf
        self._planned_at = recovered.planned_at if recovered else -math.inf
        self._unseen = recovered.unseen if recovered else ()
        self._note_taken()

    @property
    def fleet(self) -> FleetView:
        """The fleet as the last tick saw it."""
        return self._fleet

    @property
    def lambda_warm(self) -> int:
        """Lambda environments that the last tick believed warm."""
        return self._lambda_warm

    @property
    def history(self) -> Demand:
        """The demand that came."""
        return self._history

    @property
    def usual_history(self) -> Demand:
        """The demand that forecasts are made from: what came, without what announced events brought."""
        return without_events(self._history, self.events)

    @property
    def forecast(self) -> Forecast | None:
        """The last forecast; None before the first."""
        return self._latest

    @property
    def forecast_failed(self) -> ForecastFailed | None:
        """The failure for which the last forecast is the fallback's; None where it is the forecaster's own."""
        return self._forecast_failure

    @property
    def events(self) -> Events:
        """The announced events that the next plan goes by: the policy's, and those of the running service."""
        return (*self.policy.events, *self._read_events())

    @property
    def next_at(self) -> float:
        """The time of the next plan: at the end of the period of the last one, at once before the first one."""
        if math.isinf(self._planned_at):
            return -math.inf
        periods = math.floor((self._planned_at - self._first_at) / self.policy.period_s + PUNCTUAL)
        return self._first_at + (periods + 1) * self.policy.period_s

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint for a journal that follows, to be used with `history`; asked after a tick."""
        return Checkpoint(
            state=self.state,
            fleet=self._fleet,
            first_at=self._first_at,
            planned_at=self._planned_at,
            orders=self._unseen,
        )

    def is_surging(self) -> bool:
        """True where standbys are needed before the next plan; a driver polls it each `watch_s`."""
        if not self.has_standbys or self._spending_limit is not SpendingLimit.NONE:
            return False
        return is_surging(self.state, self._fleet, self._data_plane.recent_rps(), self.policy)

    @property
    def has_standbys(self) -> bool:
        """True where the last tick saw standbys; without any no poll finds a surge until the next tick."""
        return self._fleet.has_standbys

    @property
    def watch_s(self) -> float:
        """Seconds between two polls for surges; infinite where the policy bridges none."""
        standby = self.policy.standby
        return standby.watch_s if standby is not None and standby.surges else math.inf

    def claim(self) -> None:
        """Tell `divide` of the plan that comes first, before any model of the service acts on its own."""
        now, events = self._clock.now(), self.events
        forecast, _ = self._forecast(now, events)
        seen = Observation(now=now, fleet=self._cloud.observe(), shared_rps=self._read_shared_rps())
        request = plan_request(self.state, seen, self.policy, history=self._history, forecast=forecast)
        with suppress(PlanInfeasible):
            self._divide(request, plan_fleet(request, self.policy, self._own))

    def tick(self) -> Decision:
        """Observe, decide, write the journal, submit, acknowledge; returns what was decided."""
        now = self._clock.now()
        unit = self._data_plane.next_unit()
        if unit is not None:
            self._history = self._history.followed_by(unit, KEEP_HISTORY)
        fleet, facts, spending_limit = self._cloud.observe(), self._cloud.drain_facts(), self._read_limit()
        fleet = with_risks(fleet, self._fleet, facts)
        plans = self._plan_is_due(now, facts, spending_limit)
        seen = Observation(
            now=now,
            fleet=fleet,
            demand=unit,
            facts=tuple(facts),
            slo=self._data_plane.take_slo_window(),
            lambda_warm=self._data_plane.lambda_warm(),
            recent_rps=self._data_plane.recent_rps() if plans or math.isfinite(self.watch_s) else (),
            service_time_ratios=self._measure() if plans and self._measure else None,
            quotas=self._new_quotas(),
            commitments=self._new_commitments(),
            spending_limit=spending_limit,
            shared_rps=self._read_shared_rps(),
            front=self._read_front(),
            shared_boots=self._read_shared_boots(),
        )
        known = apply_observation(self.state, seen, self.policy)
        if plans:
            seen = self._with_plan(known, seen)
        decision = decide(known, seen, self.policy)
        self._journal.append(self._fleet, seen, decision)
        self.state, self._fleet, self._lambda_warm = decision.state, seen.fleet, seen.lambda_warm
        self._unseen = unseen_orders(self._unseen, self.state, decision.orders)
        self._note_taken()
        for order in decision.orders:
            self._cloud.submit(order)
        self._cloud.acknowledge()
        return decision

    def _note_taken(self) -> None:
        """Tell what it has and has asked for: what others may count on is less by that."""
        self._took(counted(self._fleet, ((item.offering, item.count) for item in self.state.requested)))

    def _new_quotas(self) -> Quotas | None:
        """The account's quotas where they are not those that decisions are made by."""
        read, known = self._read_quotas(), known_quotas(self.policy, self.state.quotas)
        return None if read == known else read

    def _new_commitments(self) -> Commitments | None:
        """What is left of the account's commitments where it is not what decisions are made by."""
        read, known = self._read_commitments(), self.state.commitments
        return None if read == (self.policy.commitments if known is None else known) else read

    def _plan_is_due(self, now: float, facts: Sequence[Fact], spending_limit: SpendingLimit) -> bool:
        """Once a period, and at once when a launch was refused or the spending limit has changed.

        A refused wake is no launch: another standby is woken.
        """
        changed, self._spending_limit = spending_limit is not self._spending_limit, spending_limit
        refused = any(isinstance(fact, LaunchRefused) and not fact.instances for fact in facts)
        due = now >= self.next_at
        if math.isinf(self._first_at):
            self._first_at = now
        return due or refused or changed

    def _with_plan(self, known: State, seen: Observation) -> Observation:
        """Add forecast and plan to an observation; what fails becomes a fact and the last plan stays."""
        events = self.events
        forecast, failed = self._forecast(seen.now, events)
        self._latest, self._planned_at = forecast, seen.now
        self._forecast_failure = failed[0] if failed else None
        facts: tuple[Fact, ...] = (*seen.facts, *failed)
        request = plan_request(
            known, seen, self.policy, history=self._history, forecast=forecast, explained=self._explained
        )
        try:
            plan = plan_fleet(request, apply_spending_limit(self.policy, seen.spending_limit), self._own)
            return replace(seen, forecast=forecast, plan=self._divide(request, plan), facts=facts)
        except PlanInfeasible as error:
            fact = PlanFailed(error=str(error), at=seen.now)
            return replace(seen, forecast=forecast, facts=(*facts, fact))

    def _forecast(self, now: float, events: Events) -> tuple[Forecast, tuple[ForecastFailed, ...]]:
        """The forecast with what the events expect, made of what came without them."""
        usual = without_events(self._history, events)
        forecast, failed = self._usual_forecast(now, usual)
        return with_events(forecast, events), failed

    def _usual_forecast(self, now: float, history: Demand) -> tuple[Forecast, tuple[ForecastFailed, ...]]:
        try:
            forecast = self._forecaster.forecast(history, self.policy.horizon)
            check_forecast(forecast, history, self.policy.horizon)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it may fail in any way; planning goes on without
            name = str(getattr(self._forecaster, "name", type(self._forecaster).__name__))
            fact = ForecastFailed(forecaster=name, error=failure_words(error), at=now)
            return self._fallback.forecast(history, self.policy.horizon), (fact,)
        return forecast, ()


def check_forecast(forecast: Forecast, history: Demand, horizon: int) -> None:
    """Refuse what is no forecast of the `horizon` units after the history.

    Raises TypeError or ValueError; also where rates are not finite and >= 0, or levels do not rise within (0, 1).
    """
    if not isinstance(forecast, Forecast):
        raise TypeError(f"it returned a {type(forecast).__name__}, not a Forecast")
    if len(forecast) != horizon:
        raise ValueError(f"it covers {len(forecast)} units, not {horizon}")
    if forecast.start_at != history.end_at:
        raise ValueError("it does not start where the history ends")
    bounds = (0.0, *forecast.quantiles, 1.0)
    if len(bounds) == 2 or not all(low < high for low, high in pairwise(bounds)):
        raise ValueError("its quantile levels do not rise between 0 and 1")
    rows = {id(row): row for row in (*forecast.mean_rps, *forecast.max_rps)}.values()  # naive ones repeat a row
    if any(len(row) != len(forecast.quantiles) for row in rows):
        raise ValueError("a unit holds more or fewer rates than there are quantiles")
    if not all(min(row) >= 0 and math.isfinite(sum(row)) for row in rows):  # a sum hides no NaN, a minimum may
        raise ValueError("it holds rates that are not finite and at least 0")
