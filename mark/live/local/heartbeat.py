"""A supervised process's heartbeat: a byte a second to the supervisor, which holds the other end of its stdin.

An event loop beats for itself, so that one which stands still is noticed, not only a process that was stopped.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import time
from contextlib import suppress

BEAT_S = 1.0
LINE = 0
"""Standard input: a socket where a supervisor listens, anything else where none does."""


def beat() -> None:
    """Send one beat; nothing where nobody listens. A supervisor that does not read is not waited for."""
    with suppress(OSError):
        if stat.S_ISSOCK(os.fstat(LINE).st_mode):
            os.set_blocking(LINE, False)
            os.write(LINE, b".")


async def keep_beating() -> None:
    """Beat from the running event loop until cancelled."""
    while True:
        beat()
        await asyncio.sleep(BEAT_S)


def beat_on_thread() -> None:
    """Beat for a process whose work is not an event loop's, as long as it lives."""

    def run() -> None:
        while True:
            beat()
            time.sleep(BEAT_S)

    threading.Thread(target=run, name="heartbeat", daemon=True).start()
