"""Nodes that bear pods, as a simulated cloud asks for them."""

from __future__ import annotations

from collections.abc import Callable

from mark.domain.offerings.offering import Offering
from mark.simulator.engine.data_plane import Engine
from mark.simulator.engine.shared_plane import SharedPlane


class NodePlane:
    """Nodes hold no requests: their pods do. lost: called with the number of a node that is gone."""

    def __init__(self, plane: Engine | SharedPlane, lost: Callable[[int], None]) -> None:
        self._plane, self._lost = plane, lost
        self._made = 0

    @property
    def now(self) -> float:
        """The plane's clock."""
        return self._plane.now

    def add(self, _offering: Offering, *, standby: bool, balance: float = 0.0, zone: str = "") -> int:  # noqa: ARG002
        """A number for a node that serves."""
        self._made += 1
        return self._made

    def remove(self, slot: int, *, redispatch: bool) -> None:  # noqa: ARG002
        """The node is gone."""
        self._lost(slot)

    def stop_accepting(self, _slot: int) -> None:
        """Nothing comes to it."""

    def will_go(self, _slot: int, _at: float) -> None:
        """Its pods are told when it is seen."""

    def drained_at(self, _slot: int) -> float:
        """Now: it is drained when it is empty."""
        return self.now

    def is_idle(self, _slot: int) -> bool:
        """True: it holds no request."""
        return True

    def credits(self, _slot: int) -> float:
        """None: types with credits are no nodes."""
        return 0.0

    def surplus_vcpu_s(self, _slot: int) -> float:
        """None, likewise."""
        return 0.0

    def warm(self, _concurrency: int, *, are_there: bool = False) -> None:
        """Lambda is each model's own."""
