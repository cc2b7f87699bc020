"""What a gateway believes of a model's agents: nearly exact, because it counts what it sends and what comes back.

An agent says how it is when that differs from what the gateway can reckon by itself, and four times a second
anyhow. In between both reckon by the same rules (`reckoning.py`). Rows of the record array that the
routing rules read are brought up to date just before a rule looks at them, and not at all while there is only one
agent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from mark.dispatch.bouncer import predicted_finish_at
from mark.dispatch.routing import SERVER_FIELDS, Ints, Servers
from mark.protocols.frames import State
from mark.serving.reckoning import OVERDUE_S, Reckoning

_DTYPE = np.dtype(list(SERVER_FIELDS.items()))


class AgentView(Reckoning):
    """One agent as the gateway sees it; times are the loop's. `row` is its place in the record array."""

    __slots__ = ("accepting", "alone_s", "full_s", "gone_at", "instance", "row", "stale", "standby", "weight")

    def __init__(self, instance: str) -> None:
        super().__init__()
        self.instance = instance
        self.accepting = self.standby = self.stale = False
        self.alone_s = self.full_s = self.weight = 0.0
        self.gone_at = math.inf
        self.row = 0

    def told(self, state: State, unseen: int, now: float) -> None:
        """The agent said how it is; `unseen` requests were on their way to it."""
        self.waiting = state.waiting + unseen
        self.in_service = state.in_service
        self.free_at = now + state.busy_s
        self.gone_at = now + state.gone_in_s
        self.accepting, self.standby = state.accepting, state.standby
        self.max_batch = len(state.batch_s)
        self.alone_s, self.full_s, self.weight = state.batch_s[0], state.batch_s[-1], state.weight

    def finish_at(self, now: float) -> float:
        """When a request that goes there now would be answered; a batch that is overdue ends any moment."""
        free_at = now + OVERDUE_S if self.in_service and self.free_at <= now else self.free_at
        return predicted_finish_at(now, free_at, self.waiting, self.max_batch, self.alone_s, self.full_s)


class ModelView:
    """The agents of one model that accept requests, in the order of their ids."""

    def __init__(self) -> None:
        self.agents: list[AgentView] = []
        self.rows: Ints = np.zeros(0, dtype=np.int64)
        self._servers: Servers = np.zeros(0, dtype=_DTYPE).view(np.recarray)
        self._stale: list[AgentView] = []
        self._due_at = math.inf

    def set_agents(self, agents: Iterable[AgentView]) -> None:
        """These accept from now on; running credits of the weighted rule stay with those that stay."""
        credit = {agent.instance: float(self._servers[agent.row].current) for agent in self.agents}
        self.agents = sorted(agents, key=lambda agent: agent.instance)
        self.rows = np.arange(len(self.agents), dtype=np.int64)
        self._servers = np.zeros(len(self.agents), dtype=_DTYPE).view(np.recarray)
        self._stale.clear()
        for row, agent in enumerate(self.agents):
            agent.row, agent.stale = row, False
            self._servers[row].current = credit.get(agent.instance, 0.0)
            self.changed(agent)

    def changed(self, agent: AgentView) -> None:
        """The agent's numbers are to be copied before the next look."""
        if not agent.stale:
            agent.stale = True
            self._stale.append(agent)

    def servers(self, now: float) -> Servers:
        """The record array as it is now; a batch that is overdue ends any moment, its agent is not idle."""
        if now >= self._due_at:
            self._due_at = math.inf
            for agent in self.agents:
                if agent.in_service:
                    self.changed(agent)
        if self._stale:
            for agent in self._stale:
                agent.stale = False
                self._copy(agent, now)
            self._stale.clear()
        return self._servers

    def _copy(self, agent: AgentView, now: float) -> None:
        servers = self._servers
        free_at = agent.free_at
        if agent.in_service:
            free_at = max(free_at, now + OVERDUE_S)
            self._due_at = min(self._due_at, free_at)
        current = servers[agent.row].current
        values = {
            "free_at": free_at,
            "gone_at": agent.gone_at,
            "alone_s": agent.alone_s,
            "full_s": agent.full_s,
            "weight": agent.weight,
            "current": current,
            "waiting": agent.waiting,
            "in_service": agent.in_service,
            "max_batch": agent.max_batch,
        }
        servers[agent.row] = tuple(values[name] for name in SERVER_FIELDS)
