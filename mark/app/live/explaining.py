"""`mark explain` of a service that runs: the journal of one of its models, as far as it has come."""

from __future__ import annotations

from itertools import islice

from mark.app.explaining import explain_journal
from mark.app.live.folder import find_running
from mark.app.live.loading import chosen
from mark.app.terminal import note
from mark.controller.journal import read_journal
from mark.domain.errors import Misconfigured
from mark.store.connect import connect
from mark.store.service import ServiceStore


def _note_before(store: ServiceStore, model: str) -> None:
    """Say where this segment does not go on with the one before."""
    *before, last = store.journal_segments(model)
    if not before:
        return
    try:
        runs = [
            read_journal(islice(store.journal_lines(model, number), 1))[0].run for number in (before[-1], last)
        ]
    except Misconfigured as error:
        note(f"segment {before[-1]} of the journal: {error}")
        return
    if runs[0] != runs[1]:
        note(f"the journal begins anew with segment {last}: segment {before[-1]} has lines that cannot be read")


def explain_live(service: str, *, model: str | None, minute: float | None, as_json: bool) -> None:
    """Print the ticks around a minute since the journal opened, or all of it in short."""
    running = find_running(service)
    name = chosen(running, model)["name"]
    store = ServiceStore(connect(running.store), service)
    lines = list(store.journal_lines(name))  # both readings see the same ticks, though more come meanwhile
    _note_before(store, name)
    explain_journal(lambda: lines, minute=minute, as_json=as_json)
