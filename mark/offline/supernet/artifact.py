"""A trained supernet's folder: weights, figures, a profile of each variant, and a card for people."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass as checked

from mark.adapters import adapter_of
from mark.catalog.schema import parse_profiles
from mark.catalog.shipped_models import CARD_FILE, PROFILE_FILE
from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured
from mark.domain.models.profile import Profile
from mark.domain.supernet import Actuation, TrainedSupernet
from mark.offline.own_model.profile import write_profiles
from mark.offline.supernet.card import card_text
from mark.report.files import write_whole

FIGURES_FILE, WEIGHTS_FILE = "supernet.json", "weights.npz"


@checked(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class _FiguresFile:
    """The schema of FIGURES_FILE."""

    format: Literal["mark-supernet/1"]
    trained: TrainedSupernet
    actuation: Actuation


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Contents of a supernet's folder. `profiles`: one a variant, in the order of the front."""

    trained: TrainedSupernet
    actuation: Actuation
    profiles: tuple[Profile, ...]

    def __post_init__(self) -> None:
        measured = [profile.variant for profile in self.profiles]
        if measured != [subnet.variant for subnet in self.trained.subnets]:
            raise Misconfigured(f"{FIGURES_FILE} and {PROFILE_FILE} name different variants; profile it again")


def read_artifact(place: Path) -> Artifact:
    """The figures in a folder. Errors: Misconfigured."""
    try:
        text = (place / FIGURES_FILE).read_text(encoding="utf-8")
        profiles = (place / PROFILE_FILE).read_text(encoding="utf-8")
    except OSError as error:
        raise Misconfigured(
            f"no supernet in {place}: {error.strerror}; `mark supernet train --out {place}` makes one"
        ) from error
    try:
        read = adapter_of(_FiguresFile).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Misconfigured(f"{place / FIGURES_FILE}: {where}: {first['msg']}") from error
    return Artifact(
        trained=read.trained,
        actuation=read.actuation,
        profiles=parse_profiles(profiles, str(place / PROFILE_FILE)),
    )


def write_artifact(folder: Path, artifact: Artifact) -> None:
    """Write figures, profile and card; the weights are the workshop's. Errors: Misconfigured."""
    figures = {
        "format": "mark-supernet/1",
        "trained": adapter_of(TrainedSupernet).dump_python(artifact.trained, mode="json"),
        "actuation": adapter_of(Actuation).dump_python(artifact.actuation, mode="json"),
    }
    write_profiles(folder / PROFILE_FILE, artifact.profiles)
    write_whole(folder / FIGURES_FILE, json_text(figures, indent=1) + "\n")
    write_whole(folder / CARD_FILE, card_text(artifact.trained, artifact.actuation, artifact.profiles))
