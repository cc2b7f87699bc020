"""Taking over: what a journal says of the controller that wrote it, so that the next one goes on where it stopped.

A tick is written down before its orders are submitted, so a crash may lose orders but never a decision. The next
controller folds the journal to the same state and submits again, with their own tokens, all orders of the last
tick and every launch that has not been seen: the cloud does what it has not done yet, and nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mark.controller.journal import Header, Tick
from mark.controller.state import State
from mark.controller.step import step
from mark.domain.demand import Demand, DemandUnit
from mark.domain.fleet import FleetView
from mark.domain.orders import Launch, Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """Where the controller that wrote a journal stopped.

    `units`: the demand it had seen since the journal opened; `fleet`: what it saw last; `first_at`: its first
    tick, which periods are counted from; `unseen`: orders to submit again, oldest first.
    """

    state: State
    fleet: FleetView
    units: tuple[DemandUnit, ...]
    first_at: float
    unseen: tuple[Order, ...]

    def history(self, before: Demand, keep: int) -> Demand:
        """`before`, which is what was known when the journal opened, and the units since."""
        history = before
        for unit in self.units:
            history = history.followed_by(unit, keep)
        return history


def recover(header: Header, ticks: Iterable[Tick]) -> Recovered | None:
    """Fold a journal; None where it holds no tick yet."""
    state = State()
    units: list[DemandUnit] = []
    launches: dict[str, Launch] = {}
    first: Tick | None = None
    last: Tick | None = None
    for tick in ticks:
        first, last = first or tick, tick
        state = step(state, tick.seen, header.policy).state
        if tick.seen.demand is not None:
            units.append(tick.seen.demand)
        launches.update({order.token: order for order in tick.orders if isinstance(order, Launch)})
    if first is None or last is None:
        return None
    waited_for = {item.token for item in state.requested}
    earlier = tuple(order for token, order in launches.items() if token in waited_for and order not in last.orders)
    return Recovered(
        state=state,
        fleet=last.seen.fleet,
        units=tuple(units),
        first_at=first.seen.now,
        unseen=(*earlier, *last.orders),
    )
