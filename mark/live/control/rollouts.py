"""Rollouts of a running model: the shell around the pure moves of `controller/rollout.py`.

The model's controller plans and observes the stable version alone: `VersionedCloud` shows it no other instance,
and has what it launches serve that version. The rollout's own instances are `RolloutDriver`'s, which moves between
the ticks, in the same thread. Each move is stored before its orders are submitted, under the lease: who takes over
goes on from there.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from mark.controller.rollout import RolloutMove, RolloutSeen, advance, fallback_of, obey, unsubmitted
from mark.controller.state import Note, NoteKind
from mark.domain.billing.spending import SpendingLimit
from mark.domain.fleet.instances import FleetView, Instance, Role
from mark.domain.fleet.lease import Lease
from mark.domain.fleet.member import Member
from mark.domain.fleet.orders import Fact, Launch, LaunchFailed, LaunchRefused, Order
from mark.domain.models.versions import ModelVersions, RolloutPhase, rollout_sentence
from mark.live.clock import ServiceClock
from mark.live.control.observe_mode import LiveCloud
from mark.service_spec import ServedModel
from mark.store.published_status import ROLLOUT_COMMAND
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

LOOK_S = 0.25
"""Real seconds between two looks for a command."""
OBSERVE_S = 5.0
"""Service seconds between two inventories while a rollout runs, and LOOK_S real ones at least."""


class VersionedCloud:
    """A model's cloud as its controller sees it: the stable version's instances. Without versions, all of them."""

    def __init__(self, cloud: LiveCloud, versions: ModelVersions | None) -> None:
        self._cloud = cloud
        self.versions = versions
        #: all instances, as they were observed last
        self.whole = FleetView()
        self._refused: list[LaunchRefused] = []
        self._version_of: dict[str, str] = {}  # of instances that were seen with another than the stable one

    def observe(self) -> FleetView:
        """The stable version's instances; sleeping standbys of another are outdated."""
        self.whole = self._cloud.observe()
        if self.versions is None:
            return self.whole
        others = (i for i in self.whole if not self.versions.is_stable(i.version))
        self._version_of |= {i.id: i.version for i in others}
        return replace(self.whole, instances=tuple(_seen_by_controller(self.whole, self.versions)))

    def drain_facts(self) -> Sequence[Fact]:
        """Take what happened to the stable version; refusals of a rollout's launches are kept for it."""
        facts = self._cloud.drain_facts()
        if self.versions is None:
            return facts
        kept: list[Fact] = []
        for fact in facts:
            if isinstance(fact, LaunchRefused) and self._is_rollouts(fact.token):
                self._refused.append(fact)
            elif not (isinstance(fact, LaunchFailed) and not self._is_stable(fact.instance)):
                kept.append(fact)
        return kept

    def take_refused(self) -> tuple[LaunchRefused, ...]:
        """Take the refusals of a rollout's launches."""
        taken, self._refused = tuple(self._refused), []
        return taken

    def stable_members(self, members: Sequence[Member]) -> Sequence[Member]:
        """The agents of the stable version: how fast another one is tells nothing of it."""
        versions = self.versions
        return members if versions is None else [one for one in members if versions.is_stable(one.version)]

    def submit(self, order: Order) -> None:
        """Send a controller's order: what it launches serves the stable version."""
        if self.versions is not None and isinstance(order, Launch):
            order = replace(order, version=self.versions.stable)
        self._cloud.submit(order)

    def submit_rollouts(self, order: Order) -> None:
        """Send a rollout's order as it is."""
        self._cloud.submit(order)

    def acknowledge(self) -> None:
        """As the cloud does."""
        self._cloud.acknowledge()

    @property
    def has_pending_facts(self) -> bool:
        """As the cloud says."""
        return self._cloud.has_pending_facts

    @property
    def troubles(self) -> tuple[str, ...]:
        """As the cloud says."""
        return self._cloud.troubles

    def usd_per_hour(self, instance: Instance) -> float | None:
        """As the cloud says."""
        return self._cloud.usd_per_hour(instance)

    def poll_events(self) -> None:
        """As the cloud does."""
        self._cloud.poll_events()

    def close(self) -> None:
        """As the cloud does."""
        self._cloud.close()

    def _is_rollouts(self, token: str) -> bool:
        rollout = None if self.versions is None else self.versions.rollout
        return rollout is not None and token.startswith(f"r{rollout.id}-")

    def _is_stable(self, instance: str) -> bool:
        return self.versions is None or self.versions.is_stable(self._version_of.get(instance, ""))


def _seen_by_controller(fleet: FleetView, versions: ModelVersions) -> list[Instance]:
    kept = []
    for instance in fleet:
        if versions.is_stable(instance.version):
            kept.append(instance)
        elif instance.role is Role.STANDBY:
            kept.append(replace(instance, outdated=True))
    return kept


class RolloutDriver:
    """Moves one model's rollout while this process holds the lease. notes: go into the journal's next tick."""

    def __init__(
        self,
        served: ServedModel,
        *,
        store: ServiceStore,
        lease: Lease,
        clock: ServiceClock,
        cloud: VersionedCloud,
        spending_limit: Callable[[], SpendingLimit],
        notes: list[Note],
        shared_rps: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """shared_rps: what shared instances may take of the model, requests/s."""
        self._served, self._store, self._lease, self._clock = served, store, lease, clock
        self._cloud, self._spending_limit, self._notes = cloud, spending_limit, notes
        self._shared_rps = shared_rps
        self._look_at = self._observe_at = -math.inf
        self._unsent = () if cloud.versions is None else unsubmitted(cloud.versions.rollout, cloud.versions)

    def poll(self) -> None:
        """Carry out a new command, and move where it is time. LeaseLost where another controller acts."""
        versions = self._cloud.versions
        if versions is None or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_S
        command = ROLLOUT_COMMAND.read(self._store, self._served.name)
        if command is not None and command.id != versions.command:
            counts = self._store.traffic(self._served.name).versions
            versions = self._keep(obey(versions, command, self._clock.now(), counts))
            self._observe_at = -math.inf
        for order in self._unsent:
            if order.version == versions.candidate:  # and was not aborted just now
                self._cloud.submit_rollouts(order)
        self._unsent = ()
        serving = (i for i in self._cloud.whole if i.role is Role.SERVING and i.stays)
        has_retired = any(versions.is_retired(i.version) for i in serving)
        if versions.candidate or has_retired:
            self._move(versions)

    def _move(self, versions: ModelVersions) -> None:
        now = self._clock.now()
        if now >= self._observe_at:
            self._cloud.observe()
            self._observe_at = now + OBSERVE_S
        fallback, shared = fallback_of(self._served.offerings, self._shared_rps())
        seen = RolloutSeen(
            now=now,
            fleet=self._cloud.whole,
            counts=self._store.traffic(self._served.name).versions,
            target=self._served.slo.target,
            objective_s=self._served.slo.judged_s,
            fallback=fallback,
            shared=shared,
            refused=self._cloud.take_refused(),
            may_launch=self._spending_limit() is SpendingLimit.NONE,
        )
        move: RolloutMove = advance(versions, seen)
        self._keep(move.versions)
        for order in move.orders:
            log.info(order.kind, extra={"model": self._served.name, "token": order.token, "reason": order.reason})
            self._cloud.submit_rollouts(order)
        if move.orders:
            self._observe_at = -math.inf

    def _keep(self, versions: ModelVersions) -> ModelVersions:
        """Store versions that have changed; a change of phase goes into the journal, too."""
        before = self._cloud.versions
        if before is None or versions == before:
            return versions
        self._store.put_versions(versions, self._lease)
        self._cloud.versions = versions
        was = (before.rollout.id, before.rollout.phase, before.rollout.step) if before.rollout else None
        rollout = versions.rollout
        if rollout is not None and (rollout.id, rollout.phase, rollout.step) != was:
            text = rollout_sentence(versions)
            level = logging.WARNING if rollout.phase is RolloutPhase.ABORTED else logging.INFO
            log.log(level, "rollout of %s: %s", versions.model, text)
            self._notes.append(Note(kind=NoteKind.ROLLOUT, text=text))
        return versions
