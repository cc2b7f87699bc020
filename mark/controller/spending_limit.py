"""What a controller may rent while a budget is reached or somebody has paused the service. Pure."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from mark.controller.policy import ControllerPolicy


class SpendingLimit(StrEnum):
    """What is held back: nothing; all but one instance a model, and Lambda; everything."""

    NONE = "none"
    FLOOR = "floor"
    PAUSE = "pause"


def no_spending_limit() -> SpendingLimit:
    """What a controller is told that nobody holds back, a replay's for one."""
    return SpendingLimit.NONE


def apply_spending_limit(policy: ControllerPolicy, restraint: SpendingLimit) -> ControllerPolicy:
    """The policy while something is held back: it rents one instance, or none, at once and nothing beside them."""
    if restraint is SpendingLimit.NONE:
        return policy
    return replace(
        policy,
        planner="static" if restraint is SpendingLimit.FLOOR else "nothing",
        static_count=1,
        overflow=None,
        standby=None,
        monitor=None,
        warm_lambda=False,
        cooldown_s=0.0,
        keep_observed=False,
        keep_planned=False,
    )
