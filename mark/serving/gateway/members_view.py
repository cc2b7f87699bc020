"""A gateway's estimate of each agent's queue: nearly exact, from the requests and responses on its connection.

An agent publishes its state when it differs from that estimate, and four times a second anyhow; in between both
ends estimate by the same rules (`serving/queue_estimate.py`). A view has the fields of
`dispatch/routing.SERVER_FIELDS`, so that the routing rules read it as they read a row of the simulator's records.
Views are plain objects, because plain Python reads a numpy record thirty times slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from mark.dispatch.bouncer import predicted_finish_at
from mark.dispatch.instance.device_share import has_share
from mark.dispatch.routing import alone_s, sized_finish_at
from mark.protocols.frames import State
from mark.serving.queue_estimate import QueueEstimate


class Device(Protocol):
    """Work of a shared instance (`gateway/shared_device.py`)."""

    def finish_at(self, view: AgentView, now: float, due_at: float) -> float:
        """The expected finish of a request, due at `due_at`, that this tenant gets now."""
        ...

    def harms_nobody(self, view: AgentView, now: float, due_at: float) -> bool:
        """True where such a request is expected to make no neighbour's late."""
        ...

    def likely_finish_at(self, view: AgentView, now: float, due_at: float) -> float:
        """The same as `finish_at`, if no batch gets fuller than it is."""
        ...

    def overdue_s(self, now: float) -> float:
        """Seconds that what is in service is expected to take beyond what it should have."""
        ...

    def is_busy(self, now: float) -> bool:
        """True while a tenant has something to do."""
        ...


class AgentView(QueueEstimate):
    """One agent as the gateway sees it; times are the loop's. `current` is the weighted rule's running credit.

    profile_s: what its offering's profile says of 0, 1, 2, ... items, the first of which is not used. `is_shared`:
    it is one of several on its instance, and `share_rps` its share at this gateway
    (`dispatch/instance/device_share.py`). `is_far`: it stands in another zone than this gateway. `device`: of a
    shared instance.
    """

    __slots__ = (
        "accepting",
        "current",
        "device",
        "full_batch_s",
        "instance",
        "is_far",
        "is_shared",
        "profile_s",
        "share_at",
        "share_left",
        "share_rps",
        "single_s",
        "standby",
        "terminates_at",
        "weight",
    )
    head = 0
    """Of a device's rings, which have deadlines and never turn: the objective adds nothing."""
    objective_s = 0.0
    cv = 0.0
    """Variation of its batches' times: known on the instance alone."""

    def __init__(self, instance: str, profile_s: Sequence[float]) -> None:
        super().__init__()
        self.instance, self.profile_s = instance, profile_s
        self.accepting = self.standby = False
        self.single_s = self.full_batch_s = self.weight = self.current = 0.0
        self.terminates_at = math.inf
        self.is_shared = self.is_far = False
        self.device: Device | None = None
        self.share_rps, self.share_left, self.share_at = 0.0, math.inf, 0.0

    def give_share(self, share_rps: float, now: float) -> None:
        """Let it take so many requests/s of this gateway's before the model's own instances are asked."""
        if self.share_rps:
            has_share(now, self)  # what it may take so far, at the share that it had
        self.is_shared, self.share_rps = True, share_rps
        if share_rps == 0.0:
            self.share_left = 0.0

    def on_state(self, state: State, unseen: int, now: float) -> None:
        """Take the published state; `unseen` requests were on their way to the agent."""
        self.waiting = state.waiting + unseen
        self.in_service = state.in_service
        self.free_at = now + state.busy_s
        self.terminates_at = now + state.terminates_in_s
        self.accepting, self.standby = state.accepting, state.standby
        self.slots = state.slots
        self.max_batch = state.slots or len(state.batch_s)
        self.single_s, self.full_batch_s, self.weight = state.batch_s[0], state.batch_s[-1], state.weight

    def is_idle(self, now: float) -> bool:
        """True where neither it nor a neighbour on its instance has anything to do."""
        return not (self.in_service or self.waiting or (self.device is not None and self.device.is_busy(now)))

    def alone_s(self, size: int) -> float:
        """Seconds that a request of `size` items takes where nothing waits."""
        return alone_s(size, self.single_s, self.profile_s)

    def finish_at(self, now: float, size: int, due_at: float) -> float:
        """The expected finish of a request, due at `due_at`, that is sent now."""
        if size != 1:
            return sized_finish_at(now, size, self, self.profile_s)
        if self.device is not None:
            return self.device.finish_at(self, now, due_at)
        return self.alone_finish_at(now)

    def alone_finish_at(self, now: float) -> float:
        """The same of a request of one item where no other model shares the instance."""
        return predicted_finish_at(
            now,
            self.free_at,
            self.in_service,
            self.waiting,
            self.max_batch,
            self.single_s,
            self.full_batch_s,
        )


class ModelView:
    """The agents of one model that accept requests, in the order of their ids."""

    def __init__(self) -> None:
        self.agents: list[AgentView] = []
        self.profiles_s: list[Sequence[float]] = []
        self.rows: Sequence[int] = ()
        #: Of these, agents on instances of the model's own, and on shared ones.
        self.own: Sequence[int] = ()
        self.shared: Sequence[int] = ()
        #: Of the two, those in this gateway's zone; and the model's own in other zones.
        self.near_own: Sequence[int] = ()
        self.near_shared: Sequence[int] = ()
        self.far_own: Sequence[int] = ()
        #: Whether any stands in another zone.
        self.has_far = False

    def set_agents(self, agents: Iterable[AgentView]) -> None:
        """Replace the agents that accept requests."""
        self.agents = sorted(agents, key=lambda agent: agent.instance)
        self.profiles_s = [agent.profile_s for agent in self.agents]
        self.rows = range(len(self.agents))
        self.own = [row for row in self.rows if not self.agents[row].is_shared]
        self.shared = [row for row in self.rows if self.agents[row].is_shared]
        self.has_far = any(agent.is_far for agent in self.agents)
        self.far_own = [row for row in self.own if self.agents[row].is_far]
        self.near_own, self.near_shared = (
            [row for row in rows if not self.agents[row].is_far] for rows in (self.own, self.shared)
        )
