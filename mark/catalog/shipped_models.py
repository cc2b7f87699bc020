"""Models that come with MArk to be served: found by their targets, with nothing of them imported or loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mark.catalog.load import ProfileSet, load_models, load_profiles
from mark.domain.models.objective import ModelSpec
from mark.plugins.files import source_of

TARGETS = ("mark.models.digits:Digits", "mark.models.lstm_lm:LanguageModel", "mark.models.transformer:Polarity")
"""As `backend.target` names them in the settings."""
MODEL_FILE, PROFILE_FILE, CARD_FILE = "model.json", "profile.json", "card.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedModel:
    """One of them. card: what it does, learned from and is bad at, for people."""

    target: str
    spec: ModelSpec
    profiles: ProfileSet
    card: Path


def folder_of(target: str, folder: Path | None = None) -> Path | None:
    """The folder of a Python model: its model.json and profile.json, where they are, say what it needs.

    folder: where a target that is a module is looked for first.
    """
    source = source_of(target.rpartition(":")[0], folder)
    return None if source is None else source.parent


def shipped_models() -> tuple[ShippedModel, ...]:
    """Those that are installed here."""
    found = []
    for target in TARGETS:
        folder = folder_of(target)
        if folder is not None:
            (spec,) = load_models(folder / MODEL_FILE).values()
            profiles = load_profiles(spec.name, [folder / PROFILE_FILE])
            found.append(ShippedModel(target=target, spec=spec, profiles=profiles, card=folder / CARD_FILE))
    return tuple(found)
