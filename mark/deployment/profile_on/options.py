"""Options of `mark profile --on`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOnOptions:
    """Flags of `mark profile --on`.

    `types`: instance types, and `lambda`. `model` None: the first that is no emulation. `batches` None: the usual
    sizes that the time has room for; sizes that are given are all measured.
    """

    types: tuple[str, ...]
    model: str | None
    max_usd: float
    batches: tuple[int, ...] | None
    seconds: float
    body: Path | None
    to: Path | None
    yes: bool
