"""Stuck instances, by liveness of their agents: drained, never ready, or silent for too long."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mark.aws.ec2.observed import Ec2Row
from mark.domain.fleet import FleetView, Instance, InstanceState

DRAINS, NOT_READY, LOST = "drains", "not ready", "lost"


class StuckInstances:
    """Remembers since when each instance drains or runs without an agent. Instants are service time.

    An agent that was never heard may still load its model (`silent_limit_s`); one that was heard and announces
    itself no more was stopped, hangs, or cannot be started again (`lost_limit_s`).
    """

    def __init__(self, *, drain_limit_s: float, silent_limit_s: float, lost_limit_s: float) -> None:
        self._limits = {DRAINS: drain_limit_s, NOT_READY: silent_limit_s, LOST: lost_limit_s}
        self._since: dict[str, tuple[str, float]] = {}
        self._known: set[str] = set()

    def names(self, view: FleetView, rows: Mapping[str, Ec2Row], now: float, heard: Collection[str]) -> list[str]:
        """Running instances that were so for longer than their limit, by id. `heard`: whose agents announce."""
        running = {instance.id for instance in view if rows[instance.id].state == "running"}
        self._known = running & (self._known | set(heard))
        since: dict[str, tuple[str, float]] = {}
        for instance in view:
            kind = self._kind(instance, heard) if instance.id in running else None
            if kind is not None:
                before = self._since.get(instance.id)
                since[instance.id] = before if before is not None and before[0] == kind else (kind, now)
        self._since = since
        return sorted(name for name, (kind, at) in since.items() if now - at > self._limits[kind])

    def reason(self, name: str) -> str:
        """Why an instance that the last pass named is stuck, for people."""
        kind, _ = self._since[name]
        limit_s = self._limits[kind]
        return {
            DRAINS: f"its agent did not end within {limit_s:.0f} s of draining",
            NOT_READY: f"its agent was not ready within {limit_s:.0f} s",
            LOST: f"its agent was heard, was never ready, and then fell silent for {limit_s:.0f} s",
        }[kind]

    def _kind(self, instance: Instance, heard: Collection[str]) -> str | None:
        """The kind in which a running instance is stuck; None where it is not."""
        if instance.state is InstanceState.DRAINING:
            return DRAINS
        if instance.state is not InstanceState.PENDING:
            return None
        return LOST if instance.id in self._known and instance.id not in heard else NOT_READY
