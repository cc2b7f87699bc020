"""Stuck instances, by liveness of their agents: drained, never ready, silent, or stopped for too long."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mark.aws.ec2.observed import Ec2Row
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role

DRAINS, NOT_READY, LOST, STOPPED = "drains", "not ready", "lost", "stopped"
STOPPED_LIMIT_S = 600.0
"""AWS stops an instance whose host it retires, and clean-up tools stop what runs at night: its disk costs on."""


class StuckInstances:
    """Remembers since when each instance drains or runs without an agent. Instants are service time.

    An agent that was never heard may still load its model (`silent_limit_s`); one that was heard and announces
    itself no more was stopped, hangs, or cannot be started again (`lost_limit_s`).
    """

    def __init__(self, *, drain_limit_s: float, silent_limit_s: float, lost_limit_s: float) -> None:
        self._limits = {
            DRAINS: drain_limit_s, NOT_READY: silent_limit_s, LOST: lost_limit_s, STOPPED: STOPPED_LIMIT_S
        }  # fmt: skip
        self._since: dict[str, tuple[str, float]] = {}
        self._known: set[str] = set()

    def names(self, view: FleetView, rows: Mapping[str, Ec2Row], now: float, heard: Collection[str]) -> list[str]:
        """Instances that were so for longer than their limit, by id. `heard`: whose agents announce."""
        running = {instance.id for instance in view if rows[instance.id].state == "running"}
        self._known = running & (self._known | set(heard))
        since: dict[str, tuple[str, float]] = {}
        for instance in view:
            kind = self._kind(instance, heard, is_running=instance.id in running)
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
            STOPPED: f"AWS or a person stopped it {limit_s:.0f} s ago, and it is not a standby",
        }[kind]

    def _kind(self, instance: Instance, heard: Collection[str], *, is_running: bool) -> str | None:
        """The kind in which an instance is stuck; None where it is not."""
        if instance.state is InstanceState.STOPPED and instance.role is Role.SERVING:
            return STOPPED
        if not is_running:
            return None
        if instance.state is InstanceState.DRAINING:
            return DRAINS
        if instance.state is not InstanceState.PENDING:
            return None
        return LOST if instance.id in self._known and instance.id not in heard else NOT_READY
