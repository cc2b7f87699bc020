"""The model that `mark predict` and `mark profile` try on this machine: by target, settings or shipped name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mark.catalog.load import load_models
from mark.catalog.shipped_models import MODEL_FILE, TARGETS, folder_of
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured, unknown
from mark.plugins.files import source_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedModel:
    """A model by its name, its backend's kind and target, and the folder where modules are looked for first.

    streams: the settings say so.
    """

    name: str
    kind: str
    target: str
    folder: Path | None
    streams: bool = False


def tried_model(settings: Settings, *, model: str | None, target: str | None, kind: str) -> TriedModel:
    """The model of a target, else one that the settings serve, else a shipped one by its name.

    target: counts from the working directory. Errors: Misconfigured where none of these is given.
    """
    here = Path()
    if target is not None:
        name = model or (_named_beside(target, here) if kind == "python" else None)
        return TriedModel(name=name or class_name(target), kind=kind, target=target, folder=here)
    served = [one for one in settings.service.serve if one.backend.kind != "emulated"]
    if served:
        named = {one.model: one for one in served}
        if model is not None and model not in named:
            raise unknown("model of the settings", model, named)
        one = named[model] if model else served[0]
        run = one.backend
        return TriedModel(name=one.model, kind=run.kind, target=run.target, folder=run.folder, streams=run.streams)
    if model is None:
        raise Misconfigured(
            "name a model: --target path/file.py:Name, --config FILE that serves one, or --model of a shipped one"
        )
    shipped = {name: found for found in TARGETS if (name := _named_beside(found, None))}
    if model not in shipped:
        raise unknown("shipped model", model, shipped)
    return TriedModel(name=model, kind="python", target=shipped[model], folder=None)


def existing_source(target: str, folder: Path | None) -> Path:
    """The file behind a Python target. Misconfigured where it is not there."""
    where, _, name = target.rpartition(":")
    if not where or not name:
        raise Misconfigured(f"model {target!r} must read module:attribute or path/file.py:Name")
    source = source_of(where, folder)
    if source is None:
        place = "is not installed" if folder is None else f"is neither in {folder.absolute()} nor installed"
        raise Misconfigured(f"model module {where!r} {place}; a file is given by its path, path/file.py:Name")
    if not source.is_file():
        raise Misconfigured(f"model file {source} does not exist")
    return source


def _named_beside(target: str, folder: Path | None) -> str | None:
    """The name in the model.json beside the target, where it holds one model."""
    place = folder_of(target, folder)
    if place is None or not (place / MODEL_FILE).is_file():
        return None
    names = list(load_models(place / MODEL_FILE))
    return names[0] if len(names) == 1 else None


def class_name(target: str) -> str:
    """A name for a model of which only the target is known: `my.py:TextModel` is text-model."""
    last = target.rpartition(":")[2].rpartition(".")[2]
    return "".join(f"-{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(last)).strip("-_/")
