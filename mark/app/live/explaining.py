"""`mark explain` of a service that runs: the journal of one of its models, as far as it has come."""

from __future__ import annotations

from mark.app.explaining import explain_journal
from mark.app.live.folder import find_running
from mark.app.live.loading import chosen
from mark.store.connect import connect
from mark.store.service import ServiceStore


def explain_live(service: str, *, model: str | None, minute: float | None, as_json: bool) -> None:
    """Print the ticks around a minute since the journal opened, or all of it in short."""
    running = find_running(service)
    name = chosen(running, model)["name"]
    store = ServiceStore(connect(running.store), service)
    lines = list(store.journal_lines(name))  # both readings see the same ticks, though more come meanwhile
    explain_journal(lambda: lines, minute=minute, as_json=as_json)
