"""A model's transitions as a process reads them again and again: each line is fetched and decoded once."""

from __future__ import annotations

from threading import Lock

from mark.domain.costs import Transition
from mark.store.codec import TRANSITION
from mark.store.connect import Link


class StoredLedger:
    """The list of one model, which only grows; safe to share between threads."""

    def __init__(self, link: Link, key: str) -> None:
        self._link, self._key = link, key
        self._lock = Lock()
        self._last = b""
        self._count = 0
        self._known: tuple[Transition, ...] = ()

    def transitions(self) -> tuple[Transition, ...]:
        """All of them by time, those of one instant as they were told; the same tuple while none is new."""
        with self._lock:
            lines = self._new_lines()
            if lines:
                new = map(TRANSITION.decode, lines)
                self._known = tuple(sorted((*self._known, *new), key=lambda transition: transition.at))
                self._last, self._count = lines[-1], self._count + len(lines)
            return self._known

    def _new_lines(self) -> list[bytes]:
        """Lines not seen yet, with the last one seen asked for once more: a store that lost it lost others too."""
        if self._count:
            lines: list[bytes] = self._link.call("LRANGE", self._key, self._count - 1, -1)
            if lines and lines[0] == self._last:
                return lines[1:]
            self._count, self._known = 0, ()
        return list(self._link.call("LRANGE", self._key, 0, -1))
