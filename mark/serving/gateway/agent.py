"""An agent as routers see it; `agent_pool.py` owns the connection."""

from __future__ import annotations

from typing import Protocol

from mark.serving.gateway.members_view import AgentView
from mark.serving.gateway.request import InferenceRequest
from mark.serving.gateway.versions.shadow import ShadowRequest


class Agent(Protocol):
    """A connection to one agent."""

    view: AgentView
    #: name of what it was rented as
    offering: str

    def send(self, request: InferenceRequest, now: float, *, forced: bool, batch_id: int = 0) -> None:
        """Send a request there; with others of its batch, where it has one."""
        ...

    def begin(self, batch_id: int, variant: str) -> None:
        """Have that batch answered by this variant."""
        ...

    def send_shadow(self, shadow: ShadowRequest, now: float) -> None:
        """Send a copy of a request there, whose answer is compared and dropped."""
        ...
