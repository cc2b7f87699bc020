"""Spending limits: the most a controller may rent while a budget is reached or the service is paused. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mark.controller.policy import ControllerPolicy
from mark.domain.billing.spending import SpendingLimit
from mark.domain.fleet.orders import Launch, Order, StartStandby


def no_spending_limit() -> SpendingLimit:
    """Limit nothing, as in a replay."""
    return SpendingLimit.NONE


def apply_spending_limit(policy: ControllerPolicy, spending_limit: SpendingLimit) -> ControllerPolicy:
    """The policy under a limit: one instance or none, taken down to at once, and nothing beside it."""
    if spending_limit is SpendingLimit.NONE:
        return policy
    return replace(
        policy,
        planner="static" if spending_limit is SpendingLimit.FLOOR else "nothing",
        static_count=1,
        overflow=None,
        standby=None,
        monitor=None,
        warm_lambda=False,
        cooldown_s=0.0,
        settle_s=0.0,
        keep_observed=False,
        keep_planned=False,
        capacity=(),
    )


def sendable_orders(orders: Sequence[Order], spending_limit: SpendingLimit) -> tuple[Order, ...]:
    """Orders that a recovered controller may send again: while nothing may be rented, none that rents."""
    if spending_limit is not SpendingLimit.PAUSE:
        return tuple(orders)
    return tuple(order for order in orders if not isinstance(order, Launch | StartStandby))
