"""Takeover: the state of the controller that wrote a journal, from which the next one goes on.

A tick is written down before its orders are submitted, so a crash may lose orders but never a decision. The next
controller folds the journal to the same state and submits again, with their own tokens, all orders of the last
tick and every launch that has not been seen: the cloud does what it has not done yet, and nothing twice.

Where a line cannot be read there is no such state. Then demand and the first tick are salvaged, and the next
controller begins with an empty memory and the fleet that it observes, under tokens of their own.

A journal's header says by which policy its ticks were decided, so another policy needs a journal of its own,
which goes on from where the one before stopped (`continue_under`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mark.controller.journal import Checkpoint, Header, Tick
from mark.controller.policy import ControllerPolicy
from mark.controller.state import State
from mark.controller.step import step
from mark.domain.demand import Demand, DemandUnit
from mark.domain.fleet.instances import FleetView
from mark.domain.fleet.orders import Launch, Order, Withdraw


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The point where the controller that wrote a journal stopped.

    `units`: the demand it had seen since the journal opened; `fleet`: what it saw last; `first_at`: its first
    tick, which periods are counted from; `planned_at`: the last one at which it planned; `unseen`: orders to
    submit again, oldest first.
    """

    state: State
    fleet: FleetView
    units: tuple[DemandUnit, ...]
    first_at: float
    planned_at: float
    unseen: tuple[Order, ...]

    def history(self, before: Demand, keep: int) -> Demand:
        """`before`, which is what was known when the journal opened, and the units since."""
        history = before
        for unit in self.units:
            history = history.followed_by(unit, keep)
        return history


def unseen_orders(before: Iterable[Order], state: State, orders: tuple[Order, ...]) -> tuple[Order, ...]:
    """The orders that a crash could lose after a tick that left `state`: its `orders`, and unseen launches.

    `before` is what it could lose after the tick before. What was withdrawn of a launch stays behind it.
    """
    waited_for = {item.token for item in state.requested}
    earlier = (order for order in before if _launch_of(order) in waited_for)
    return (*earlier, *orders)


def _launch_of(order: Order) -> str | None:
    """Token of the launch that it is about; None for others."""
    match order:
        case Launch():
            return order.token
        case Withdraw():
            return order.launch
        case _:
            return None


def recover(header: Header, ticks: Iterable[Tick]) -> Recovered | None:
    """Fold a journal; None where it holds nothing yet to go on from."""
    checkpoint, state = header.checkpoint, header.state
    fleet = checkpoint.fleet if checkpoint else FleetView()
    unseen = checkpoint.orders if checkpoint else ()
    first_at = checkpoint.first_at if checkpoint else None
    planned_at = checkpoint.planned_at if checkpoint else -math.inf
    units: list[DemandUnit] = []
    for tick in ticks:
        first_at = tick.seen.now if first_at is None else first_at
        state, fleet = step(state, tick.seen, header.policy).state, tick.seen.fleet
        unseen = unseen_orders(unseen, state, tick.orders)
        if tick.seen.forecast is not None:
            planned_at = tick.seen.now
        if tick.seen.demand is not None:
            units.append(tick.seen.demand)
    if first_at is None:
        return None
    return Recovered(
        state=state,
        fleet=fleet,
        units=tuple(units),
        first_at=first_at,
        planned_at=planned_at,
        unseen=unseen,
    )


def salvage(header: Header, ticks: Iterable[Tick]) -> Recovered | None:
    """Salvage the demand and the first tick from the readable lines of a journal; None where there is no tick."""
    checkpoint = header.checkpoint
    first_at = checkpoint.first_at if checkpoint else None
    units: list[DemandUnit] = []
    for tick in ticks:
        first_at = tick.seen.now if first_at is None else first_at
        if tick.seen.demand is not None:
            units.append(tick.seen.demand)
    return None if first_at is None else start_anew(first_at, tuple(units))


def start_anew(first_at: float, units: tuple[DemandUnit, ...] = ()) -> Recovered:
    """Begin anew: nothing is remembered but when the service began, and the demand since."""
    return Recovered(
        state=State(), fleet=FleetView(), units=units, first_at=first_at, planned_at=-math.inf, unseen=()
    )


def continue_under(recovered: Recovered, policy: ControllerPolicy) -> Recovered:
    """Continue under another policy: it plans at once; launches that it does not know are not sent or awaited.

    Those that come all the same are seen, and drained. Its quotas and commitments were read just now.
    """
    unseen = tuple(
        order
        for order in recovered.unseen
        if not isinstance(order, Launch) or all(policy.offering(name) is not None for name in order.offerings)
    )
    requested = tuple(item for item in recovered.state.requested if policy.offering(item.offering) is not None)
    state = replace(recovered.state, requested=requested, quotas=None, commitments=None)
    return replace(recovered, state=state, planned_at=-math.inf, unseen=unseen)


def checkpoint_of(recovered: Recovered) -> Checkpoint:
    """The checkpoint for the header of the journal that follows."""
    return Checkpoint(
        state=recovered.state,
        fleet=recovered.fleet,
        first_at=recovered.first_at,
        planned_at=recovered.planned_at,
        orders=recovered.unseen,
    )
