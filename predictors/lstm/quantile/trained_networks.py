"""Cache of trained networks: weights, checkpoints and model cards, as arrays and JSON."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """Provenance of a model: its training data and settings, and its loss on the held-out end.

    trained_from, trained_until: epoch seconds. epochs, held_out_loss, seconds: one value per seed; the loss is the
    one that was trained on, to be compared between models of the same settings and history only.
    """

    name: str
    kind: str
    trained_from: float
    trained_until: float
    units: int
    parameters: int
    seeds: tuple[int, ...]
    epochs: tuple[int, ...]
    held_out_loss: tuple[float, ...]
    seconds: tuple[float, ...]
    settings: dict[str, Any]


def write_card(path: Path, card: ModelCard) -> None:
    """Write it as JSON. A cache that cannot be written costs a warning."""
    _replace(path, lambda file: file.write(json.dumps(asdict(card), indent=1).encode()))


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write named arrays. A cache that cannot be written costs a warning: the next start trains again."""
    _replace(path, lambda file: np.savez(file, **arrays))


def read_arrays(path: Path) -> dict[str, Any] | None:
    """The arrays in a file; None where there is none, or where it is damaged."""
    try:
        # np.load leaves a file open that it cannot read, unless the file is ours.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def drop(path: Path) -> None:
    """Delete a file that may be there."""
    with contextlib.suppress(OSError):
        path.unlink()


def _replace(path: Path, write: Any) -> None:
    """Write beside it, then rename: a reader sees the whole file or none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
            Path(beside).replace(path)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise
    except OSError as error:
        warnings.warn(f"nothing cached in {path.parent}: {error.strerror or error}", stacklevel=3)
