"""The SLO monitor (MArk section 4.4): when the last window missed the objective, one more instance now."""

from __future__ import annotations

from dataclasses import replace

from mark.controller.policy import ControllerPolicy
from mark.controller.state import Extra, Observation, State, Tokens, room
from mark.domain.orders import Launch, Order, SloWindow


def missed_target(window: SloWindow, target: float) -> bool:
    """Whether more than 1 - target of the window's requests were late or shed."""
    return window.missed > (1.0 - target) * window.requests


def watch(state: State, seen: Observation, policy: ControllerPolicy, tokens: Tokens) -> tuple[State, list[Order]]:
    """Count missed windows; after enough in a row, and outside the cool-down, launch one instance."""
    monitor, window = policy.monitor, seen.slo
    if monitor is None or window is None or window.closed_at <= state.window_at:
        return state, []
    missed = missed_target(window, policy.slo.target)
    state = replace(state, window_at=window.closed_at, breaches=state.breaches + 1 if missed else 0)
    if state.breaches < monitor.breaches or seen.now < state.quiet_until:
        return state, []
    offering = policy.offering(monitor.offering)
    if offering is None or room(state, seen, (), policy.max_instances) == 0:
        return state, []
    quiet_s = max(monitor.cooldown_s, offering.boot_s)
    order = Launch(
        token=tokens.take(),
        offering=offering.name,
        count=1,
        reason=(
            f"SLO monitor: {window.missed} of the last {window.requests} requests missed "
            f"{policy.slo.latency_s * 1000:g} ms, target {policy.slo.target:.1%}"
        ),
    )
    extra = Extra(offering=offering.name, until=seen.now + quiet_s + policy.cooldown_s)
    return replace(state, breaches=0, quiet_until=seen.now + quiet_s, extras=(*state.extras, extra)), [order]
