"""`mark explain` of a service: the journal of one of its models, as far as it has come.

Of a service that is up, or starts, it is read from the store; of one that has ended, or could not start, from the
copy that its supervisor left in its folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from mark.config.served import model_names
from mark.controller.journal import read_journal
from mark.domain.errors import Misconfigured, unknown
from mark.live.commands.load import chosen
from mark.live.local.run_dir import RunFolder, find_known
from mark.offline.explain import explain_journal, explain_run
from mark.offline.out_folder import JOURNAL_NAME
from mark.report.terminal import note
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
    folder = RunFolder.of(service)
    if folder.running() is None and (kept := _kept_journals(folder)):
        name = _chosen_of(service, model, kept)
        reason = (folder.failure() or ("",))[0]
        note(
            f"the service {service} is not up; this is its last life"
            + (f", which failed: {reason}" if reason else "")
        )
        explain_run(folder.path / name, minute=minute, policy=None, model=None, as_json=as_json)
        return
    running = find_known(service)
    if not running.store or not running.models:
        raise Misconfigured(
            f"the service {service} is still starting ({running.step}) and has decided nothing yet"
        )
    name = chosen(running, model)["name"]
    store = ServiceStore(connect(running.store), service)
    if not store.journal_segments(name):
        raise Misconfigured(
            f"the service {service} is still starting ({running.step}) and has decided nothing yet"
        )
    lines = list(store.journal_lines(name))  # both readings see the same ticks, though more come meanwhile
    _note_before(store, name)
    explain_journal(lambda: lines, minute=minute, as_json=as_json)


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
