"""The lock on a service's folder: one service at a time, from `mark up` until its supervisor has ended.

It is a lock of the kernel's (flock) on a file in the folder, so a stale one does not exist: it is gone with the
last process that holds it. The file says which process that is.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from mark.domain.errors import Misconfigured

NAME = "lock"
LOCKED_WITHIN_S = 0.5
"""Whoever only looks whether it is held holds it for an instant."""
POLL_S = 0.02


class ServiceLock:
    """Held while this object, or a process that was handed `fd`, keeps the file open."""

    def __init__(self, folder: Path, service: str) -> None:
        """Take it. Misconfigured where another process has it; OSError where the file cannot be made."""
        self.fd = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + LOCKED_WITHIN_S
        while not _try(self.fd, fcntl.LOCK_EX):
            if time.monotonic() > until:
                pid = _read_pid(self.fd)
                self.close()
                raise Misconfigured(
                    f"the service {service} is being started already: process {pid or 'unknown'} holds {folder}; "
                    f"`mark down --name {service}` ends it, service.name in the settings names another"
                )
            time.sleep(POLL_S)
        self.publish(os.getpid())

    def publish(self, pid: int) -> None:
        """Say which process holds it, as far as a full disk lets us."""
        with suppress(OSError):
            os.ftruncate(self.fd, 0)
            os.pwrite(self.fd, str(pid).encode(), 0)

    def is_in(self, folder: Path) -> bool:
        """True while its file is still the folder's: whoever held it before may have removed it."""
        try:
            return os.path.samestat(os.fstat(self.fd), (folder / NAME).stat())
        except OSError:
            return False

    def close(self) -> None:
        """Hold it no more ourselves; it is not undone for a process that was handed `fd`."""
        os.close(self.fd)

    def __enter__(self) -> ServiceLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def lock_holder(folder: Path) -> int | None:
    """The process that holds the folder; None where none does, 0 where it could not say."""
    try:
        fd = os.open(folder / NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return None if _try(fd, fcntl.LOCK_SH) else _read_pid(fd)
    finally:
        os.close(fd)


def _try(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_pid(fd: int) -> int:
    text = os.pread(fd, 32, 0)
    return int(text) if text.isdigit() else 0
