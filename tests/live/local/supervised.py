"""A child process under test: `python -m tests.live.local.supervised beat|end STATUS`."""

from __future__ import annotations

import sys
import time

from mark.live.local.heartbeat import beat_on_thread

if __name__ == "__main__":
    if sys.argv[1] == "end":
        sys.exit(int(sys.argv[2]))
    beat_on_thread()
    time.sleep(600)
