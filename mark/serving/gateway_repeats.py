"""A client that repeats a request with the same id gets the one answer, not a second execution.

Only ids that clients chose are remembered: for a minute, a bounded number of them, answers up to a bounded size.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from mark.serving.gateway_ticket import Ticket

KEPT_S = 60.0
MAX_IDS = 8192
MAX_BYTES = 32 * 1024 * 1024


class Answer(NamedTuple):
    """What was answered."""

    status: int
    content_type: bytes
    header_length: int
    body: bytes
    by: bytes


class Repeat:
    """One id: a request in flight with those that repeat it, or its answer."""

    __slots__ = ("answer", "at", "digest", "followers", "key")

    def __init__(self, key: tuple[bytes, bytes], digest: int, at: float) -> None:
        self.key, self.digest, self.at = key, digest, at
        self.followers: list[Ticket] = []
        self.answer: Answer | None = None


class Repeats:
    """The ids that were seen lately, oldest first."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[bytes, bytes], Repeat] = OrderedDict()  # a dict's front is slow to find
        self._bytes = 0

    def is_first(self, ticket: Ticket, now: float) -> bool:
        """Whether it is to be executed; else it was answered here, or will be with the first of its id."""
        key = (ticket.path, ticket.request_id)
        digest = hash(ticket.body)
        known = self._known.get(key)
        if known is None or now - known.at > KEPT_S:
            if known is not None:
                self._forget(known)
            self._make_room(now)
            ticket.repeat = self._known[key] = Repeat(key, digest, now)
            return True
        if known.digest != digest:
            ticket.fail(409, "this request id was used for another request")
        elif known.answer is not None:
            ticket.answer(*known.answer)
        else:
            known.followers.append(ticket)
        return False

    def answered(self, repeat: Repeat, answer: Answer) -> None:
        """Keep the answer, and give it to those that wait for it."""
        if self._known.get(repeat.key) is repeat:
            repeat.answer = answer
            self._bytes += len(answer.body)
        for follower in repeat.followers:
            follower.answer(*answer)
        repeat.followers.clear()
        self._make_room(repeat.at)

    def failed(self, repeat: Repeat, status: int, text: str) -> None:
        """There is no answer to keep: the next repetition is executed."""
        self._forget(repeat)
        for follower in repeat.followers:
            follower.fail(status, text)
        repeat.followers.clear()

    def _make_room(self, now: float) -> None:
        while self._known:
            oldest = next(iter(self._known.values()))
            full = len(self._known) >= MAX_IDS or self._bytes > MAX_BYTES
            if not full and now - oldest.at <= KEPT_S:
                return
            self._forget(oldest)

    def _forget(self, repeat: Repeat) -> None:
        if self._known.get(repeat.key) is repeat:
            del self._known[repeat.key]
            if repeat.answer is not None:
                self._bytes -= len(repeat.answer.body)
