"""Launch limits: back-off, circuit breaker, instances and quotas, for plan, SLO monitor and standbys. Pure.

An offering that was refused is left alone until that has expired, one that a guardrail held back for a period; a
spot pool that was taken away in bulk is left while its breaker is open and entered by one instance a tick after
that; one whose instances never become ready is left while its launch breaker is open, and tried one at a time
after that. Reserved capacity is there whatever was refused. What is left of the policy's limit of instances and of
the account's quotas goes to who asks first.
"""

from __future__ import annotations

import math
from functools import cached_property

from mark.controller.limits.quotas import QuotaLimits, counted, known_quotas
from mark.controller.limits.refusals import left_out
from mark.controller.limits.reserved_capacity import reserved_room, room_by_offering
from mark.controller.policy import ControllerPolicy
from mark.controller.pool_change import BudgetLimit
from mark.controller.state import Note, NoteKind, Observation, State
from mark.domain.fleet.instances import InstanceState


class LaunchLimits:
    """The launches that one tick may still order; what is reserved counts as launched from then on."""

    def __init__(self, state: State, seen: Observation, policy: ControllerPolicy) -> None:
        self._limit = policy.max_instances
        self._left = max(0, self._limit - len(seen.fleet) - sum(item.count for item in state.requested))
        self._policy, self._fleet = policy, seen.fleet
        self._known_quotas = known_quotas(policy, state.quotas)
        self._requested = tuple((item.offering, item.count) for item in state.requested)
        self._backoff = left_out(state, policy)
        self._reserved = room_by_offering(reserved_room(state, seen, policy))
        self._holds = dict(state.guardrail_holds)
        self._volatile = {pool.offering for pool in state.spot_pools if pool.is_open(seen.now)}
        self._failing = {one.offering: one for one in state.launch_records if one.is_open(seen.now)}
        booting = {item.offering for item in state.requested}
        if state.launch_records:
            booting |= {i.offering for i in seen.fleet if i.state is InstanceState.PENDING}
        self._trying = {
            one.offering: int(one.offering not in booting)
            for one in state.launch_records
            if one.is_trying(seen.now)
        }
        self._returning = {pool.offering: 1 for pool in state.spot_pools if pool.is_returning(seen.now)}

    @cached_property
    def budget(self) -> BudgetLimit:
        """The rest of the pool's budget; worked out, like that of the quotas, where a tick asks for it."""
        return BudgetLimit(self._policy, self._fleet, self._requested)

    @cached_property
    def _quotas(self) -> QuotaLimits:
        counts = counted(self._fleet, self._requested)
        return QuotaLimits(self._known_quotas, self._policy.known_offerings, counts)

    def barred(self, name: str) -> Note | None:
        """Why nothing of it is launched for now, however much the limits leave; None where it may be."""
        if name in self._backoff and not self._reserved[name]:
            text = f"{name} was refused: no launch of it before {self._backoff[name]:.0f} s"
            return Note(kind=NoteKind.CAPACITY_BACKOFF, text=text)
        if name in self._holds:
            text = f"{name} was cut by a guardrail: no launch of it before {self._holds[name]:.0f} s"
            return Note(kind=NoteKind.GUARDRAIL_HOLD, text=text)
        if name in self._volatile:
            text = f"{name} was interrupted in bulk: its circuit breaker is open, no launch for a while"
            return Note(kind=NoteKind.VOLATILE_POOL, text=text)
        if name in self._failing:
            record = self._failing[name]
            text = f"{name} never becomes ready ({record.why}): no launch of it before {record.closes_at:.0f} s"
            return Note(kind=NoteKind.LAUNCH_BREAKER, text=text)
        return None

    @property
    def refused(self) -> set[str]:
        """Offerings that a plan leaves out: barred by more than a guardrail, or without room in their quota."""
        full = (o.name for o in self._policy.known_offerings if not self.has_quota(o.name))
        return {*self._backoff, *self._volatile, *self._failing, *(full if self._known_quotas else ())}

    def at_once(self, name: str) -> int:
        """Instances of it that may be launched together; none of one that is barred, or tried one at a time."""
        if name in self._returning or name in self._trying or self.barred(name) is not None:
            return 0
        return int(min(self._left, self._quotas.left(name), self._not_refused(name)))

    def _not_refused(self, name: str) -> float:
        """Launches that the back-off leaves: of a refused offering the reserved ones."""
        return self._reserved[name] if name in self._backoff else math.inf

    def has_quota(self, name: str) -> bool:
        """True where the account's quota leaves one of it, beside what runs and what was ordered."""
        return self._quotas.left(name) >= 1

    def allowed(self, name: str, wanted: int) -> tuple[int, tuple[Note, ...]]:
        """The part of `wanted` that may be launched, and a note for each limit that cut them."""
        if (note := self.barred(name)) is not None:
            return 0, (note,)
        wanted = min(wanted, self._returning.get(name, wanted), self._trying.get(name, wanted))
        wanted = int(min(wanted, self._not_refused(name)))
        quota = self._quotas.left(name)
        notes = []
        if wanted > self._left:
            text = f"{name}: {wanted} wanted, but the limit is {self._limit} instances"
            notes.append(Note(kind=NoteKind.INSTANCE_LIMIT, text=text))
        if wanted > quota:
            text = f"{name}: {wanted} wanted, but the account's quota leaves {quota:.0f}"
            notes.append(Note(kind=NoteKind.QUOTA, text=text))
        affordable = self.budget.left(name)
        if wanted > affordable:
            text = f"{name}: {wanted} wanted, but the pool's budget leaves room for {affordable:.0f}"
            notes.append(Note(kind=NoteKind.POOL_BUDGET, text=text))
        return int(min(wanted, self._left, quota, affordable)), tuple(notes)

    def reserve(self, name: str, count: int) -> None:
        """Count an order of this tick against all limits."""
        self._left -= count
        self._quotas.reserve(name, count)
        self._reserved[name] = max(0, self._reserved[name] - count)
        self.budget.reserve(name, count)
        for left in (self._returning, self._trying):
            if name in left:
                left[name] = max(0, left[name] - count)
