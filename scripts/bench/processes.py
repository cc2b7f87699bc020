"""Weight of each process: by import alone in fresh interpreters, then in a service that runs.

The least of some runs: what else the machine does can only add. Modules of extras count where they are installed
(OpenTelemetry, which redis-py imports where it finds it).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass

from scripts.bench.running import Memory, most_of, run_service

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


LOAD_RPS = 100.0
ONE_MODEL_MIB = {"gateway": 100.0, "agent": 65.0, "controller": 180.0}
"""The most RSS that each process of a service with one model may have under that load."""
OWN_PROCESSES, OWN_MIB, TENANT_MIB = 8, 1024.0, 25.0
"""The most processes of MArk for many models, the most PSS of them together, and of one model's process."""
FURTHER_MODEL_MIB = 5.0
"""The most that a further model may add to a controller."""
MODELS = 20


def running(seconds: float) -> None:
    """Print the memory of a service's processes under load, with one model and with many."""
    print(f"\n{f'{LOAD_RPS:g} requests/s, {seconds:g} s':32}{'RSS':>7}{'at most':>9}{'PSS':>7}{'peak':>7}")
    controllers: list[float] = []
    found: dict[str, Memory] = {}
    for models in (1, MODELS):
        found = run_service(models, rps=LOAD_RPS, seconds=seconds)
        for process, most_mib in ONE_MODEL_MIB.items():
            memory = most_of(found, process)
            goal = most_mib + (FURTHER_MODEL_MIB * (models - 1) if process == "controller" else 0)
            row = f"{process}, {models} model{'s' if models > 1 else ''}"
            print(f"{row:32}{memory.rss:7.0f}{goal:9.0f}{memory.pss:7.0f}{memory.peak:7.0f}")
        controllers.append(most_of(found, "controller").rss)
    further = (controllers[1] - controllers[0]) / (MODELS - 1)
    print(f"{'controller, each further model':32}{further:7.1f}{FURTHER_MODEL_MIB:9.1f}")
    own = [memory.pss for name, memory in found.items() if not name.startswith(("aws", "tenant"))]
    tenants = [memory.pss for name, memory in found.items() if name.startswith("tenant")]
    print(f"{f'PSS of {len(own)} processes of MArk, at most {OWN_PROCESSES}':39}{OWN_MIB:9.0f}{sum(own):7.0f}")
    print(f"{f'PSS of the largest of {len(tenants)} tenants':39}{TENANT_MIB:9.0f}{max(tenants, default=0):7.0f}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the load; 0: by import alone")
    load_s: float = parser.parse_args().seconds
    print(f"{'import':16}{'s':>7}{'at most':>9}{'MiB':>7}{'at most':>9}{'modules':>9}")
    for name, goal in GOALS.items():
        seconds, mib, modules = measured(goal.module)
        print(f"{name:16}{seconds:7.2f}{goal.most_s:9.2f}{mib:7.0f}{goal.most_mib:9.0f}{modules:9}")
    if load_s > 0:
        running(load_s)


if __name__ == "__main__":
    main()
