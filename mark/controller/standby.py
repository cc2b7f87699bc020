"""Standbys (MArk section 4.5): stopped instances, woken for the failover when spot instances are taken away.

All transitions of a standby are ordered here: launched with role standby; stopped once it is ready for the first
time; woken while the fleet bridges an interruption; stopped again when what was planned is ready; terminated when
there are too many, or, one at a time while all sleep, when a deploy has outdated it: a new one is launched in its
place. `State.active_standbys` names those that were woken, `State.bridging` says that a gap is open.
One that still sleeps a period after `State.last_wake_at` is woken again: the call was lost. Where a wake is
refused another standby is woken in its place, and the same one again after RETRY_WAKE_S.
"""

from __future__ import annotations

import math
from dataclasses import replace

from mark.controller.capacity import carried_rps
from mark.controller.limits.launch_limits import LaunchLimits
from mark.controller.policy import ControllerPolicy, StandbyPolicy
from mark.controller.state import Observation, State, Tokens, wakeable_standbys, woken_standbys
from mark.controller.surges import bridge_surges
from mark.domain.billing.spending import SpendingLimit
from mark.domain.figures import share_words
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.orders import Launch, Order, StartStandby, StopStandby, Terminate

STANDBY_SLACK = 1.25
"""Standbys for surges are terminated once there are so many times more than needed (hysteresis)."""


def keep_standbys(
    state: State, seen: Observation, policy: ControllerPolicy, limits: LaunchLimits, tokens: Tokens
) -> tuple[State, list[Order]]:
    """Size the standbys, wake for a gap, stop when it is closed."""
    if policy.standby is None:
        return state, []
    standbys = [i for i in seen.fleet if i.role is Role.STANDBY]
    bridged = bridge_surges if policy.standby.surges else _bridge_interruption
    state, bridge = bridged(state, seen, policy, policy.standby, standbys, tokens)
    stopping = {name for order in bridge if isinstance(order, StopStandby) for name in order.instances}
    rest = _stop_booted(state, [i for i in standbys if i.id not in stopping], tokens)
    return state, bridge + rest + _size(state, policy.standby, standbys, limits, tokens)


def stop_standbys(seen: Observation, tokens: Tokens) -> list[Order]:
    """Under a spending limit: put standbys to sleep at a floor, end them in a pause."""
    standbys = [i for i in seen.fleet if i.role is Role.STANDBY]
    if seen.spending_limit is SpendingLimit.PAUSE:
        all_of_them = tuple(i.id for i in standbys)
        reason = "the service is paused: standbys end"
        return [Terminate(token=tokens.next(), reason=reason, instances=all_of_them)] if standbys else []
    up = tuple(i.id for i in standbys if i.state in (InstanceState.READY, InstanceState.PENDING))
    reason = "the budget is reached: standbys sleep"
    return [StopStandby(token=tokens.next(), reason=reason, instances=up)] if up else []


def short_rps(state: State, fleet: FleetView, policy: ControllerPolicy) -> float:
    """Planned capacity that no ready, staying instance carries, requests/s."""
    if state.plan is None:
        return 0.0
    there = carried_rps(state, policy, fleet.ready)
    return max(0.0, min(state.plan.required_rps, state.plan.capacity_rps) - there)


def _bridge_interruption(
    state: State,
    seen: Observation,
    policy: ControllerPolicy,
    standby: StandbyPolicy,
    standbys: list[Instance],
    tokens: Tokens,
) -> tuple[State, list[Order]]:
    leaving = [i.id for i in seen.fleet if i.role is Role.SERVING and i.terminates_at is not None]
    awake = woken_standbys(state, standbys, seen.now, policy.period_s)
    short = short_rps(state, seen.fleet, policy)
    if not leaving and short <= 0.0:
        closed = replace(state, bridging=False, active_standbys=())
        up = tuple(i.id for i in awake if i.state in (InstanceState.READY, InstanceState.PENDING))
        if not up:
            return closed, []
        reason = "what was planned is ready again: standbys go back to sleep"
        return closed, [StopStandby(token=tokens.next(), reason=reason, instances=up)]
    if not (leaving or state.bridging):
        return state, []
    asleep = wakeable_standbys(state, standbys, awake)
    lacking = math.ceil(short / standby.offering.capacity_rps) - len(awake)
    woken = tuple(i.id for i in asleep[: max(0, lacking)])
    state = replace(state, bridging=True, active_standbys=(*(i.id for i in awake), *woken))
    if not woken:
        return state, []
    state = replace(state, last_wake_at=seen.now)
    reason = (
        f"{len(leaving)} instances are being taken away, {short:.1f} requests/s short: "
        f"wake {len(woken)} of {len(asleep)} standbys"
    )
    return state, [StartStandby(token=tokens.next(), reason=reason, instances=woken)]


def _stop_booted(state: State, standbys: list[Instance], tokens: Tokens) -> list[Order]:
    """Stop those that are ready without having been woken: their first boot is over."""
    ready = tuple(i.id for i in standbys if i.state is InstanceState.READY and i.id not in state.active_standbys)
    if not ready or state.bridging:
        return []
    return [StopStandby(token=tokens.next(), reason="booted: stands by from now on", instances=ready)]


def _size(
    state: State, standby: StandbyPolicy, standbys: list[Instance], limits: LaunchLimits, tokens: Tokens
) -> list[Order]:
    """Launch standbys that are lacking, terminate surplus ones once all recent plans agree."""
    wanted, why = _standby_target(state, standby)
    coming = sum(r.count for r in state.requested if r.role is Role.STANDBY)
    have = len(standbys) + coming
    if have < wanted:
        name = standby.offering.name
        count, _ = limits.allowed(name, wanted - have)
        if count == 0:  # asked for again as soon as it may be
            return []
        limits.reserve(name, count)
        reason = f"{why}: {wanted} standbys"
        return [Launch(token=tokens.next(), reason=reason, offering=name, count=count, role=Role.STANDBY)]
    spare = [i for i in standbys if i.state is InstanceState.STOPPED and i.id not in state.active_standbys]
    last = sorted(spare, key=lambda i: (i.outdated, i.id), reverse=True)
    surplus = tuple(i.id for i in last[: max(0, len(standbys) - _enough(standby, wanted))])
    if surplus:
        reason = f"{len(standbys)} standbys, {wanted} are enough"
        return [Terminate(token=tokens.next(), reason=reason, instances=surplus)]
    calm = not state.bridging and not coming and len(spare) == len(standbys)
    outdated = min((i.id for i in spare if i.outdated), default=None)
    # the next tick launches one in its place, which it could not while launches are barred or the quota is used
    # up: one asleep takes none of it, so that its end leaves no room
    name = standby.offering.name
    if not calm or outdated is None or limits.barred(name) is not None or not limits.has_quota(name):
        return []
    reason = "an earlier deploy launched this standby: one of today's takes its place"
    return [Terminate(token=tokens.next(), reason=reason, instances=(outdated,))]


def _standby_target(state: State, standby: StandbyPolicy) -> tuple[int, str]:
    """The number of standbys that there should be, and why."""
    if standby.surges and state.plan is not None and state.plan.standby_target is not None:
        return min(standby.max_count, state.plan.standby_target), "worth their disks by the surges that were seen"
    largest = max((past.capacity_rps for past in state.desired), default=0.0)
    wanted = min(standby.max_count, math.ceil(standby.cover_share * largest / standby.offering.capacity_rps))
    return wanted, f"{share_words(standby.cover_share)} of {largest:.0f} requests/s must be bridgeable"


def _enough(standby: StandbyPolicy, wanted: int) -> int:
    """The number above which standbys are surplus: those for surges go late, for a new one costs a launch."""
    return math.ceil(STANDBY_SLACK * wanted) if standby.surges else wanted
