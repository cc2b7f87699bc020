"""Placement: the models that are to be on each shared instance, and the orders that change it.

`placed` is the only way from one placement to the next, in a replay and in whoever reads its journal: what is
ordered and what is wanted cannot differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, assert_never

from mark.domain.fleet.orders import Command, Drain, Launch


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Tenant:
    """One model on an instance."""

    model: str
    #: Requests/s that it is planned to carry there.
    capacity_rps: float


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Host:
    """An instance with its tenants, by name."""

    offering: str
    tenants: tuple[Tenant, ...]
    #: Names the instance that is there; empty for one to launch.
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Command):
    """Have this tenant on the instance; where its model is there already, plan another rate for it."""

    instance: str
    tenant: Tenant
    kind: Literal["place"] = "place"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict(Command):
    """Take the model away from the instance, once nothing needs it there any more."""

    instance: str
    model: str
    kind: Literal["evict"] = "evict"


PlacementOrder = Launch | Place | Evict | Drain

Placement = Mapping[str, tuple[Tenant, ...]]
"""Tenants by model, of each instance by its id; none on one that is to be drained when it is empty."""


def placed(before: Placement, order: PlacementOrder) -> Placement:
    """The placement after an order. A launch changes nothing: tenants are placed when their instance is known."""
    match order:
        case Launch():
            return before
        case Place():
            others = _without(before.get(order.instance, ()), order.tenant.model)
            return {**before, order.instance: tuple(sorted((*others, order.tenant)))}
        case Evict():
            return {**before, order.instance: _without(before.get(order.instance, ()), order.model)}
        case Drain():
            return {name: tenants for name, tenants in before.items() if name not in order.instances}
        case _:
            assert_never(order)


def remaining(before: Placement, instances: Collection[str]) -> Placement:
    """The placement where only these instances are left."""
    return {name: tenants for name, tenants in before.items() if name in instances}


def _without(tenants: tuple[Tenant, ...], model: str) -> tuple[Tenant, ...]:
    return tuple(tenant for tenant in tenants if tenant.model != model)
