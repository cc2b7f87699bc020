"""The SLO monitor (MArk section 4.4): when the last M requests missed the objective, L instances of T at once."""

from __future__ import annotations

from dataclasses import replace

from mark.controller.policy import ControllerPolicy
from mark.controller.state import Extra, Observation, State, Tokens, room
from mark.dispatch.objective import missed_target
from mark.domain.offering import Offering
from mark.domain.orders import Launch, Order


def watch(state: State, seen: Observation, policy: ControllerPolicy, tokens: Tokens) -> tuple[State, list[Order]]:
    """After a window that missed, and outside the cool-down, launch L instances of T.

    Where T was refused just now its on-demand twin is taken, or nothing, and the next window may ask again.
    """
    monitor, window = policy.monitor, seen.slo
    if monitor is None or window is None or window.closed_at <= state.window_at:
        return state, []
    state = replace(state, window_at=window.closed_at)
    if not missed_target(window.missed, window.requests, policy.slo.target) or seen.now < state.quiet_until:
        return state, []
    offering = _available(state, policy, monitor.offering)
    count = min(monitor.count, room(state, seen, (), policy.max_instances))
    if offering is None or count == 0:
        return state, []
    order = Launch(
        token=tokens.take(),
        offering=offering.name,
        count=count,
        reason=(
            f"SLO monitor: {window.missed} of the last {window.requests} requests missed "
            f"{policy.slo.latency_s * 1000:g} ms, target {policy.slo.target:.1%}"
        ),
    )
    quiet_until = seen.now + max(monitor.cooldown_s, offering.boot_s)
    extra = Extra(offering=offering.name, count=count, until=quiet_until + policy.cooldown_s)
    return replace(state, quiet_until=quiet_until, extras=(*state.extras, extra)), [order]


def _available(state: State, policy: ControllerPolicy, name: str) -> Offering | None:
    """T, or its on-demand twin where T is refused; None where neither can be had."""
    refused = dict(state.unavailable)
    asked = policy.offering(name)
    if asked is None or asked.name not in refused:
        return asked
    twins = (twin for twin in policy.fallbacks if twin.instance_type.name == asked.instance_type.name)
    return next((twin for twin in twins if twin.name not in refused), None)
