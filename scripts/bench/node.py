"""A lean node's processes within a limit of memory: `python -m scripts.bench.node 260 200`, MiB each.

Gateway, controller and store of one model start again in a memory cgroup and take load. Printed is what they used
at most, pages of shared libraries apart, and whether all lived. It needs root and a machine that mounts cgroups.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.bench.running import Running, running_service

ROOTS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
"""Of version 1 and of version 2."""
FILES = {"memory.limit_in_bytes": "memory.usage_in_bytes", "memory.max": "memory.current"}
"""A group's file of its limit, and of what it uses, by version."""
NODE = ("gateway", "controller", "store")
RPS, LOAD_S, START_S, LOOK_S, MIB = 100.0, 60.0, 25.0, 0.5, 2**20


def main() -> None:
    """Measure with each limit."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.node", description=__doc__.splitlines()[0])
    parser.add_argument("limits", nargs="+", type=int, metavar="MIB")
    for limit in parser.parse_args().limits:
        print(f"{limit} MiB: {measured(limit)}", flush=True)


def measured(limit_mib: int) -> str:
    """What a service's node did within the limit."""
    with memory_group(limit_mib) as group, running_service(1, rps=RPS, gateways=1, controllers=1) as service:
        (group / "cgroup.procs").write_text(str(service.processes["supervisor"]))  # what it starts again is within
        for pid in _of_node(service).values():
            os.kill(pid, signal.SIGKILL)
        time.sleep(START_S)
        began, most = _of_node(service), 0
        load = service.load(RPS, LOAD_S)
        while load.poll() is None:
            most = max(most, _used(group))
            time.sleep(LOOK_S)
        lost = [name for name, pid in _of_node(service).items() if pid != began.get(name)]
    lived = f"{', '.join(lost)} ended" if lost else "all processes lived"
    return f"used {most / MIB:.0f} MiB at {RPS:g} requests/s, {lived}"


@contextmanager
def memory_group(limit_mib: int) -> Iterator[Path]:
    """A cgroup with that limit, removed afterwards; the command ends where none can be made."""
    for root in ROOTS:
        group = root / f"mark-node-{os.getpid()}"
        try:
            group.mkdir()
            limit = next(name for name in FILES if (group / name).exists())
            (group / limit).write_text(str(limit_mib * MIB))
        except (OSError, StopIteration):
            if group.exists():
                group.rmdir()
            continue
        yield group
        group.rmdir()
        return
    sys.exit("no memory cgroup can be made here: run it as root on a machine that mounts them")


def _used(group: Path) -> int:
    return next(int((group / used).read_text()) for used in FILES.values() if (group / used).exists())


def _of_node(service: Running) -> dict[str, int]:
    return {name: pid for name, pid in service.processes.items() if name.startswith(NODE)}


if __name__ == "__main__":
    main()
