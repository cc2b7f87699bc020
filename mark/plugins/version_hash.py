"""The hash that names a version of a model, and the proof that unpacked files are what a name stands for.

A bundle is fetched from a bucket by its version's name. Whoever may write there must not decide what a version
runs, so each machine that unpacks a bundle computes the name anew. A model's own packages are resolved when it is
packed, and are no part of its name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mark.domain.errors import Misconfigured
from mark.domain.models.versions import shown

BACKEND_FILE = ".mark-backend.json"
"""File of a bundle: what its version's name stands for beside the files."""
PACKAGES = ".packages"
"""Folder of a model's own packages in its bundle."""
NAME = re.compile("[0-9a-f]{64}")
"""A version's name: a whole SHA-256, so that nobody makes two models of one name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HowToLoad:
    """The rest of what a version's name stands for, beside its files."""

    kind: str
    #: The model's name within its files, or where it is installed.
    target: str
    #: Hash of the module's file of a model that is installed; None for one that comes with its files.
    installed: str | None = None


def version_name(how: HowToLoad, files: Iterable[tuple[str, str]] = ()) -> str:
    """The name of a version. files: paths, with slashes, and their hashes; any order."""
    known = [how.kind, how.target, how.installed, sorted(files)]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()


def file_hash(path: Path) -> str:
    """The SHA-256 of a file's content, hex. Errors: OSError."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def check_unpacked(folder: Path, version: str) -> HowToLoad:
    """How to load the version in an unpacked bundle. Misconfigured where `folder` is not that version."""
    try:
        how = HowToLoad(**json.loads((folder / BACKEND_FILE).read_text(encoding="utf-8")))
        found = [path for path in folder.rglob("*") if _counts(path.relative_to(folder))]
        is_it = not any(path.is_symlink() for path in found) and version == version_name(
            how, [(path.relative_to(folder).as_posix(), file_hash(path)) for path in found if path.is_file()]
        )
    except (OSError, ValueError, TypeError):
        is_it = False
    if not is_it:
        raise Misconfigured(
            f"the bundle of version {shown(version)} holds other files than its name stands for, and is not run: "
            "remove it from the bucket, and roll out again"
        )
    return how


def _counts(path: Path) -> bool:
    return path != Path(BACKEND_FILE) and path.parts[0] != PACKAGES
