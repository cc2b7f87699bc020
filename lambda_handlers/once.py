"""The store's link in the shape of redis-py's client, as powertools' idempotency asks for it.

So what was done is kept in the service's own store, with its URLs, time-outs and repeats, and by commands that
change nothing else there.
"""

from __future__ import annotations

from typing import Any

from mark.store.connect import Link
from mark.store.keys import Keys
from mark.store.scripts import ONCE


class LinkClient:
    """The part of redis-py's client that powertools uses, by names without spaces."""

    def __init__(self, link: Link, service: str) -> None:
        self._link = link
        self._key = Keys(service).of("once")

    def get(self, name: bytes | str | memoryview) -> bytes | str | None:
        """The value, if there is one."""
        return next((entry.split(b" ", 2)[2] for entry in self._entries(name)), None)

    def set(
        self,
        name: str | bytes,
        value: bytes | float | str,
        ex: Any = None,
        px: Any = None,  # noqa: ARG002 - as powertools declares it; it gives seconds
        nx: bool = False,
    ) -> bool | None:
        """Keep a value for `ex` seconds; with `nx` only where there is none."""
        kept = self._link.run(ONCE, (self._key,), (_text(name), int(ex * 1000), int(nx), value))
        return True if kept else None

    def delete(self, *names: bytes | str | memoryview) -> Any:
        """Forget them."""
        return [self._link.call("SREM", self._key, entry) for name in names for entry in self._entries(name)]

    def _entries(self, name: bytes | str | memoryview) -> list[bytes]:
        found: list[bytes] = self._link.call("SMEMBERS", self._key)
        return [entry for entry in found if entry.split(b" ", 2)[1] == _text(name).encode()]


def _text(name: bytes | str | memoryview) -> str:
    return name if isinstance(name, str) else bytes(name).decode()
