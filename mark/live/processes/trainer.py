"""A trainer's process: PARENT. It makes the forecaster of the task on stdin, which the cache then holds."""

from __future__ import annotations

import os
import sys

from mark.domain.errors import MarkError
from mark.live.forecasting.forecaster_training import read_task
from mark.live.local.process_start import begin
from mark.plugins.load import build_forecaster

NICE = 10
"""It yields to whatever serves requests or decides."""


def main() -> int:
    """Train; the exit status. What is wrong is one line on stdout."""
    os.nice(NICE)
    task = read_task(sys.stdin.buffer.read())
    try:
        task.cache_dir.mkdir(parents=True, exist_ok=True)
        build_forecaster(task.forecaster, task.setup)
    except (MarkError, OSError) as error:
        print(" ".join(str(error).split()))  # noqa: T201 - the parent reads it
        return 2
    return 0


if __name__ == "__main__":
    begin("trainer", parent=int(sys.argv[1]))
    sys.exit(main())
