"""The policy's planner and its request: the same live, in a replay and from a journal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from mark.controller.limits.launch_limits import LaunchLimits
from mark.controller.limits.spot_breaker import observed_hazards
from mark.controller.policy import ControllerPolicy
from mark.controller.service_time_ratios import with_ratios
from mark.controller.state import Observation, State
from mark.controller.step import running_counts
from mark.domain.demand import Demand, Forecast
from mark.domain.errors import PlanInfeasible, unknown
from mark.domain.figures import figure
from mark.domain.fleet.instances import FleetView, Role
from mark.domain.offerings.offering import Offering
from mark.domain.plan import Backup, Plan, PlanRequest
from mark.domain.plans.capacity_schedule import bounds_ahead
from mark.planner.baselines import (
    EmaHeadroom,
    PlanFunction,
    PodAutoscaler,
    PredictiveScaling,
    SpotHedge,
    TargetTracking,
    TwoWindows,
    concurrency_tracking,
    ema_headroom,
    plan_nothing,
    plan_static,
    pod_autoscaler,
    predictive_scaling,
    spothedge,
    target_tracking,
    two_windows,
)
from mark.planner.capacity_bounds import within_bounds
from mark.planner.exact.milp import plan_milp
from mark.planner.greedy import plan_greedy
from mark.planner.hedged import plan_hedged
from mark.planner.kairos.budget_pool import plan_pool
from mark.planner.owned_capacity import owned_capacity, planned_with_owned, with_bases

Rule = TypeVar("Rule", TargetTracking, TwoWindows, EmaHeadroom, SpotHedge, PodAutoscaler)
MANAGED_LEAST = 3
"""Lambda Managed Instances keep three, one a zone (Lambda developer guide, "Scaling", read 2026-11-22)."""
MOST_INSTANCES = 100_000
"""A plan holds fewer: twenty times the largest fleet that is planned in 50 ms."""
_PLANNERS: dict[str, PlanFunction] = {
    "greedy": plan_greedy,
    "hedged": plan_hedged,
    "milp": plan_milp,
    "nothing": plan_nothing,
}
_AUTOSCALERS: dict[str, Callable[[ControllerPolicy], PlanFunction]] = {
    "concurrency-tracking": lambda policy: concurrency_tracking(_set(TargetTracking(), policy)),
    "ema-headroom": lambda policy: ema_headroom(_set(EmaHeadroom(), policy)),
    "managed-instances": lambda policy: concurrency_tracking(_set(TargetTracking(least=MANAGED_LEAST), policy)),
    "pod-autoscaler": lambda policy: pod_autoscaler(_set(PodAutoscaler(), policy)),
    "predictive-scaling": lambda policy: predictive_scaling(
        PredictiveScaling(tracking=_set(TargetTracking(), policy))
    ),
    "spothedge": lambda policy: spothedge(_set(SpotHedge(), policy)),
    "target-tracking": lambda policy: target_tracking(_set(TargetTracking(), policy)),
    "two-windows": lambda policy: two_windows(_set(TwoWindows(), policy)),
}


def _set(rule: Rule, policy: ControllerPolicy) -> Rule:
    """The rule with the figures that the policy has of it."""
    given: dict[str, Any] = {"utilisation": policy.utilisation, "alpha": policy.alpha, "spare": policy.spare}
    known = {field.name for field in fields(rule)}
    return replace(rule, **{name: value for name, value in given.items() if value is not None and name in known})


def planner_names() -> tuple[str, ...]:
    """All planners, sorted."""
    return tuple(sorted((*_PLANNERS, *_AUTOSCALERS, "kairos", "static")))


def plan_fleet(request: PlanRequest, policy: ControllerPolicy, own: PlanFunction | None = None) -> Plan:
    """Plan with the policy's planner, or the user's `own`, within the bounds of its schedule.

    PlanInfeasible where no fleet meets the objective, or none so large.
    """
    _refuse_absurd(request)
    plan = _planned(request, policy) if own is None else own(request)
    return within_bounds(plan, with_bases(request)) if policy.capacity else plan


def _planned(request: PlanRequest, policy: ControllerPolicy) -> Plan:
    if policy.planner == "static":
        return plan_static(policy.static_count)(request)
    if policy.planner == "kairos":
        assert policy.pool is not None, "the policy kairos is made with its budget"
        return plan_pool(policy.pool)(request)
    if policy.planner in _AUTOSCALERS:
        return _AUTOSCALERS[policy.planner](policy)(request)
    if policy.planner not in _PLANNERS:
        raise unknown("planner", policy.planner, planner_names())
    return planned_with_owned(_PLANNERS[policy.planner], request)


def _refuse_absurd(request: PlanRequest) -> None:
    """A forecast that no cloud could serve is a mistake of the forecaster: say so, do not count instances."""
    largest = max((o.capacity_rps for o in request.offerings), default=math.inf)
    highest = max(request.forecast.max_at(0.5), default=0.0)
    if highest > MOST_INSTANCES * largest:
        raise PlanInfeasible(
            f"{figure(highest, digits=3)} requests/s would take more than {MOST_INSTANCES:,} instances; "
            "check the forecast"
        )


def plan_request(
    known: State,
    seen: Observation,
    policy: ControllerPolicy,
    *,
    history: Demand,
    forecast: Forecast,
    explained: bool = True,
) -> PlanRequest:
    """Compose the planner's request at a tick that saw `seen`. known: what `apply_observation` gave of it."""
    policy = with_ratios(policy, known.service_time_ratios)
    offerings = policy.offerings_at(dict(seen.fleet.spot_usd_per_hour))
    # what runs of an offering that was taken away is no candidate
    running = tuple(item for item in running_counts(known, seen.fleet) if policy.offering(item[0]) is not None)
    limits = LaunchLimits(known, seen, policy)
    refused = limits.refused
    candidates = _candidates(offerings, policy.fallbacks, refused=refused, running={name for name, _ in running})
    owned = policy.commitments if known.commitments is None else known.commitments
    return PlanRequest(
        now=seen.now,
        history=history.last(policy.history_units),
        forecast=forecast,
        offerings=candidates,
        running=running,
        slo=policy.slo,
        lead_units=policy.lead_units,
        priority=tuple(item.name for item in offerings) if policy.by_priority else (),
        ready=tuple(sorted(seen.fleet.ready.items())),
        ready_history=known.ready_history,
        recent_rps=seen.recent_rps,
        refused=tuple(sorted(refused)),
        launches_left=tuple((item.name, limits.at_once(item.name)) for item in candidates),
        backup=replace(_backup(policy, seen.fleet), shared_rps=seen.shared_rps),
        hazards=_hazards(known, policy, dict(running)),
        launch_weight_usd_per_s=policy.launch_weight_usd_per_s,
        bounds=bounds_ahead(
            policy.capacity, policy.clock_at + seen.now, _ready_after_s(policy, candidates, forecast.unit_s)
        ),
        sizes=known.sizes,
        miss_factor=known.error_budget.miss_factor(policy.slo.target),
        explained=explained,
        owned=owned_capacity(
            owned.active_at(policy.clock_at + seen.now),
            (*offerings, *policy.fallbacks),
            running=dict(running),
            refused=refused,
        ),
    )


def request_from_nothing(
    policy: ControllerPolicy, history: Demand, forecast: Forecast, *, shared_rps: float | None = None
) -> PlanRequest:
    """The planner's request for a model that has no instance yet. shared_rps: as observed."""
    seen = Observation(now=history.end_at, fleet=FleetView(), shared_rps=shared_rps)
    return plan_request(State(), seen, policy, history=history, forecast=forecast)


def plan_from_nothing(
    policy: ControllerPolicy, history: Demand, forecast: Forecast, *, shared_rps: float | None = None
) -> Plan:
    """The plan of a model that has no instance yet. shared_rps: as observed. PlanInfeasible as `plan_fleet`."""
    return plan_fleet(request_from_nothing(policy, history, forecast, shared_rps=shared_rps), policy)


def _ready_after_s(policy: ControllerPolicy, candidates: tuple[Offering, ...], unit_s: float) -> float:
    """Seconds after which all that this plan launches serves; the next plan is a period later."""
    boot_s = max((offering.boot_s for offering in candidates), default=0.0)
    return max(policy.lead_units * unit_s, boot_s) + policy.period_s


def _hazards(known: State, policy: ControllerPolicy, running: dict[str, int]) -> tuple[tuple[str, float], ...]:
    if policy.breaker is None:
        return ()
    prior = {offering.name: offering.hazard_per_hour for offering in policy.offerings}
    return observed_hazards(known.spot_pools, policy.breaker, prior, running)


def _backup(policy: ControllerPolicy, fleet: FleetView) -> Backup:
    """The capacity beside the planned fleet: Lambda where it is in time, and the standbys that are there."""
    standby, relieves = policy.standby, policy.overflow is not None
    if standby is None or not standby.surges:
        return Backup(lambda_usd=policy.lambda_usd, relieves=relieves)
    standbys = sum(1 for instance in fleet if instance.role is Role.STANDBY)
    return Backup(
        lambda_usd=policy.lambda_usd,
        relieves=relieves,
        standby=standby.offering,
        wake_s=standby.wake_s,
        wake_refused=standby.wake_refused,
        asleep_usd_per_hour=standby.asleep_usd_per_hour,
        standbys=standbys,
    )


def _candidates(
    offerings: Sequence[Offering], fallbacks: Sequence[Offering], *, refused: set[str], running: set[str]
) -> tuple[Offering, ...]:
    """Offerings to choose from: those not refused, and on-demand twins of the refused or already running."""
    lacking = {o.instance_type.name for o in offerings if o.name in refused}
    twins = (
        twin
        for twin in fallbacks
        if (twin.instance_type.name in lacking and twin.name not in refused) or twin.name in running
    )
    # A refused offering still runs where it runs: what is there stays a candidate.
    kept = (o for o in offerings if o.name not in refused or o.name in running)
    return (*kept, *twins)
