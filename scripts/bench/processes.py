"""Weight of each process by import alone: seconds, memory and modules, in fresh interpreters.

The least of some runs: what else the machine does can only add. Modules of extras count where they are installed
(OpenTelemetry, which redis-py imports where it finds it).
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

RUNS = 5
MEASURE = """
import time
began = time.perf_counter()
import {module}
took = time.perf_counter() - began
import resource, sys
peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(took, peak_kib / 1024, len(sys.modules))
"""


@dataclass(frozen=True, slots=True)
class Goal:
    """A process's entry module, and the most that its import may take."""

    module: str
    most_s: float
    most_mib: float


GOALS = {
    "gateway": Goal("mark.live.processes.gateway", 0.5, 65),
    "agent": Goal("mark.live.processes.agent", 0.35, 50),
    "controller": Goal("mark.live.processes.controller", 2.0, 130),
    "mark --version": Goal("mark.cli.main", 0.25, 50),
}


def measured(module: str) -> tuple[float, float, int]:
    """Seconds, MiB and modules of importing it, the least of some runs."""
    runs = []
    for _ in range(RUNS):
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", MEASURE.format(module=module)], capture_output=True, text=True, check=True
        )
        seconds, mib, modules = done.stdout.split()
        runs.append((float(seconds), float(mib), int(modules)))
    return min(run[0] for run in runs), min(run[1] for run in runs), runs[0][2]


def main() -> None:
    """Print the table."""
    print(f"{'import':16}{'s':>7}{'at most':>9}{'MiB':>7}{'at most':>9}{'modules':>9}")
    for name, goal in GOALS.items():
        seconds, mib, modules = measured(goal.module)
        print(f"{name:16}{seconds:7.2f}{goal.most_s:9.2f}{mib:7.0f}{goal.most_mib:9.0f}{modules:9}")


if __name__ == "__main__":
    main()
