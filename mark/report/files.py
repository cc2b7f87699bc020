"""Files that commands write: whole or not at all, and a line that says why one could not be written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured

JOURNAL_NAME = "journal.jsonl"
PLACEMENTS_NAME = "placements.jsonl"
MODELS_NAME = "models"
"""Beside a service's placements: a folder for each model."""


def make_folder(path: Path) -> None:
    """Make the folder that `--out` names where it is missing, before anything is computed for it.

    Misconfigured where it is none, or cannot be written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except (FileExistsError, NotADirectoryError) as error:
        raise Misconfigured(f"cannot write to --out {path}: it is not a folder; name another") from error
    except OSError as error:
        raise Misconfigured(f"cannot write to --out {path}: {error.strerror}; name another folder") from error


def check_file(path: Path) -> None:
    """Misconfigured where `path` cannot be a file: before anything is computed for it."""
    if path.is_dir():
        raise Misconfigured(f"{path} is a folder; name a file with --out, such as {path / 'report.html'}")
    if not path.parent.is_dir():
        raise Misconfigured(
            f"cannot write {path}: there is no folder {path.parent}; make it, or name another --out"
        )


def write_whole(path: Path, text: str) -> None:
    """Through a file beside it, so that a reader never meets half a page; the old one stays on failure."""
    draft: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(draft).chmod(0o644)  # mkstemp's 0600 would hide a report on a shared folder
        Path(draft).replace(path)
    except OSError as error:
        if draft is not None:
            Path(draft).unlink(missing_ok=True)
        if isinstance(error, (FileExistsError, NotADirectoryError)):
            raise Misconfigured(
                f"cannot write {path}: {path.parent} is not a folder; name another --out"
            ) from error
        raise Misconfigured(
            f"cannot write {path}: {error.strerror or error}; free space there or name another --out folder"
        ) from error


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document as `write_whole` writes texts."""
    write_whole(path, json_text(document, indent=2) + "\n")
