"""Kinds of failures of one model since the last report: the latest of them, so that memory is bounded."""

from __future__ import annotations

from dataclasses import replace

from mark.domain.load.traffic import FAILURE_KINDS, FailureKind

MOST_TEXT = 300
"""Characters of a failure's text that are kept."""


class FailureTally:
    """Failures by kind, the last one last."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[str, FailureKind] = {}

    def note(self, text: str, at: float) -> None:
        """Count a failure; the kind that is out longest makes room for a new one."""
        new = FailureKind(text=_plain(text[:MOST_TEXT]), since=at, at=at)
        known = self._kinds.pop(new.kind, None)
        self._kinds[new.kind] = new if known is None else replace(new, count=known.count + 1, since=known.since)
        if len(self._kinds) > FAILURE_KINDS:
            del self._kinds[next(iter(self._kinds))]

    def take(self) -> tuple[FailureKind, ...]:
        """Those since the last call, the last one first."""
        found = tuple(reversed(self._kinds.values()))
        self._kinds.clear()
        return found


def _plain(text: str) -> str:
    """The text in one line, without control characters: it may quote a client, and terminals obey them."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())
