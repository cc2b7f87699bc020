"""Waiting for a condition, with a deadline that a busy machine keeps."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 300.0


def until(check: Callable[[], object]) -> None:
    """Come back when `check` holds."""
    end = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < end, f"not within {PATIENCE_S:g} s"
        time.sleep(0.02)
