"""Fleet capacity as the plan counts it: for drains, warm-ups, interruptions and surges alike. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from mark.controller.policy import ControllerPolicy
from mark.controller.state import State


def usable_rps(state: State, policy: ControllerPolicy, name: str) -> float:
    """The planned rate of one instance, requests/s; its raw capacity if the plan holds none."""
    if state.plan is not None:
        for item in state.plan.counts:
            if item.offering == name:
                return item.usable_rps
    offering = policy.offering(name)
    return offering.capacity_rps if offering else 0.0


def carried_rps(state: State, policy: ControllerPolicy, counts: Mapping[str, int]) -> float:
    """The planned rate of these instances by offering together, requests/s."""
    return sum(usable_rps(state, policy, name) * count for name, count in sorted(counts.items()))
