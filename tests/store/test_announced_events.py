"""Announced events in the store: no command loses what another announces meanwhile."""

from __future__ import annotations

import pytest

from mark.domain.errors import Misconfigured, RetryLater
from mark.domain.load.announced_events import AnnouncedEvent
from mark.live.commands.event import with_event, without_event
from mark.store.published_status import EVENTS, AnnouncedEvents
from mark.store.service import ServiceStore


def event(name: str) -> AnnouncedEvent:
    return AnnouncedEvent(name=name, at=100.0, until=200.0, factor=2.0)


def added(name: str, found: AnnouncedEvents | None) -> AnnouncedEvents:
    return AnnouncedEvents(events=with_event(() if found is None else found.events, event(name)))


def names(store: ServiceStore) -> list[str]:
    found = EVENTS.read(store)
    return [] if found is None else [one.name for one in found.events]


def test_two_commands_at_once_lose_neither_event(store: ServiceStore) -> None:
    def meanwhile(found: AnnouncedEvents | None) -> AnnouncedEvents:
        if found is None:
            EVENTS.change(store, lambda other: added("first", other))
        return added("second", found)

    EVENTS.change(store, meanwhile)
    assert names(store) == ["first", "second"]


def test_a_change_that_never_comes_through_says_so(store: ServiceStore) -> None:
    def busy(found: AnnouncedEvents | None) -> AnnouncedEvents:
        EVENTS.change(store, lambda other: added(f"e{len(names(store))}", other))
        return added("mine", found)

    with pytest.raises(RetryLater, match="try again"):
        EVENTS.change(store, busy)


def test_a_name_is_taken_once_and_removed_where_it_is_there(store: ServiceStore) -> None:
    EVENTS.change(store, lambda found: added("sale", found))
    with pytest.raises(Misconfigured, match="announced already"):
        EVENTS.change(store, lambda found: added("sale", found))
    with pytest.raises(Misconfigured, match="unknown event 'sail'; did you mean 'sale'"):
        without_event((event("sale"),), "sail")
    assert without_event((event("sale"), event("other")), "sale") == (event("other"),)
    assert names(store) == ["sale"]
