"""First steps of every process of a service: end when its parent ends, and log as JSON."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from mark.telemetry.structured_logs import log_json

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when its parent dies."""


def begin(process: str, *, parent: int | None = None) -> None:
    """Name the process in its logs and tie its life to its parent's; Linux only, elsewhere it outlives a crash."""
    log_json(process)
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if parent is not None and os.getppid() != parent:  # it died before we asked
        sys.exit(0)
