"""Findings of an account's checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Found = Literal["well", "warn", "mend", "unknown", "off"]
"""It is well, could be better, must be mended, could not be asked, is not wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`said` is what was found, `do` what to do about it; empty where nothing is to be done."""

    check: str
    state: Found
    said: str
    do: str = ""
