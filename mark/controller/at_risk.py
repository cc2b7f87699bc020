"""Instances at risk: what AWS recommends to replace serves until its replacement is ready. Pure.

Such an instance counts as ready and not as staying: so the next tick launches another, once. It is drained when
what stays is ready and carries all that is wanted, whether a notice followed or not. A notice that comes first
takes it as any other. Where no other can be launched it serves on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from mark.controller.capacity import carried_rps, usable_rps
from mark.controller.policy import ControllerPolicy
from mark.controller.state import State, Tokens
from mark.domain.figures import plural
from mark.domain.fleet.instances import FleetView, InstanceState, Role
from mark.domain.fleet.orders import Drain, Fact, Order, RebalanceAdvised

EXACT = 1e-9
"""Requests/s that rounding may add."""


def with_risks(fleet: FleetView, before: FleetView, facts: Iterable[Fact]) -> FleetView:
    """The fleet with its instances at risk: those of the tick before, and those that AWS has just named."""
    named = {instance.id for instance in before.at_risk}
    named |= {fact.instance for fact in facts if isinstance(fact, RebalanceAdvised)}
    if not named:
        return fleet
    marked = (replace(i, at_risk=i.id in named and i.role is Role.SERVING) for i in fleet)
    return replace(fleet, instances=tuple(marked))


def drain_replaced(
    state: State, fleet: FleetView, policy: ControllerPolicy, wanted: Mapping[str, int], tokens: Tokens
) -> list[Order]:
    """Drain those at risk that nothing wanted waits for. wanted: instances that are to stay, by offering."""
    lacking = {name: max(0, count - fleet.lasting.get(name, 0)) for name, count in wanted.items()}
    lacking_rps = carried_rps(state, policy, lacking)
    replaced: list[str] = []
    for item in sorted(fleet.at_risk, key=lambda i: (i.state is not InstanceState.READY, i.launched_at, i.id)):
        if lacking_rps <= EXACT:
            replaced.append(item.id)
        elif item.state is InstanceState.READY:
            lacking_rps -= usable_rps(state, policy, item.offering)
    if not replaced:
        return []
    reason = f"{plural(len(replaced), 'instance')} at risk: what is wanted is ready without"
    return [Drain(token=tokens.next(), reason=reason, instances=tuple(sorted(replaced)))]
