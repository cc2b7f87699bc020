"""Tuning: what a team changes in our own policies, and how a run's notes say so.

Baselines stay what they are: a comparison with a baseline that was changed along with us says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from mark.controller.policy import ControllerPolicy, MonitorPolicy
from mark.domain.errors import unknown
from mark.domain.offering import Market
from mark.policies.bundles import PolicyBundle

Value = TypeVar("Value")

OWN_POLICIES = ("hedged", "mark", "greedy-oracle", "milp")
"""Policies that a Tuning applies to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Settings of our own policies; None leaves what the policy has. Names and units as in the section `policy`.

    `monitor_type` is the instance type that the SLO monitor launches, `monitor_count` how many at once.
    """

    lead_min: int | None = None
    cooldown_min: float | None = None
    monitor_requests: int | None = None
    monitor_seconds: float | None = None
    monitor_count: int | None = None
    monitor_cooldown_s: float | None = None
    monitor_type: str | None = None
    admission_factor: float | None = None
    standby_max_count: int | None = None
    max_instances: int | None = None
    launch_weight_usd_per_s: float | None = None


def tuned(bundle: PolicyBundle, tuning: Tuning, market: Market) -> PolicyBundle:
    """The bundle with what is tuned; another policy than our own as it is."""
    if bundle.name not in OWN_POLICIES:
        return bundle
    policy, dispatch = bundle.controller, bundle.dispatch
    standby, monitor = policy.standby, policy.monitor
    if standby is not None:
        standby = replace(standby, max_count=_or(tuning.standby_max_count, standby.max_count))
    if monitor is not None:
        monitor = _tuned_monitor(bundle, monitor, tuning, market)
    return replace(
        bundle,
        controller=replace(
            policy,
            lead_units=_or(tuning.lead_min, policy.lead_units),
            cooldown_s=policy.cooldown_s if tuning.cooldown_min is None else tuning.cooldown_min * 60.0,
            max_instances=_or(tuning.max_instances, policy.max_instances),
            launch_weight_usd_per_s=_launch_weight(policy, tuning),
            standby=standby,
            monitor=monitor,
        ),
        dispatch=replace(dispatch, admission_factor=_or(tuning.admission_factor, dispatch.admission_factor)),
    )


def _launch_weight(policy: ControllerPolicy, tuning: Tuning) -> float:
    """Refuse the launch weight for all planners but milp."""
    own = policy.launch_weight_usd_per_s
    return _or(tuning.launch_weight_usd_per_s, own) if policy.planner == "milp" else own


def tuning_notes(before: PolicyBundle, after: PolicyBundle) -> tuple[str, ...]:
    """One note for each setting of `before` that is another in `after`."""
    return tuple(
        f"policy.{key} is {new} instead of {old}"
        for (key, old), (_, new) in zip(_shown(before), _shown(after), strict=True)
        if old != new
    )


def _tuned_monitor(bundle: PolicyBundle, monitor: MonitorPolicy, tuning: Tuning, market: Market) -> MonitorPolicy:
    offering = monitor.offering
    if tuning.monitor_type is not None:
        offering = f"{tuning.monitor_type}:{market.value}"
        known = {item.name: item.instance_type.name for item in bundle.controller.offerings}
        if offering not in known:
            raise unknown("instance type in policy.monitor", tuning.monitor_type, known.values())
    return replace(
        monitor,
        offering=offering,
        requests=_or(tuning.monitor_requests, monitor.requests),
        seconds=_or(tuning.monitor_seconds, monitor.seconds),
        count=_or(tuning.monitor_count, monitor.count),
        cooldown_s=_or(tuning.monitor_cooldown_s, monitor.cooldown_s),
    )


def _shown(bundle: PolicyBundle) -> Iterator[tuple[str, str]]:
    """Every tunable setting as the settings file names it."""
    policy, monitor, standby = bundle.controller, bundle.controller.monitor, bundle.controller.standby
    yield "lead_min", f"{policy.lead_units}"
    yield "cooldown_min", f"{policy.cooldown_s / 60:g}"
    yield "max_instances", f"{policy.max_instances:,}"
    yield "launch_weight_usd_per_s", f"{policy.launch_weight_usd_per_s:g}"
    yield "admission_factor", f"{bundle.dispatch.admission_factor}"
    if standby is not None:
        yield "standby.max_count", f"{standby.max_count:,}"
    if monitor is not None:
        yield "monitor.requests", f"{monitor.requests:,}"
        yield "monitor.seconds", f"{monitor.seconds:g}"
        yield "monitor.count", f"{monitor.count}"
        yield "monitor.cooldown_s", f"{monitor.cooldown_s:g}"
        yield "monitor.instance_type", monitor.offering.partition(":")[0]


def _or(asked: Value | None, own: Value) -> Value:
    return own if asked is None else asked
