"""What a gateway believes of a model's agents: nearly exact, because it counts what it sends and what comes back.

An agent says how it is when that differs from what the gateway can reckon by itself, and four times a second
anyhow. In between both reckon by the same rules (`serving/queue_estimate.py`). A view has the fields of
`dispatch/routing.SERVER_FIELDS`, so that the routing rules read it as they read a row of the simulator's records;
plain objects, because plain Python reads a numpy record thirty times slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from mark.dispatch.bouncer import predicted_finish_at
from mark.protocols.frames import State
from mark.serving.queue_estimate import OVERDUE_S, QueueEstimate


class AgentView(QueueEstimate):
    """One agent as the gateway sees it; times are the loop's. `current` is the weighted rule's running credit."""

    __slots__ = (
        "accepting",
        "current",
        "full_batch_s",
        "instance",
        "single_s",
        "standby",
        "terminates_at",
        "weight",
    )

    def __init__(self, instance: str) -> None:
        super().__init__()
        self.instance = instance
        self.accepting = self.standby = False
        self.single_s = self.full_batch_s = self.weight = self.current = 0.0
        self.terminates_at = math.inf

    def on_state(self, state: State, unseen: int, now: float) -> None:
        """The agent said how it is; `unseen` requests were on their way to it."""
        self.waiting = state.waiting + unseen
        self.in_service = state.in_service
        self.free_at = now + state.busy_s
        self.terminates_at = now + state.terminates_in_s
        self.accepting, self.standby = state.accepting, state.standby
        self.max_batch = len(state.batch_s)
        self.single_s, self.full_batch_s, self.weight = state.batch_s[0], state.batch_s[-1], state.weight

    def finish_at(self, now: float) -> float:
        """When a request that goes there now would be answered; a batch that is overdue ends any moment."""
        free_at = now + OVERDUE_S if self.in_service and self.free_at <= now else self.free_at
        return predicted_finish_at(now, free_at, self.waiting, self.max_batch, self.single_s, self.full_batch_s)


class ModelView:
    """The agents of one model that accept requests, in the order of their ids."""

    def __init__(self) -> None:
        self.agents: list[AgentView] = []
        self.rows: Sequence[int] = ()

    def set_agents(self, agents: Iterable[AgentView]) -> None:
        """These accept from now on."""
        self.agents = sorted(agents, key=lambda agent: agent.instance)
        self.rows = range(len(self.agents))

    def servers(self, now: float) -> list[AgentView]:
        """The agents as they are now; a batch that is overdue ends any moment, its agent is not idle."""
        for agent in self.agents:
            if agent.in_service and agent.free_at <= now:
                agent.free_at = now + OVERDUE_S
        return self.agents
