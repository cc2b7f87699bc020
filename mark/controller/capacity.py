"""What a fleet carries, as the plan counts it: for drains, warm-ups, interruptions and surges alike. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from mark.controller.policy import ControllerPolicy
from mark.controller.state import State


def usable_rps(state: State, policy: ControllerPolicy, name: str) -> float:
    """What the plan counts on from one instance, requests/s; its raw capacity if the plan holds none."""
    if state.plan is not None:
        for item in state.plan.counts:
            if item.offering == name:
                return item.usable_rps
    offering = policy.offering(name)
    return offering.capacity_rps if offering else 0.0


def carried_rps(state: State, policy: ControllerPolicy, counts: Mapping[str, int]) -> float:
    """What so many instances of each offering carry together, requests/s."""
    return sum(usable_rps(state, policy, name) * count for name, count in sorted(counts.items()))
