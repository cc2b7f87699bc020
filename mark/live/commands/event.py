"""`mark event`: announce load that is known before it comes, to a service that runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from mark.config.events import default_name, parse_duration, parse_expectation, parse_name, parse_time
from mark.config.settings import Settings
from mark.domain.demand import KEEP_HISTORY, UNIT_S
from mark.domain.errors import Misconfigured, unknown
from mark.domain.load.announced_events import AnnouncedEvent, Events
from mark.live.clock import adopt_wall
from mark.live.service_session import service_store
from mark.report.tables import make_table, texts
from mark.report.terminal import show, show_json
from mark.steady_time import steady_time
from mark.store.published_status import EVENTS, AnnouncedEvents
from mark.store.service import ServiceStore

Parsed = TypeVar("Parsed")
KEEP_S = KEEP_HISTORY * UNIT_S
"""An event that is over is kept while forecasters are shown its load: it is taken out of what they learn from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventOptions:
    """An event as its flags say it."""

    name: str | None
    at: str
    duration: str
    expect: str
    model: str | None

    @property
    def event(self) -> AnnouncedEvent:
        """The event. Misconfigured where a flag cannot be read."""
        at = _flag("--at", parse_time, self.at)
        factor, least_rps = _flag("--expect", parse_expectation, self.expect)
        return AnnouncedEvent(
            name=default_name(at) if self.name is None else parse_name(self.name),
            at=at,
            until=at + _flag("--for", parse_duration, self.duration),
            factor=factor,
            least_rps=least_rps,
            model=self.model or "",
        )


def _flag(flag: str, parse: Callable[[str], Parsed], text: str) -> Parsed:
    try:
        return parse(text)
    except Misconfigured as error:
        raise Misconfigured(f"{flag}: {error}") from error


def add_event(settings: Settings, options: EventOptions, *, as_json: bool) -> None:
    """Announce an event. Misconfigured where the service, its model or the time is none, or the name is taken."""
    event = options.event
    store, models = service_store(settings)
    if event.model and event.model not in models:
        raise unknown("model of the service", event.model, models)
    now = _now(store)
    if event.until <= now:
        raise Misconfigured(f"the event ended at {_time(event.until)}, before now; give --at a time to come")
    _change(store, lambda known: with_event(known, event), now)
    if as_json:
        show_json({"service": settings.service.name, "added": _document(event, now)})
        return
    show(
        f"announced {event.name}: {event.expected} from {_time(event.at)} to {_time(event.until)}"
        f"{f' for {event.model}' if event.model else ''}; plans count it from an hour before on"
    )


def list_events(settings: Settings, *, as_json: bool) -> None:
    """Show what is announced, and what is over and still taken out of what forecasters learn from."""
    store, _ = service_store(settings)
    now, events = _now(store), _known(store)
    if as_json:
        shown = [_document(event, now) for event in events]
        show_json({"service": settings.service.name, "at": now, "events": shown})
        return
    if not events:
        show(f"nothing is announced to {settings.service.name}; `mark event add` does it")
        return
    rows = make_table(texts("event", "from", "to", "expects", "model", "state"), gap=2)
    for event in events:
        rows.add_row(
            event.name,
            _time(event.at),
            _time(event.until),
            event.expected,
            event.model or "each",
            _state(event, now),
        )
    show(rows)


def remove_event(settings: Settings, name: str, *, as_json: bool) -> None:
    """Withdraw an event. Misconfigured where none has that name."""
    store, _ = service_store(settings)
    _change(store, lambda known: without_event(known, name), _now(store))
    if as_json:
        show_json({"service": settings.service.name, "removed": name})
        return
    show(f"removed {name}; the next plan does without it")


def with_event(known: Events, event: AnnouncedEvent) -> Events:
    """The events with one more. Misconfigured where its name is taken."""
    if any(one.name == event.name for one in known):
        raise Misconfigured(
            f"an event {event.name} is announced already; remove it first, or name this one: mark event add NAME"
        )
    return (*known, event)


def without_event(known: Events, name: str) -> Events:
    """The events but the one of that name. Misconfigured where none has it."""
    left = tuple(event for event in known if event.name != name)
    if len(left) == len(known):
        raise unknown("event", name, [event.name for event in known])
    return left


def _known(store: ServiceStore) -> Events:
    found = EVENTS.read(store)
    return found.events if found is not None else ()


def _change(store: ServiceStore, change: Callable[[Events], Events], now: float) -> None:
    """Keep the changed events in the order in which they begin, without those that nobody learns from any more."""

    def changed(found: AnnouncedEvents | None) -> AnnouncedEvents:
        events = change(found.events if found is not None else ())
        kept = (event for event in events if event.until > now - KEEP_S)
        return AnnouncedEvents(events=tuple(sorted(kept, key=lambda event: (event.at, event.name))))

    EVENTS.change(store, changed)


def _now(store: ServiceStore) -> float:
    adopt_wall(store)
    return store.clock().service_time(steady_time())


def _state(event: AnnouncedEvent, now: float) -> str:
    if event.until <= now:
        return "over"
    return "now" if event.at <= now else "to come"


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def _document(event: AnnouncedEvent, now: float) -> dict[str, object]:
    """An event in the documents of `mark event --json` (docs/json.md)."""
    return {
        "name": event.name,
        "at": event.at,
        "until": event.until,
        "factor": event.factor,
        "least_rps": event.least_rps,
        "model": event.model or None,
        "state": _state(event, now),
    }
