"""Child processes of a service and their liveness check: restarted after a crash or silence, ended together.

Each child sends heartbeats (`mark.live.local.heartbeat`). One that has sent some and then none for
HEARTBEAT_TIMEOUT_S, because it was stopped or hangs, is killed and started again as if it had crashed.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mark.store.published_status import RestartStatus

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
STEADY_S = 30.0
"""A child that ran this long is started again at once."""
STOP_S = 8.0
"""Time that children have to end before they are killed."""
HEARTBEAT_TIMEOUT_S = 15.0
"""A child without a heartbeat for so long is replaced: imports and large bodies stall one for a few seconds."""
GAP_S = 5.0
"""A supervisor that did not look for longer was stopped or busy itself, and judges nobody by that time."""


@dataclass(slots=True)
class _Child:
    name: str
    module: str
    arguments: tuple[str, ...]
    process: subprocess.Popen[bytes]
    line: socket.socket
    started_at: float
    last_beat_at: float | None = None
    pause_s: float = FIRST_PAUSE_S
    again_at: float | None = None
    timed_out: bool = False
    restarts: RestartStatus = field(default_factory=RestartStatus)


@dataclass(slots=True)
class Children:
    """Python processes by name, each `python -m module arguments`, logging to `logs`/name.log."""

    logs: Path
    _all: dict[str, _Child] = field(default_factory=dict)
    _looked_at: float = field(default_factory=time.monotonic)
    _fair_since: float = field(default_factory=time.monotonic)
    _unlogged: bool = False

    def start(self, name: str, module: str, arguments: Sequence[str]) -> None:
        """Start one."""
        process, line = self._spawn(name, module, tuple(arguments))
        self._all[name] = _Child(name, module, tuple(arguments), process, line, time.monotonic())

    def pids(self) -> dict[str, int]:
        """Their process numbers."""
        return {child.name: child.process.pid for child in self._all.values()}

    def restarts(self) -> dict[str, RestartStatus]:
        """Unexpected ends by process."""
        return {child.name: child.restarts for child in self._all.values()}

    def down(self) -> tuple[str, ...]:
        """Those that do not run now, or hang."""
        gone = (child for child in self._all.values() if child.timed_out or child.process.poll() is not None)
        return tuple(child.name for child in gone)

    def watch(self) -> tuple[str, ...]:
        """Start again what has ended or is silent, later each time it ends soon; the names of those started."""
        now = time.monotonic()
        if now - self._looked_at > GAP_S:
            self._fair_since = now
        self._looked_at = now
        return tuple(child.name for child in self._all.values() if self._look(child, now))

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
            child.line.close()
            del self._all[child.name]

    def _look(self, child: _Child, now: float) -> bool:
        """Look after one child; whether it was started again."""
        if child.process.poll() is None:
            self._end_if_timed_out(child, now)
            return False
        if child.again_at is None:
            self._note_end(child, now)
        if child.again_at is None or now < child.again_at:
            return False
        try:
            process, line = self._spawn(child.name, child.module, child.arguments)
        except OSError as error:
            child.pause_s = min(LONGEST_PAUSE_S, child.pause_s * 2)
            child.again_at = now + child.pause_s
            log.warning("a process cannot be started", extra={"child": child.name, "why": str(error)})
            return False
        child.line.close()
        child.process, child.line, child.started_at = process, line, now
        child.again_at, child.last_beat_at, child.timed_out = None, None, False
        return True

    def _note_end(self, child: _Child, now: float) -> None:
        steady = now - child.started_at > STEADY_S
        child.pause_s = FIRST_PAUSE_S if steady else min(LONGEST_PAUSE_S, child.pause_s * 2)
        child.again_at = now + child.pause_s
        status = child.process.returncode
        why = f"silent for {HEARTBEAT_TIMEOUT_S:g} s" if child.timed_out else ""
        child.restarts = child.restarts.after(status, why, now)
        log.warning("a process ended", extra={"child": child.name, "status": status, "why": why})

    def _end_if_timed_out(self, child: _Child, now: float) -> None:
        """Kill a child that has fallen silent; its end is noticed at the next look."""
        if _has_beaten(child.line):
            child.last_beat_at = now
        if child.last_beat_at is None or child.timed_out:
            return
        if now - max(child.last_beat_at, self._fair_since) > HEARTBEAT_TIMEOUT_S:
            child.timed_out = True
            log.warning(
                "a process missed its heartbeats and is replaced",
                extra={"child": child.name, "for_s": HEARTBEAT_TIMEOUT_S},
            )
            child.process.kill()  # SIGKILL ends a stopped process too

    def _chosen(self, names: Sequence[str] | None) -> Iterator[_Child]:
        for name in tuple(self._all) if names is None else names:
            if name in self._all:
                yield self._all[name]

    def _spawn(
        self, name: str, module: str, arguments: tuple[str, ...]
    ) -> tuple[subprocess.Popen[bytes], socket.socket]:
        """The process, and our end of its heartbeat's line. OSError where the kernel gives no process."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        log_fd = self._log(name)
        try:
            process = subprocess.Popen(  # noqa: S603 - our own modules
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=theirs.fileno(),
                stdout=log_fd,
                stderr=log_fd,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            if log_fd != subprocess.DEVNULL:
                os.close(log_fd)
        return process, ours

    def _log(self, name: str) -> int:
        """Log file of the child; where it cannot be opened a warning is logged and the child runs without one."""
        try:
            found = os.open(self.logs / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            if not self._unlogged:
                log.warning("processes start without a log", extra={"child": name, "why": str(error)})
            self._unlogged = True
            return subprocess.DEVNULL
        self._unlogged = False
        return found


def _has_beaten(line: socket.socket) -> bool:
    """True where a heartbeat has come since the last look."""
    with suppress(OSError):
        return bool(line.recv(4096))
    return False
