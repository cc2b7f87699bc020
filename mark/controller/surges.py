"""Surge protection by standbys: woken while more arrives than the ready fleet carries, whatever the reason.

A surge, lost spot instances and a launch that is late look the same from here: the load of the last windows
against what is ready and stays. So many standbys are woken as the excess needs, or as the plan foresees; Lambda
carries it until they serve. One goes back to sleep when the last minute would have done without it, or filled it
so little that Lambda would have cost less, where Lambda is in time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from mark.controller.capacity import carried_rps
from mark.controller.policy import ControllerPolicy, StandbyPolicy
from mark.controller.state import Observation, State, Tokens, wakeable_standbys, woken_standbys
from mark.domain.demand import WINDOW_S
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.orders import Order, StartStandby, StopStandby
from mark.planner.hedging.shortfall_cost import WORTH_WAKING

UP = (InstanceState.READY, InstanceState.PENDING)


def is_surging(state: State, fleet: FleetView, recent_rps: Sequence[float], policy: ControllerPolicy) -> bool:
    """True where standbys should be woken before the next plan; the driver polls it each few seconds."""
    standby = policy.standby
    if standby is None or not standby.surges or state.plan is None:
        return False
    standbys = {i.id for i in fleet if i.role is Role.STANDBY}
    awake = len(standbys.intersection(state.active_standbys))
    return awake < len(standbys) and _needed(state, fleet, recent_rps, policy, standby) > awake


def bridge_surges(
    state: State,
    seen: Observation,
    policy: ControllerPolicy,
    standby: StandbyPolicy,
    standbys: list[Instance],
    tokens: Tokens,
) -> tuple[State, list[Order]]:
    """Wake what the excess needs, and put to sleep what the last minute did not."""
    if not (standbys or state.active_standbys or state.bridging):
        return state, []
    awake = woken_standbys(state, standbys, seen.now, policy.period_s)
    foreseen = min(state.plan.standbys_awake, len(standbys)) if state.plan is not None else 0
    needed = max(_needed(state, seen.fleet, seen.recent_rps, policy, standby), foreseen)
    state = replace(state, active_standbys=tuple(i.id for i in awake), bridging=bool(awake))
    if needed > len(awake):
        return _wake(state, seen, awake, standbys, needed - len(awake), tokens)
    if not seen.recent_rps or seen.plan is None:  # put to sleep with a plan only, when all of a minute is known
        return state, []
    keep = max(foreseen, _to_keep(state, seen, policy, standby))
    awake.sort(key=lambda i: (i.state is not InstanceState.PENDING, i.credits or 0.0, i.id))
    spare = [i for i in awake if i.state in UP][: max(0, len(awake) - keep)]
    if not spare:
        return state, []
    rested = {i.id for i in spare}
    left = tuple(name for name in state.active_standbys if name not in rested)
    reason = f"the last minute filled {keep} of {len(awake)} standbys that are awake"
    order = StopStandby(token=tokens.next(), reason=reason, instances=tuple(i.id for i in spare))
    return replace(state, active_standbys=left, bridging=bool(left)), [order]


def _wake(
    state: State, seen: Observation, awake: list[Instance], standbys: list[Instance], count: int, tokens: Tokens
) -> tuple[State, list[Order]]:
    asleep = wakeable_standbys(state, standbys, awake)
    woken = tuple(i.id for i in asleep[:count])
    if not woken:
        return state, []
    rate = _lasting(state, seen.recent_rps)
    reason = (
        f"{rate:.1f} requests/s arrive, {len(awake) + count} standbys are needed beside what is ready: "
        f"wake {len(woken)} of {len(asleep)}"
    )
    state = replace(state, bridging=True, active_standbys=(*state.active_standbys, *woken), last_wake_at=seen.now)
    return state, [StartStandby(token=tokens.next(), reason=reason, instances=woken)]


def _needed(
    state: State,
    fleet: FleetView,
    recent_rps: Sequence[float],
    policy: ControllerPolicy,
    standby: StandbyPolicy,
) -> int:
    """Standbys that the excess which has lasted needs."""
    return _to_carry(*_excess([_lasting(state, recent_rps)], state, fleet, policy, standby))


def _lasting(state: State, recent_rps: Sequence[float]) -> float:
    """The rate that all windows of the plan's wake delay reached; no windows are known at a start."""
    if not recent_rps:
        return state.last_unit.mean_rps if state.last_unit else 0.0
    delay_s = state.plan.wake_delay_s if state.plan is not None else 0.0
    return min(recent_rps[-max(1, math.ceil(delay_s / WINDOW_S)) :])


def _to_keep(state: State, seen: Observation, policy: ControllerPolicy, standby: StandbyPolicy) -> int:
    """Standbys that the last minute needed, and filled so far that Lambda would have cost more than their rent.

    Until a minute has passed since the last wake, that minute is not all of the surge's: any need counts.
    """
    excess = _excess(seen.recent_rps, state, seen.fleet, policy, standby)
    needed = _to_carry(max(excess))
    if seen.now < state.last_wake_at + WINDOW_S * len(seen.recent_rps):
        return needed
    least = min(WORTH_WAKING, standby.offering.usd_per_request / policy.lambda_usd)
    filled = (fmean(min(1.0, max(0.0, share - kept)) for share in excess) for kept in range(needed))
    return sum(1 for share in filled if share >= least)


def _to_carry(excess: float) -> int:
    """Standbys that carry an excess, which is in standbys, too: the last of them is worth waking."""
    return max(0, math.ceil(excess - WORTH_WAKING))


def _excess(
    rates_rps: Sequence[float], state: State, fleet: FleetView, policy: ControllerPolicy, standby: StandbyPolicy
) -> list[float]:
    """Excess of each rate over the ready fleet, up to the most that is allowed by schedule, in standbys."""
    limit_rps = state.plan.limit_rps if state.plan is not None else None
    ready_rps = carried_rps(state, policy, fleet.ready)
    return [
        ((rate_rps if limit_rps is None else min(rate_rps, limit_rps)) - ready_rps) / standby.offering.capacity_rps
        for rate_rps in rates_rps
    ]
