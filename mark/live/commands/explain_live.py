"""`mark explain` of a service: its placements, or the journal of one of its models, as far as they have come.

Of a service that is up, or starts, it is read from the store; of one that has ended, or could not start, from the
copy that its supervisor left in its folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from mark.config.served import model_names
from mark.controller.journal import BrokenLine, read_journal
from mark.domain.errors import Misconfigured, unknown
from mark.domain.fleet.host_spec import SHARED
from mark.live.clock import adopt_wall
from mark.live.commands.load import chosen
from mark.live.local.run_dir import RunFolder, find_known
from mark.offline.explanation.explain import explain_journal
from mark.offline.explanation.explain_service import Placements, SharedSeats, explain_placements, placements_of
from mark.report.files import JOURNAL_NAME, PLACEMENTS_NAME
from mark.report.terminal import note
from mark.steady_time import steady_time
from mark.store.connect import connect
from mark.store.service import ServiceStore
from mark.telemetry.journal_file import whole_lines


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
    """Print the ticks of a model around a minute since its journal opened, or all of it in short.

    Without a model, of a service that shares instances, who sits where.
    """
    folder = RunFolder.of(service)
    if folder.running() is None and (kept := _kept_journals(folder)):
        reason = (folder.failure() or ("",))[0]
        note(
            f"the service {service} is not up; this is its last life"
            + (f", which failed: {reason}" if reason else "")
        )
        file = folder.path / PLACEMENTS_NAME
        shared = placements_of(whole_lines(file)) if file.is_file() else None
        name = _chosen_of(service, model, kept)
        journal = folder.path / name / JOURNAL_NAME
        if model is None and shared is not None and shared.has_hosts:
            span = _span(whole_lines(journal))
            found = shared if span is None else shared.until(span[1])
            explain_placements(found, minute=minute, as_json=as_json)
            return
        _explain(name, lambda: whole_lines(journal), shared, minute=minute, as_json=as_json)
        return
    running = find_known(service)
    if not running.store or not running.models:
        raise Misconfigured(
            f"the service {service} is still starting ({running.step}) and has decided nothing yet"
        )
    name = chosen(running, model)["name"]
    store = ServiceStore(connect(running.store), service)
    shared = _placements(store)
    if model is None and shared is not None and shared.has_hosts:
        explain_placements(shared, minute=minute, as_json=as_json)
        return
    if not store.journal_segments(name):
        raise Misconfigured(
            f"the service {service} is still starting ({running.step}) and has decided nothing yet"
        )
    lines = list(store.journal_lines(name))  # both readings see the same ticks, though more come meanwhile
    _note_before(store, name)
    _explain(name, lambda: lines, shared, minute=minute, as_json=as_json)


def _placements(store: ServiceStore) -> Placements | None:
    """The placements so far; None where nothing is shared."""
    if not store.journal_segments(SHARED):
        return None
    adopt_wall(store)
    return placements_of(store.journal_lines(SHARED)).until(store.clock().service_time(steady_time()))


def _explain(
    model: str,
    lines: Callable[[], Iterable[bytes]],
    shared: Placements | None,
    *,
    minute: float | None,
    as_json: bool,
) -> None:
    """One model's own fleet, and where it sits on shared instances. Minutes are those of its journal."""
    seats = None
    if shared is not None and (span := _span(lines())) is not None:
        seats = SharedSeats(shared.since(span[0]).until(span[1]), model, minute)
    explain_journal(lines, minute=minute, as_json=as_json, shared=seats)


def _span(lines: Iterable[bytes]) -> tuple[float, float] | None:
    """When the first and the last tick of a journal were; None where it has none."""
    broken: list[BrokenLine] = []
    ticks = [tick.seen.now for tick in read_journal(lines, skip=broken.append)[1]]
    return (ticks[0], ticks[-1]) if ticks else None


def _kept_journals(folder: RunFolder) -> list[str]:
    """Models whose journals lie in the folder, in the order of its settings."""
    kept = sorted(path.parent.name for path in folder.path.glob(f"*/{JOURNAL_NAME}"))
    try:
        order = model_names(folder.settings())
    except (OSError, ValueError):  # settings that another version wrote
        return kept
    return sorted(kept, key=lambda name: order.index(name) if name in order else len(order))


def _chosen_of(service: str, model: str | None, kept: Iterable[str]) -> str:
    """The model that is meant. Misconfigured where it has left no journal."""
    names = list(kept)
    if model is None:
        return names[0]
    if model not in names:
        raise unknown(f"model of the last life of {service}", model, names)
    return model
