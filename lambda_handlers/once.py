"""The store's link in the shape of redis-py's client, as powertools' idempotency asks for it.

So what was done is kept in the service's own store, with its URLs, time-outs and repeats.
"""

from __future__ import annotations

from typing import Any

from mark.store.connect import Link
from mark.store.keys import Keys


class LinkClient:
    """The part of redis-py's client that powertools uses; its keys are the service's."""

    def __init__(self, link: Link, service: str) -> None:
        self._link = link
        self._keys = Keys(service)

    def get(self, name: bytes | str | memoryview) -> bytes | str | None:
        """The value, if there is one."""
        found: bytes | None = self._link.call("GET", self._key(name))
        return found

    def set(
        self,
        name: str | bytes,
        value: bytes | float | str,
        ex: Any = None,
        px: Any = None,
        nx: bool = False,
    ) -> bool | None:
        """Keep a value for `ex` seconds or `px` milliseconds; with `nx` only where there is none."""
        words: list[str | bytes | float] = [value]
        words += ["EX", int(ex)] if ex is not None else []
        words += ["PX", int(px)] if px is not None else []
        words += ["NX"] if nx else []
        return self._link.call("SET", self._key(name), *words) is not None

    def delete(self, *names: bytes | str | memoryview) -> Any:
        """Forget them."""
        return self._link.call("DEL", *(self._key(name) for name in names))

    def _key(self, name: bytes | str | memoryview) -> str:
        return self._keys.of("once", name if isinstance(name, str) else bytes(name).decode())
