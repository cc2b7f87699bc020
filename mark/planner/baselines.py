"""Baseline planners that MArk is compared with: reactive autoscalers, a static fleet and Lambda alone.

Each gets the inputs of the real thing and no more. All but `plan_nothing` look at measured load only, never at
the forecast, and rent one type, the cheapest per request of those they are offered, or several by priority. An
instance counts for its offering's capacity: 1 / T_1 where a policy serves without batches, as one does that knows
requests only.

A planner is a pure function of its PlanRequest. What a real autoscaler remembers (alarm states, panic mode) is
therefore derived from the measurements in the request; each docstring says how. Their plans hold from now on: an
autoscaler launches at once, without a lead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mark.domain.demand import Demand
from mark.domain.errors import PlanInfeasible
from mark.domain.figures import figure
from mark.domain.load.sizes import SizeDistribution
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Market, Offering, cheapest_per_request
from mark.domain.plan import Excuse, Plan, PlannedCount, PlanRequest
from mark.planner.batching import capacity_rps

PlanFunction = Callable[[PlanRequest], Plan]
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTracking:
    """Application Auto Scaling's target tracking on SageMakerVariantInvocationsPerInstance.

    The target is `utilisation` x capacity (SageMaker's guide: safety factor 0.5). The high alarm needs
    `breaches_up` of as many minutes above the target, the low one `breaches_down` below `scale_in_at` x target.
    There are `least` instances at any time.
    """

    utilisation: float = 0.5
    breaches_up: int = 3
    breaches_down: int = 15
    scale_in_at: float = 0.9
    least: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictiveScaling:
    """EC2 Auto Scaling's predictive scaling beside target tracking (EC2 Auto Scaling user guide, read 2026-11-22).

    It forecasts the load by the hour from up to 14 days, launches `buffer_s` before the hour
    (SchedulingBufferTime), and never scales in; of its count and target tracking's the larger holds.
    """

    tracking: TargetTracking = TargetTracking()
    days: int = 14
    buffer_s: float = 300.0


CONCURRENCY_WINDOWS = 2
"""Windows of 5 s in one value of the concurrency metric, which is emitted every 10 s (SageMaker developer guide,
"Define a scaling policy", read 2026-11-22)."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAutoscaler:
    """Kubernetes' horizontal pod autoscaler on requests per second and pod, with its defaults.

    It wants ceil(load / (utilisation x capacity)) pods, and changes nothing while the load of a pod is within
    `tolerance` of the target. It scales in to the most that it wanted in the last `stable_units`
    (--horizontal-pod-autoscaler-downscale-stabilization, 5 minutes; Kubernetes documentation, read 2026-11-28).
    """

    utilisation: float = 0.7
    tolerance: float = 0.1
    stable_units: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class EmaHeadroom:
    """A schedule that a team writes itself: the usual load of each hour of the day, and headroom.

    The usual load is the exponential moving average over the days of the hour's mean, in which the newest day
    weighs `alpha`. The headroom is 1 / `utilisation`. What an hour needs is launched `buffer_s` before it.
    """

    utilisation: float = 0.7
    alpha: float = 0.5
    days: int = 14
    buffer_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotHedge:
    """SpotHedge, the policy of SkyServe.

    Mao et al., "SkyServe: Serving AI Models across Regions and Clouds with Spot Instances", EuroSys 2025 (arXiv
    2411.01438). The load takes N_Tar replicas; these and N_Extra = `spare` more are asked for on spot, spread over
    zones. Replicas on demand stand in for spot ones that are not ready: O = min(N_Tar, N_Tar + N_Extra - S_ready).
    Rules and delays are those of its code, defaults included (SkyPilot, sky/serve/autoscalers.py and
    spot_placer.py, read 2026-11-28): the target rises after `up_units` in a row that want more, and falls after
    `down_units` that want less.
    """

    utilisation: float = 0.7
    spare: int = 1
    up_units: int = 5
    down_units: int = 20


SETTLING_UNITS = 60
"""Units whose mean the target of SpotHedge begins with: the oldest that are known."""


def cheapest_type(offerings: Sequence[Offering], slo: Slo, sizes: SizeDistribution | None = None) -> Offering:
    """The offering that is cheapest per request without batching, among those whose T_1 meets `slo.latency_s`.

    Ties by name. Raises PlanInfeasible where none does.
    """
    able = [item for item in offerings if item.profile.latency_s(1) <= slo.latency_s]
    if not able:
        raise PlanInfeasible(
            f"no offering answers a single request within {slo.latency_s * 1000:.0f} ms; add a faster type"
        )

    def alone_s(item: Offering) -> float:
        return item.profile.latency_s(1) if sizes is None else 1.0 / single_rps(item, sizes)

    return min(able, key=lambda item: (item.usd_per_hour * alone_s(item), item.name))


def single_rps(offering: Offering, sizes: SizeDistribution | None = None) -> float:
    """Capacity without batching: 1 / T_1, or one over the mean time of a request of these sizes."""
    return capacity_rps(offering.profile, 1, sizes)


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
        rented = _Rented(request)
        target = rented.capacity_rps * 60.0 * policy.utilisation
        minutes = [rate * 60.0 for rate in request.history.mean_rps]
        loads = _loads(request, minutes, target)
        needed = _instances(minutes[-1] if minutes else 0.0, target)
        high = _all_of(loads, policy.breaches_up, lambda load: load > 1.0)
        count, why = _tracked(policy, rented.running, loads, (needed, needed), high=high)
        figures = f"{figure(minutes[-1] if minutes else 0.0)} invocations/min, target {figure(target)} an instance"
        return rented.plan(count, f"{why}: {figures}")

    return plan


def concurrency_tracking(policy: TargetTracking) -> PlanFunction:
    """SageMaker's planner on its high-resolution metric, ConcurrentRequestsPerModel.

    The metric comes every 10 s instead of every minute: the high alarm needs `breaches_up` such values, while
    scaling in is as slow as with the other metric (SageMaker developer guide, "Define a scaling policy"). Requests
    in service are read off the arrivals: rate / capacity, by Little's law. What waits is left out: the queue limit
    keeps it below the objective.
    """

    def plan(request: PlanRequest) -> Plan:
        rented = _Rented(request)
        target = rented.capacity_rps * policy.utilisation
        ready = max(1, request.ready_history[-1] if request.ready_history else rented.running)
        values = _means(request.recent_rps, CONCURRENCY_WINDOWS)
        high = _all_of([rate / ready / target for rate in values], policy.breaches_up, lambda load: load > 1.0)
        minutes = list(request.history.mean_rps)
        last = minutes[-1] if minutes else 0.0
        needed = _instances(last, target), _instances(values[-1] if values else last, target)
        count, why = _tracked(policy, rented.running, _loads(request, minutes, target), needed, high=high)
        return rented.plan(count, f"{why}: target {figure(target)} requests/s an instance")

    return plan


def predictive_scaling(policy: PredictiveScaling) -> PlanFunction:
    """EC2 Auto Scaling's planner: the larger of target tracking's count and of the forecast of this hour.

    AWS does not publish how it forecasts. Here an hour's load is the mean of the same hour on the days that are
    known: the daily pattern that the guide names. That the real forecast is made anew every six hours, for 48,
    makes no difference to it. Before a day is known there is no forecast.
    """
    track = target_tracking(policy.tracking)

    def plan(request: PlanRequest) -> Plan:
        rented = _Rented(request)
        tracked = track(request)
        count = sum(item.count for item in tracked.counts)
        per_instance = rented.capacity_rps * policy.tracking.utilisation
        hours = dict.fromkeys(at // HOUR_S * HOUR_S for at in (request.now, request.now + policy.buffer_s))
        known = [rate for at in hours if (rate := _usual_rps(request.history, at, policy.days)) is not None]
        ahead = max((_instances(rate, per_instance) for rate in known), default=0)
        if ahead <= count:
            return tracked
        return rented.plan(ahead, f"forecast of the hour {figure(max(known))} requests/s; {tracked.reason}")

    return plan


def _usual_rps(history: Demand, hour_at: float, days: int) -> float | None:
    """Mean rate in the hour from `hour_at` on, on the last `days` days; None where none of them is known."""
    hours = _hours_before(history, hour_at, days)
    return sum(sum(rates) for rates in hours) / sum(len(rates) for rates in hours) if hours else None


def _hours_before(history: Demand, hour_at: float, days: int) -> list[tuple[float, ...]]:
    """The rates in that hour on each of the last `days` days that are known, the newest first."""
    hours = []
    for day in range(1, days + 1):
        end = len(history) - round((history.end_at - (hour_at - day * DAY_S + HOUR_S)) / history.unit_s)
        begin = end - round(HOUR_S / history.unit_s)
        if begin < 0:
            break
        hours.append(history.mean_rps[begin:end])
    return hours


def _moving_average(hours: Sequence[Sequence[float]], alpha: float) -> float | None:
    """The exponential moving average of their means, the newest first; None of none."""
    average = None
    for rates in reversed(hours):
        mean = sum(rates) / len(rates)
        average = mean if average is None else alpha * mean + (1.0 - alpha) * average
    return average


def ema_headroom(policy: EmaHeadroom) -> PlanFunction:
    """A planner that goes by the hour of the day: this hour's usual load, or the next one's shortly before it.

    An hour that no day is known of has the load of the 60 minutes before now.
    """

    def plan(request: PlanRequest) -> Plan:
        rented, history = _Rented(request), request.history
        hours = dict.fromkeys(at // HOUR_S * HOUR_S for at in (request.now, request.now + policy.buffer_s))
        usual = [_moving_average(_hours_before(history, at, policy.days), policy.alpha) for at in hours]
        last_hour = history.mean_rps[-round(HOUR_S / history.unit_s) :]
        lately = sum(last_hour) / max(1, len(last_hour))
        rate = max(lately if one is None else one for one in usual)
        count = _instances(rate, rented.capacity_rps * policy.utilisation)
        return rented.plan(count, f"usual load of the hour {figure(rate)} requests/s")

    return plan


def spothedge(policy: SpotHedge) -> PlanFunction:
    """SkyServe's planner: see `SpotHedge`. A zone is an offering on spot; one that was interrupted is refused.

    A replica that is to be interrupted is not ready. The target is read off the minutes that are known: from the
    mean of the oldest hour on, by the delays. New replicas go to zones without any, then to the cheapest; the
    fullest zone gives back first. Without a spot market all of the target is on demand.
    """

    def plan(request: PlanRequest) -> Plan:
        rented = _Rented(request)
        target = _settled(request.history.mean_rps, rented.capacity_rps * policy.utilisation, policy)
        zones = rented.of(Market.SPOT)
        wanted = target + policy.spare if zones else 0
        counts = _spread(zones, dict(request.running), wanted, frozenset(request.refused))
        ready = sum(dict(request.ready).get(item.name, 0) for item in zones)
        bridging = max(0, min(target, wanted - ready)) if zones else target
        for twin in rented.of(Market.ON_DEMAND)[:1]:
            counts[twin.name] = bridging
        words = f"{target} for the load, {wanted} wanted on spot, {ready} of them ready"
        return rented.plan_counts(counts, f"{target} {rented.kind.instance_type.name}, {words}")

    return plan


def _settled(rates: Sequence[float], per_instance: float, policy: SpotHedge) -> int:
    """The target after these units: it moves when the load has asked for more, or for less, for long enough."""
    first = rates[:SETTLING_UNITS]
    target = _instances(sum(first) / max(1, len(first)), per_instance)
    above = below = 0
    for rate in rates:
        needed = _instances(rate, per_instance)
        above = above + 1 if needed > target else 0
        below = below + 1 if needed < target else 0
        if above >= policy.up_units or below >= policy.down_units:
            target, above, below = needed, 0, 0
    return target


def _spread(
    zones: Sequence[Offering], running: Mapping[str, int], wanted: int, refused: frozenset[str]
) -> dict[str, int]:
    """So many instances over the zones: those that run, more where none run, then in the cheapest zone."""
    counts = {item.name: running.get(item.name, 0) for item in zones}
    missing = wanted - sum(counts.values())
    by_price = sorted((item.usd_per_hour, item.name) for item in zones if item.name not in refused)
    for _, name in by_price:
        if missing > 0 and not counts[name]:
            counts[name], missing = 1, missing - 1
    if missing > 0 and by_price:
        counts[by_price[0][1]] += missing
    usd = {item.name: item.usd_per_hour for item in zones}
    for _ in range(-missing):
        counts[max(counts, key=lambda name: (counts[name], usd[name], name))] -= 1
    return counts


def two_windows(policy: TwoWindows) -> PlanFunction:
    """Knative's planner over `request.recent_rps` (windows of 5 s, oldest first; twelve are the stable window).

    A window with rate r wants ceil(r / (utilisation x capacity)) instances. The stable wish is that of the mean of
    all windows, and falls to 1 / max_scale_down_rate of the ready ones at once at most. Panic lasts while *any*
    window of the stable window wants `panic_threshold` x the instances ready now: that is Knative's timer read off
    the measurements, but for the ready count, which is today's. In panic the highest of those wishes counts and
    nothing is given back. "Ready" is the end of the last unit's count (all that run when it is not known).
    """

    def plan(request: PlanRequest) -> Plan:
        rented = _Rented(request)
        current = rented.running
        windows = request.recent_rps or request.history.mean_rps[-1:]
        ready = max(1, request.ready_history[-1] if request.ready_history else current)
        per_instance = policy.utilisation * rented.capacity_rps
        stable = _instances(sum(windows) / max(1, len(windows)), per_instance)
        highest = _instances(max(windows, default=0.0), per_instance)
        ceiling = math.ceil(policy.max_scale_up_rate * ready)
        panic = highest >= policy.panic_threshold * ready
        if panic:
            count = max(current, min(highest, ceiling))
        else:
            count = min(max(stable, math.floor(ready / policy.max_scale_down_rate)), ceiling)
        mode = "panic" if panic else "stable"
        return rented.plan(count, f"{mode}: windows want {stable} on average and {highest} at most, {ready} ready")

    return plan


def pod_autoscaler(policy: PodAutoscaler) -> PlanFunction:
    """Kubernetes' planner over the last minute, which `request.recent_rps` has the windows of.

    Pods that start count as there. What it wanted before is read off the loads of the minutes that are known.
    """

    def plan(request: PlanRequest) -> Plan:
        rented = _Rented(request)
        target = rented.capacity_rps * policy.utilisation
        windows, minutes = request.recent_rps or request.history.mean_rps[-1:], request.history.mean_rps
        rate, current = sum(windows) / max(1, len(windows)), rented.running
        wanted = _instances(rate, target)
        if current and abs(rate / (current * target) - 1.0) <= policy.tolerance:
            wanted = current
        lately = max((_instances(one, target) for one in minutes[-policy.stable_units :]), default=1)
        count = wanted if wanted >= current else min(current, max(wanted, lately))
        return rented.plan(count, f"{figure(rate)} requests/s want {wanted}, the last minutes {lately}")

    return plan


def plan_static(count: int) -> PlanFunction:
    """A planner that always wants `count` instances of the cheapest type (see `peak_count`)."""

    def plan(request: PlanRequest) -> Plan:
        return _Rented(request).plan(count, f"always {count}")

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
        reason=f"{figure(rate)} requests/s expected, all of them for Lambda",
    )


plan_target_tracking = target_tracking(TargetTracking())
plan_concurrency_tracking = concurrency_tracking(TargetTracking())
plan_predictive_scaling = predictive_scaling(PredictiveScaling())
plan_two_windows = two_windows(TwoWindows())


class _Rented:
    """The one type that is rented, or those of a priority list, and what runs of them.

    Where the one type is refused on spot, its on-demand twin is offered in its place, and is kept like the others
    until the fleet shrinks: what autoscalers replace is what is lost, not what is dear.
    """

    def __init__(self, request: PlanRequest) -> None:
        if not request.offerings:
            raise PlanInfeasible(
                "no instance of the one type that is rented can be had; wait, or name another type"
            )
        self._request = request
        in_time = [item for item in request.offerings if item.profile.latency_s(1) <= request.slo.latency_s]
        able = in_time or request.offerings
        self.kind = cheapest_per_request(able)
        alike = [item for item in able if item.instance_type.name == self.kind.instance_type.name]
        self._alike = sorted(alike, key=lambda item: (item.usd_per_request, item.name))
        if request.priority:
            rank = {name: place for place, name in enumerate(request.priority)}
            self._alike = sorted((o for o in request.offerings if o.name in rank), key=lambda o: rank[o.name])
            self.kind = self._alike[0]
        running = dict(request.running)
        self._running = {item.name: running.get(item.name, 0) for item in self._alike}
        self.capacity_rps = self.kind.capacity_rps
        self.running = sum(self._running.values())

    def of(self, market: Market) -> list[Offering]:
        """Its offerings in a market."""
        return [item for item in self._alike if item.market is market]

    def plan(self, count: int, reason: str) -> Plan:
        """So many instances: the cheapest of those that run, and new ones of the cheapest that can be launched.

        By priority: the first of those that run, and new ones of the first, as many as may be launched, then of
        the next.
        """
        request = self._request
        left, counts = count, dict[str, int]()
        for item in self._alike:
            counts[item.name] = min(left, self._running[item.name])
            left -= counts[item.name]
        launchable = [item for item in self._alike if item.name not in request.refused]
        if request.priority:
            rooms = dict(request.launches_left)
            for item in launchable:
                launched = min(left, rooms.get(item.name, left))
                counts[item.name] += launched
                left -= launched
        counts[next(iter(launchable), self.kind).name] += left
        return self.plan_counts(counts, f"{count} {self.kind.name}, {reason}")

    def plan_counts(self, counts: Mapping[str, int], reason: str) -> Plan:
        """So many instances of each."""
        request = self._request
        return Plan(
            at=request.now,
            counts=tuple(self._planned(i, counts[i.name]) for i in self._alike if counts.get(i.name)),
            required_rps=request.history.mean_rps[-1] if request.history.mean_rps else 0.0,
            capacity_rps=sum(counts.values()) * self.capacity_rps,
            excuses=tuple(
                Excuse(offering=name, reason=self._excuse(name))
                for name in sorted(item.name for item in request.offerings)
                if not counts.get(name)
            ),
            reason=reason,
        )

    def _excuse(self, name: str) -> str:
        if self._request.priority:
            return "one of a higher priority does"
        if name in self._running:
            return "none of it is needed now"
        return f"this policy rents one type, {self.kind.name}"

    def _planned(self, item: Offering, count: int) -> PlannedCount:
        return PlannedCount(
            offering=item.name,
            count=count,
            kept=min(count, self._running[item.name]),
            usable_rps=self.capacity_rps,
            usd_per_hour=item.usd_per_hour,
            launch_usd=item.launch_usd,
        )


def _tracked(
    policy: TargetTracking, current: int, minute_loads: list[float], needed: tuple[int, int], *, high: bool
) -> tuple[int, str]:
    """The count that target tracking sets, and why. needed: instances by the last minute, by the high alarm."""
    by_minute, by_alarm = (max(policy.least, count) for count in needed)
    low = _all_of(minute_loads, policy.breaches_down, lambda load: load < policy.scale_in_at)
    if current == 0:
        return by_minute, "first fleet"
    if high and by_alarm > current:
        return by_alarm, f"above target {policy.breaches_up} of {policy.breaches_up} times"
    if low and by_minute < current:
        return by_minute, f"below target {policy.breaches_down} of {policy.breaches_down} minutes"
    return current, "no alarm"


def _loads(request: PlanRequest, minutes: list[float], target: float) -> list[float]:
    """Load of each known minute as a share of the target, an instance that was ready at its end."""
    ready = [max(1, count) for count in request.ready_history]
    known = min(len(minutes), len(ready))
    return [minutes[i - known] / ready[i - known] / target for i in range(known)]


def _means(rates: Sequence[float], size: int) -> list[float]:
    """Means of the whole groups of `size`, oldest first; the last group ends with the last rate."""
    whole = len(rates) // size * size
    ending = rates[len(rates) - whole :]
    return [sum(ending[i : i + size]) / size for i in range(0, whole, size)]


def _instances(load: float, per_instance: float) -> int:
    """At least one. A load that rounding alone puts above a whole number needs no further instance."""
    return max(1, math.ceil(load / per_instance - 1e-9))


def _all_of(loads: list[float], count: int, breached: Callable[[float], bool]) -> bool:
    return len(loads) >= count and all(breached(load) for load in loads[-count:])
