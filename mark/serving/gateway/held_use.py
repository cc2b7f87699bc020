"""A client's use by a request that is held: whose it is, and when it becomes load."""

from __future__ import annotations

import time

from mark.serving.gateway.clients import ClientUse


class HeldUse:
    """A client's use by one held request, in place of the `ClientUse`: late is what missed its own deadline."""

    __slots__ = ("due_at", "is_load", "keeps_alive", "load_at", "use")

    def __init__(self, use: ClientUse, due_at: float, load_at: float, *, keeps_alive: bool) -> None:
        self.use, self.due_at, self.load_at, self.keeps_alive = use, due_at, load_at, keeps_alive
        #: it was counted as an arrival, and its answer counts for the model's objective
        self.is_load = False

    @property
    def name(self) -> str:
        """The client's name."""
        return self.use.name

    @property
    def client(self) -> bytes:
        """Its name in frames."""
        return self.use.client

    @property
    def details(self) -> bytes:
        """The details of a frame that has no others."""
        return self.use.details

    def served(self, size: int, *, late: bool) -> None:  # noqa: ARG002 - by the objective, which is not its own
        """A model's answer went out."""
        self.use.served(size, late=time.monotonic() > self.due_at)

    def refused(self, status: int) -> None:
        """An answer that serves nobody went out."""
        self.use.refused(status)
