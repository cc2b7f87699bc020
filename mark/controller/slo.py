"""The SLO monitor (MArk section 4.4): when the last M requests missed the objective, L instances of T at once."""

from __future__ import annotations

from dataclasses import replace

from mark.controller.capacity import usable_rps
from mark.controller.limits.launch_limits import LaunchLimits
from mark.controller.policy import ControllerPolicy, MonitorPolicy
from mark.controller.state import Observation, SloBoost, State, Tokens
from mark.dispatch.objective import missed_target
from mark.domain.figures import share_words
from mark.domain.fleet.orders import Launch, Order
from mark.domain.offerings.offering import Offering


def monitor_slo(
    state: State, seen: Observation, policy: ControllerPolicy, limits: LaunchLimits, tokens: Tokens
) -> tuple[State, list[Order]]:
    """After a window that missed, and outside the cool-down, launch L instances of T.

    Where none of T may be launched now, its on-demand twin is; or nothing, and the next window may launch again.
    Nothing is launched while a shared instance boots that is to hold the model.
    """
    monitor, window = policy.monitor, seen.slo
    if monitor is None or window is None or window.closed_at <= state.window_at:
        return state, []
    state = replace(state, window_at=window.closed_at)
    if (
        not missed_target(window.missed, window.requests, policy.slo.target)
        or seen.now < state.monitor_quiet_until
        or seen.shared_boots
    ):
        return state, []
    offering, count = _available(limits, policy, monitor)
    if offering is None or _is_above_limit(state, policy, offering, count):
        return state, []
    limits.reserve(offering.name, count)
    order = Launch(
        token=tokens.next(),
        offering=offering.name,
        count=count,
        reason=(
            f"SLO monitor: {window.missed} of the last {window.requests} requests missed "
            f"{policy.slo.latency_s * 1000:g} ms, target {share_words(policy.slo.target, 1)}"
        ),
    )
    quiet_until = seen.now + max(monitor.cooldown_s, offering.boot_s)
    boost = SloBoost(offering=offering.name, count=count, until=quiet_until + policy.cooldown_s)
    return replace(state, monitor_quiet_until=quiet_until, slo_boosts=(*state.slo_boosts, boost)), [order]


def _is_above_limit(state: State, policy: ControllerPolicy, offering: Offering, count: int) -> bool:
    """True where so many more, beside plan and boosts, would carry more than the schedule allows."""
    if state.plan is None or state.plan.limit_rps is None:
        return False
    boosts = sum(usable_rps(state, policy, boost.offering) * boost.count for boost in state.slo_boosts)
    more_rps = usable_rps(state, policy, offering.name) * count
    return state.plan.capacity_rps + boosts + more_rps > state.plan.limit_rps


def _available(
    limits: LaunchLimits, policy: ControllerPolicy, monitor: MonitorPolicy
) -> tuple[Offering | None, int]:
    """T, or its on-demand twin where T may not be launched, and how many; None and 0 where neither may."""
    asked = policy.offering(monitor.offering)
    if asked is None:
        return None, 0
    twins = (twin for twin in policy.fallbacks if twin.instance_type.name == asked.instance_type.name)
    counts = ((one, limits.allowed(one.name, monitor.count)[0]) for one in (asked, *twins))
    return next(((one, count) for one, count in counts if count), (None, 0))
