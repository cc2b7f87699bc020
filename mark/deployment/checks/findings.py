"""Findings of an account's checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "error", "unknown", "skipped"]
"""Nothing to do, could be better, must be fixed, could not be checked, is not wanted by the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of one check."""

    check: str
    state: State
    #: What was found.
    message: str
    #: What to do about it; empty where nothing is to be done.
    remedy: str = ""
