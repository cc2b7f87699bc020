"""Pods of deployments that somebody else runs: a plan beside a stack in which MArk rents nothing.

Demand comes from outside, minute by minute. The answer is a number for each offering, with its reason. It is the
policy's own plan as long as everything is there, and what is missing only ever makes it more careful:

    demand is old or was never read   the last answer stays, and says so
    no forecast                       the plan is for the last minute's need, as if it went on
    no plan                           the last answer, topped up to the last minute's need

A plan takes what was last told as running. To wait before pods go is left to who scales: Kubernetes keeps the
highest answer of its stabilization window, which is the patience that `controller/step.py` has with its own fleet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mark.controller.event_forecasts import with_events
from mark.controller.plan_request import plan_fleet, plan_request
from mark.controller.policy import ControllerPolicy
from mark.controller.state import Observation, State
from mark.domain.demand import KEEP_HISTORY, STALE_S, UNIT_S, WINDOW_S, Demand, Forecast, point_forecast
from mark.domain.errors import PlanInfeasible
from mark.domain.figures import figure
from mark.domain.fleet.instances import FleetView, Instance, InstanceState
from mark.domain.offerings.offering import cheapest_per_request
from mark.domain.plan import Plan
from mark.domain.plans.pod_plan import PodCount, PodPlan

BUSIEST = 1.63
"""Expected largest of twelve draws from a standard normal distribution: a minute has twelve windows of 5 s."""
SAME_COUNT = 1e-9
"""A need this share above whole instances is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Knowledge on which pods are decided."""

    #: Epoch seconds.
    now: float
    #: Demand as far as it is known.
    history: Demand
    #: Why newer demand could not be read; empty where it was.
    trouble: str = ""
    #: From the end of the history on, without announced events; None where there is none.
    forecast: Forecast | None = None
    #: Why there is none.
    failure: str = ""

    @property
    def staleness(self) -> str:
        """Why the demand tells nothing about now; empty where it does."""
        because = f" ({self.trouble})" if self.trouble else ""
        if not len(self.history):
            return f"no demand is known{because}"
        age_s = self.now - self.history.end_at
        return f"demand is {age_s / UNIT_S:.0f} min old{because}" if age_s > STALE_S else ""


def demand_of_rates(rates: Mapping[int, float]) -> Demand:
    """Demand of rates by the start of their minute, epoch seconds.

    A missing minute holds the rate before it: no sample is not no load. The highest window of 5 s is what a
    Poisson process of the minute's rate has on average, as a minute's rate does not tell it.
    """
    starts = sorted(rates)
    if not starts:
        return Demand(end_at=0.0, mean_rps=(), max_rps=())
    mean_rps = []
    held = rates[starts[0]]
    for start in range(starts[0], starts[-1] + 1, int(UNIT_S)):
        held = rates.get(start, held)
        mean_rps.append(held)
    return Demand(
        end_at=starts[-1] + UNIT_S,
        mean_rps=tuple(mean_rps),
        max_rps=tuple(rate + BUSIEST * math.sqrt(rate / WINDOW_S) for rate in mean_rps),
    ).last(KEEP_HISTORY)


def decide_pods(policy: ControllerPolicy, seen: Outlook, last: PodPlan | None) -> PodPlan:
    """Decide the pods of each offering of the policy. last: what was told before.

    PlanInfeasible where no demand is known, and nothing was told before.
    """
    if stale := seen.staleness:
        if last is None:
            raise PlanInfeasible(stale)
        reason = f"{stale}: the last answer stays"
        return _answered(policy, seen, _counts(policy, last), {}, reason, end_at=last.demand_end_at)
    forecast = with_events(seen.forecast or _last_minute(seen, policy.horizon), policy.events)
    observed = Observation(now=seen.now, fleet=_fleet(policy, last))
    request = plan_request(State(), observed, policy, history=seen.history, forecast=forecast)
    try:
        plan = plan_fleet(request, policy)
    except PlanInfeasible as error:
        return _topped_up(policy, seen, last, f"no plan: {error}")
    return _planned(policy, seen, plan, forecast)


def _planned(policy: ControllerPolicy, seen: Outlook, plan: Plan, forecast: Forecast) -> PodPlan:
    counts = {item.offering: item.count for item in plan.counts}
    ahead_min = (plan.at - seen.now) / UNIT_S
    reason = f"{forecast.label}, {ahead_min:.0f} min ahead: {plan.reason}"
    excuses = {item.offering: item.reason for item in plan.excuses if not counts.get(item.offering)}
    return _answered(policy, seen, counts, excuses, reason, end_at=seen.history.end_at)


def _topped_up(policy: ControllerPolicy, seen: Outlook, last: PodPlan | None, why: str) -> PodPlan:
    """The last answer, and as many of the cheapest as the last minute's need takes beyond it."""
    counts = _counts(policy, last)
    need_rps = seen.history.max_rps[-1]
    have_rps = sum(counts[item.name] * item.capacity_rps for item in policy.offerings)
    cheapest = cheapest_per_request(policy.offerings)
    missing = max(0.0, need_rps - have_rps) / cheapest.capacity_rps
    counts[cheapest.name] += math.ceil(missing * (1.0 - SAME_COUNT))
    reason = f"{why}; the last answer, topped up to the last minute's need of {figure(need_rps)} requests/s"
    return _answered(policy, seen, counts, {}, reason, end_at=seen.history.end_at)


def _last_minute(seen: Outlook, horizon: int) -> Forecast:
    """The last minute's need, as if it went on."""
    history = seen.history
    return point_forecast(
        history.end_at,
        mean_rps=history.mean_rps[-1:] * horizon,
        max_rps=history.max_rps[-1:] * horizon,
        source="the last minute's need",
        degraded=seen.failure or None,
    )


def _answered(
    policy: ControllerPolicy,
    seen: Outlook,
    counts: Mapping[str, int],
    excuses: Mapping[str, str],
    reason: str,
    *,
    end_at: float,
) -> PodPlan:
    names = sorted(item.name for item in policy.offerings)
    return PodPlan(
        at=seen.now,
        demand_end_at=end_at,
        pods=tuple(
            PodCount(offering=name, count=counts.get(name, 0), reason=excuses.get(name, reason)) for name in names
        ),
    )


def _counts(policy: ControllerPolicy, last: PodPlan | None) -> dict[str, int]:
    """The last answer, of the offerings that there are."""
    told = {one.offering: one.count for one in last.pods} if last else {}
    return {item.name: told.get(item.name, 0) for item in policy.offerings}


def _fleet(policy: ControllerPolicy, last: PodPlan | None) -> FleetView:
    """The fleet that was last told: whether pods of it wait for a node is not known."""
    return FleetView(
        instances=tuple(
            Instance(id=f"{name}/{number}", offering=name, state=InstanceState.READY)
            for name, count in sorted(_counts(policy, last).items())
            for number in range(count)
        )
    )
