"""Announced events: load that somebody knows of before it comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedEvent:
    """One event. `name` tells it from others."""

    name: str
    #: When it begins, epoch seconds.
    at: float
    #: When it ends, epoch seconds.
    until: float
    #: Multiple of the usual load that comes, at least 1.
    factor: float = 1.0
    #: Rate that comes at least, requests/s.
    least_rps: float = 0.0
    #: The model that it is about; empty for each.
    model: str = ""

    def touches(self, start_at: float, end_at: float) -> bool:
        """True where it takes place within that time."""
        return self.at < end_at and self.until > start_at

    @property
    def expected(self) -> str:
        """What it expects, as it is written: 3x or 500rps."""
        return f"{self.least_rps:g}rps" if self.least_rps else f"{self.factor:g}x"


Events = tuple[AnnouncedEvent, ...]


def on_clock(events: Events, clock_at: float) -> Events:
    """Those not over at `clock_at`, epoch seconds, by the instants of a clock that is 0 there."""
    return tuple(
        replace(event, at=max(0.0, event.at - clock_at), until=event.until - clock_at)
        for event in events
        if event.until > clock_at
    )


def no_events() -> Events:
    """Announce nothing."""
    return ()


def events_of(events: Sequence[AnnouncedEvent], model: str) -> Events:
    """Those that are about a model, in the order in which they begin."""
    own = (event for event in events if event.model in ("", model))
    return tuple(sorted(own, key=lambda event: (event.at, event.name)))
