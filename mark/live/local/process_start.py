"""First steps of every process of a service: end when its parent ends, and log as JSON."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import sys
import threading

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


def set_on_signal(*numbers: signal.Signals) -> threading.Event:
    """Make an event that the first of these signals sets. Main thread only.

    The handler runs wherever the main thread is, so it must not set the event itself: a main thread that is about
    to wait for the event may hold its lock, and would wait for itself for ever. A SimpleQueue may be put to.
    """
    event, heard = threading.Event(), queue.SimpleQueue[int]()

    def run() -> None:
        heard.get()
        event.set()

    threading.Thread(target=run, name="signals", daemon=True).start()
    for number in numbers:
        signal.signal(number, lambda number, _frame: heard.put(number))
    return event
