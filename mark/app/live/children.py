"""The child processes of a service: started, watched, started again after a crash, ended together."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
STEADY_S = 30.0
"""A child that ran this long is started again at once."""
STOP_S = 8.0
"""How long children have to end before they are killed."""


@dataclass(slots=True)
class _Child:
    name: str
    module: str
    arguments: tuple[str, ...]
    process: subprocess.Popen[bytes]
    started_at: float
    pause_s: float = FIRST_PAUSE_S
    again_at: float | None = None


@dataclass(slots=True)
class Children:
    """Python processes by name, each `python -m module arguments`, logging to `logs`/name.log."""

    logs: Path
    _all: dict[str, _Child] = field(default_factory=dict)

    def start(self, name: str, module: str, arguments: Sequence[str]) -> None:
        """Start one."""
        process = self._spawn(name, module, tuple(arguments))
        self._all[name] = _Child(name, module, tuple(arguments), process, time.monotonic())

    def pids(self) -> dict[str, int]:
        """Their process numbers."""
        return {child.name: child.process.pid for child in self._all.values()}

    def watch(self) -> bool:
        """Start again what has ended, later each time it ends soon; says whether one was started."""
        now = time.monotonic()
        started = False
        for child in self._all.values():
            if child.process.poll() is None:
                continue
            if child.again_at is None:
                steady = now - child.started_at > STEADY_S
                child.pause_s = FIRST_PAUSE_S if steady else min(LONGEST_PAUSE_S, child.pause_s * 2)
                child.again_at = now + child.pause_s
                log.warning("a process ended", extra={"child": child.name, "status": child.process.returncode})
            if now >= child.again_at:
                child.process = self._spawn(child.name, child.module, child.arguments)
                child.started_at, child.again_at = now, None
                started = True
        return started

    def stop(self, names: Sequence[str] | None = None) -> None:
        """End these (all) by SIGTERM, together, and by SIGKILL what has not ended in time."""
        chosen = list(self._chosen(names))
        for child in chosen:
            if child.process.poll() is None:
                child.process.terminate()
        until = time.monotonic() + STOP_S
        for child in chosen:
            try:
                child.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("a process had to be killed", extra={"child": child.name})
                child.process.kill()
                child.process.wait()
            del self._all[child.name]

    def _chosen(self, names: Sequence[str] | None) -> Iterator[_Child]:
        for name in tuple(self._all) if names is None else names:
            if name in self._all:
                yield self._all[name]

    def _spawn(self, name: str, module: str, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        with (self.logs / f"{name}.log").open("ab") as log_file:
            return subprocess.Popen(  # noqa: S603 - our own modules
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
            )
