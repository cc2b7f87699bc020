"""Baseline planners that MArk is compared with: reactive autoscalers, a static fleet and Lambda alone.

Each gets the inputs of the real thing and no more. All but `plan_nothing` rent one type, `cheapest_type`, and look
at measured load only, never at the forecast. They count capacity without batching, 1 / T_1, as a service does that
knows requests and instances only.

A planner is a pure function of its PlanRequest. What a real autoscaler remembers (alarm states, panic mode) is
therefore derived from the measurements in the request; each docstring says how. Their plans hold from now on: an
autoscaler launches at once, without a lead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mark.domain.demand import Demand
from mark.domain.errors import PlanInfeasible
from mark.domain.objective import Slo
from mark.domain.offering import Offering
from mark.domain.plan import Excuse, Plan, PlannedCount, PlanRequest

PlanFunction = Callable[[PlanRequest], Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTracking:
    """Application Auto Scaling's target tracking on SageMakerVariantInvocationsPerInstance.

    The target is capacity / `over_provision` (SageMaker's guide: safety factor 0.5). The high alarm needs
    `breaches_up` of as many minutes above the target, the low one `breaches_down` below `scale_in_at` x target.
    """

    over_provision: float = 2.0
    breaches_up: int = 3
    breaches_down: int = 15
    scale_in_at: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoWindows:
    """Knative's pod autoscaler with its defaults (config-autoscaler): a stable window of 60 s and a panic window.

    The panic window is 6 s there, one window of 5 s here. Panic starts when it wants `panic_threshold` x the ready
    instances and ends a stable window after the last such moment.
    """

    utilisation: float = 0.7
    panic_threshold: float = 2.0
    max_scale_up_rate: float = 1000.0
    max_scale_down_rate: float = 2.0


def cheapest_type(offerings: Sequence[Offering], slo: Slo) -> Offering:
    """The offering that is cheapest per request without batching, among those whose T_1 meets `slo.latency_s`.

    Ties by name. Raises PlanInfeasible where none does.
    """
    able = [item for item in offerings if item.profile.latency_s(1) <= slo.latency_s]
    if not able:
        raise PlanInfeasible(
            f"no offering answers a single request within {slo.latency_s * 1000:.0f} ms; add a faster type"
        )
    return min(able, key=lambda item: (item.usd_per_hour * item.profile.latency_s(1), item.name))


def single_rps(offering: Offering) -> float:
    """Capacity without batching: 1 / T_1."""
    return 1.0 / offering.profile.latency_s(1)


def peak_count(history: Demand, capacity_rps: float) -> int:
    """Instances of `capacity_rps` for the highest minute (mean rate) of `history`; at least one."""
    return _instances(max(history.mean_rps, default=0.0), capacity_rps)


def target_tracking(policy: TargetTracking) -> PlanFunction:
    """SageMaker's planner: target tracking on invocations per instance and minute.

    The metric of a minute is its invocations over the instances ready at its end. In high alarm the fleet grows at
    once to ceil(invocations of the last minute / target), in low alarm it falls to the same figure; otherwise the
    count stays. Being proportional, it counts instances that still boot as there. AWS documents that scale-in is
    gradual without saying how: its patience is the alarm's 15 minutes. Without any instance (the endpoint is being
    made) it takes what the last minute needs.
    """

    def plan(request: PlanRequest) -> Plan:
        kind = cheapest_type(request.offerings, request.slo)
        current = dict(request.running).get(kind.name, 0)
        target = single_rps(kind) * 60.0 / policy.over_provision
        minutes = [rate * 60.0 for rate in request.history.mean_rps]
        ready = [max(1, count) for count in request.ready_history]
        known = min(len(minutes), len(ready))
        loads = [minutes[i - known] / ready[i - known] / target for i in range(known)]
        needed = _instances(minutes[-1] if minutes else 0.0, target)
        high = _all_of(loads, policy.breaches_up, lambda load: load > 1.0)
        low = _all_of(loads, policy.breaches_down, lambda load: load < policy.scale_in_at)
        if current == 0:
            count, why = needed, "first fleet"
        elif high and needed > current:
            count, why = needed, f"above target {policy.breaches_up} of {policy.breaches_up} minutes"
        elif low and needed < current:
            count, why = needed, f"below target {policy.breaches_down} of {policy.breaches_down} minutes"
        else:
            count, why = current, "no alarm"
        figures = f"{minutes[-1] if minutes else 0.0:.4g} invocations/min, target {target:.4g} an instance"
        return _single_type_plan(request, kind, count, f"{why}: {figures}")

    return plan


def two_windows(policy: TwoWindows) -> PlanFunction:
    """Knative's planner over `request.recent_rps` (windows of 5 s, oldest first; twelve are the stable window).

    A window with rate r wants ceil(r / (utilisation x capacity)) instances. The stable wish is that of the mean of
    all windows, and falls to 1 / max_scale_down_rate of the ready ones at once at most. Panic lasts while *any*
    window of the stable window wants `panic_threshold` x the instances ready now: that is Knative's timer read off
    the measurements, but for the ready count, which is today's. In panic the highest of those wishes counts and
    nothing is given back. "Ready" is the end of the last unit's count (all that run when it is not known).
    """

    def plan(request: PlanRequest) -> Plan:
        kind = cheapest_type(request.offerings, request.slo)
        current = dict(request.running).get(kind.name, 0)
        windows = request.recent_rps or request.history.mean_rps[-1:]
        ready = max(1, request.ready_history[-1] if request.ready_history else current)
        per_instance = policy.utilisation * single_rps(kind)
        stable = _instances(sum(windows) / max(1, len(windows)), per_instance)
        highest = _instances(max(windows, default=0.0), per_instance)
        ceiling = math.ceil(policy.max_scale_up_rate * ready)
        panic = highest >= policy.panic_threshold * ready
        if panic:
            count = max(current, min(highest, ceiling))
        else:
            count = min(max(stable, math.floor(ready / policy.max_scale_down_rate)), ceiling)
        mode = "panic" if panic else "stable"
        reason = f"{mode}: windows want {stable} on average and {highest} at most, {ready} ready"
        return _single_type_plan(request, kind, count, reason)

    return plan


def plan_static(count: int) -> PlanFunction:
    """A planner that always wants `count` instances of the cheapest type (see `peak_count`)."""

    def plan(request: PlanRequest) -> Plan:
        kind = cheapest_type(request.offerings, request.slo)
        return _single_type_plan(request, kind, count, f"always {count}")

    return plan


def plan_nothing(request: PlanRequest) -> Plan:
    """The empty plan: all that the forecast expects one lead from its start falls short (lambda-only)."""
    rates = request.forecast.max_at(0.5)
    tau = max(0, min(request.lead_units, len(rates) - 1))
    rate = rates[tau] if rates else 0.0
    return Plan(
        at=request.forecast.start_at + tau * request.forecast.unit_s,
        counts=(),
        required_rps=rate,
        capacity_rps=0.0,
        shortfall_rps=rate,
        excuses=tuple(
            Excuse(offering=name, reason="this policy rents no instances")
            for name in sorted(item.name for item in request.offerings)
        ),
        reason=f"{rate:.4g} requests/s expected, all of them for Lambda",
    )


plan_target_tracking = target_tracking(TargetTracking())
plan_two_windows = two_windows(TwoWindows())


def _instances(load: float, per_instance: float) -> int:
    """At least one. A load that rounding alone puts above a whole number needs no further instance."""
    return max(1, math.ceil(load / per_instance - 1e-9))


def _all_of(loads: list[float], count: int, breached: Callable[[float], bool]) -> bool:
    return len(loads) >= count and all(breached(load) for load in loads[-count:])


def _single_type_plan(request: PlanRequest, kind: Offering, count: int, reason: str) -> Plan:
    capacity_rps = single_rps(kind)
    fleet = PlannedCount(
        offering=kind.name,
        count=count,
        kept=min(count, dict(request.running).get(kind.name, 0)),
        usable_rps=capacity_rps,
        usd_per_hour=kind.usd_per_hour,
        launch_usd=kind.launch_usd,
    )
    return Plan(
        at=request.now,
        counts=(fleet,) if count else (),
        required_rps=request.history.mean_rps[-1] if request.history.mean_rps else 0.0,
        capacity_rps=count * capacity_rps,
        excuses=tuple(
            Excuse(offering=name, reason=f"this policy rents one type, {kind.name}")
            for name in sorted(item.name for item in request.offerings)
            if name != kind.name
        ),
        reason=f"{count} {kind.name}, {reason}",
    )
