"""Memory budget of request bodies in one server, over all its connections: backpressure by not reading on.

A body counts from when it is let in until nobody refers to its request any more, which is when its memory is free
again. One that is still to come is let in up to `limit`; beyond that its connection is not read until others are
done. What has already come, or is small, may take a quarter more, so that large bodies never keep small ones out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

SMALL_BYTES = 64 * 1024
"""Bodies up to it are small: they come with one or two reads, so there is nothing to hold back."""
HELD = "memory for request bodies is used up; retry after 1 s"
UNCOUNTED_BYTES = 4 * 1024
"""Bodies up to it are not counted: all connections together hold 64 MiB of them."""
MOST_WAITING = 256
"""Connections that wait for their bodies' turn; each holds what its last read brought, 256 KiB at most."""


class Waiting(Protocol):
    """A connection whose body has to wait."""

    def let_in(self, lease: BodyLease) -> None:
        """Take the body now."""
        ...


class BodyLease:
    """The share of the budget that one body has; given back when the last reference to it goes."""

    __slots__ = ("_budget", "size")

    def __init__(self, budget: BodyBudget, size: int) -> None:
        self._budget, self.size = budget, size
        budget.held += size

    def grow(self, more: int) -> bool:
        """Count `more` bytes that have come; False, and nothing counted, where the budget is used up."""
        budget = self._budget
        if not budget.has_room(more, budget.ceiling):
            return False
        budget.held += more
        self.size += more
        return True

    def shrink(self, size: int) -> None:
        """The body turned out to have `size` bytes."""
        self._budget.give_back(self.size - size)
        self.size = size

    def __del__(self) -> None:
        self._budget.give_back(self.size)


class BodyBudget:
    """The bytes of bodies that one server holds. `held` is for its event loop only."""

    def __init__(self, limit: int) -> None:
        self.limit, self.ceiling = limit, limit + limit // 4
        self.held = 0
        self._returned: deque[int] = deque()  # the garbage collector may give back in any thread
        self._waiting: dict[Waiting, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def has_room(self, size: int, limit: int) -> bool:
        """True where `size` bytes more stay within `limit`; a body is never too large for an empty budget."""
        self._collect_returned()
        return self.held + size <= limit or not self.held

    def take(self, size: int, *, is_here: bool) -> BodyLease | None:
        """Let a body in. is_here: it has come already, or is small. None where there is no room."""
        if not is_here and self._waiting:
            return None
        return BodyLease(self, size) if self.has_room(size, self.ceiling if is_here else self.limit) else None

    def queue(self, client: Waiting, size: int) -> bool:
        """Have `client` let in when its turn comes; False where too many wait already."""
        if len(self._waiting) >= MOST_WAITING:
            return False
        self._loop = asyncio.get_running_loop()
        self._waiting[client] = size
        return True

    def leave(self, client: Waiting) -> None:
        """The client waits no more."""
        if self._waiting.pop(client, None) is not None and self._waiting:
            self._let_in()

    def give_back(self, size: int) -> None:
        """Called by a lease that ends, in any thread."""
        self._returned.append(size)
        if self._waiting and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._let_in)

    def _collect_returned(self) -> None:
        while self._returned:
            self.held -= self._returned.popleft()

    def _let_in(self) -> None:
        """Admit the waiting bodies in their order, while there is room for the first."""
        while self._waiting:
            client, size = next(iter(self._waiting.items()))
            if not self.has_room(size, self.limit):
                return
            del self._waiting[client]
            client.let_in(BodyLease(self, size))
