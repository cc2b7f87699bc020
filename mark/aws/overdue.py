"""The safety net: which instances have drained, or kept silent, for too long."""

from __future__ import annotations

from collections.abc import Mapping

from mark.controller.observed import Ec2Row
from mark.domain.fleet import FleetView, InstanceState


class Overdue:
    """Remembers since when each instance drains or runs without a ready agent. Instants are service time."""

    def __init__(self, *, drain_limit_s: float, silent_limit_s: float) -> None:
        self._limits = {InstanceState.DRAINING: drain_limit_s, InstanceState.PENDING: silent_limit_s}
        self._since: dict[str, tuple[InstanceState, float]] = {}

    def names(self, view: FleetView, rows: Mapping[str, Ec2Row], now: float) -> list[str]:
        """Running instances that have been so for longer than their limit, by id."""
        watched = {i.id: i.state for i in view if i.state in self._limits and rows[i.id].state == "running"}
        since: dict[str, tuple[InstanceState, float]] = {}
        for name, state in watched.items():
            before = self._since.get(name)
            since[name] = before if before is not None and before[0] is state else (state, now)
        self._since = since
        return sorted(name for name, (state, at) in since.items() if now - at > self._limits[state])
