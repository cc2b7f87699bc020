"""Waiting for a condition, with a deadline that a busy machine keeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 300.0


def until(look: Callable[[], Any]) -> Any:
    """Look again and again; the first find that is true."""
    end = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < end, f"not within {PATIENCE_S:g} s"
        time.sleep(0.02)
    return found


def is_gone(pid: int) -> bool:
    """True where that process has ended; whether it was reaped is up to this machine's init."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"
