"""The logs of a service's processes, kept from growing without end.

Each process appends to a file of its own through a descriptor that it was given, so a file cannot be replaced
under it: what is in it is copied to NAME.log.1, the file is cut to nothing, and what its writer appends next is
at its beginning. Where there is no room for a copy it is cut all the same: a log gives way to the service.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

LOG_BYTES = 8 * 1024 * 1024
"""A log that is longer is put aside."""
KEEP_OLD = 3
"""Earlier parts of a log that are kept, NAME.log.1 the latest."""
KEEP_FILES = 200
"""Logs of processes that have ended are removed, the oldest first, where there are more than these."""
TOTAL_BYTES = 512 * 1024 * 1024
"""All logs together: beyond this the earlier parts go, the oldest first."""
LOOK_S = 10.0


def begin_keeping_logs(logs: Path) -> None:
    """Look every few seconds, on a thread that ends with the process."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(LOOK_S):
            try:
                keep_logs(logs)
            except OSError as error:
                log.warning("logs are not rotated", extra={"why": str(error)})

    threading.Thread(target=run, name="logs", daemon=True).start()


def keep_logs(
    logs: Path, *, log_bytes: int = LOG_BYTES, keep_files: int = KEEP_FILES, total_bytes: int = TOTAL_BYTES
) -> None:
    """Look once: put aside what is long, and remove what is too much."""
    for path in sorted(logs.glob("*.log")):
        if _size(path) > log_bytes:
            rotate(path)
    _remove_ended(logs, keep_files)
    _remove_beyond(logs, total_bytes)


def rotate(path: Path) -> None:
    """Put the log aside as its first earlier part, drop the last one of those, and begin it anew."""
    for number in range(KEEP_OLD - 1, 0, -1):
        with suppress(FileNotFoundError):
            _part(path, number).replace(_part(path, number + 1))
    with path.open("r+b") as file:
        try:
            with _part(path, 1).open("wb") as copy:
                while file.tell() < os.fstat(file.fileno()).st_size:  # it may grow meanwhile
                    shutil.copyfileobj(file, copy)
        except OSError as error:
            _part(path, 1).unlink(missing_ok=True)
            log.warning("a log was cut without a copy", extra={"log": path.name, "why": str(error)})
        file.truncate(0)


def _part(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _remove_ended(logs: Path, keep: int) -> None:
    """Instances come and go, and each had a log: the youngest of those that nobody writes to stay."""
    paths = sorted(logs.glob("*.log"), key=_written_at)
    if len(paths) <= keep:
        return
    written = set(_open_files())
    for path in [path for path in paths if str(path.resolve()) not in written][: len(paths) - keep]:
        for number in range(1, KEEP_OLD + 1):
            _part(path, number).unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def _remove_beyond(logs: Path, total_bytes: int) -> None:
    parts = sorted(logs.glob("*.log.*"), key=_written_at, reverse=True)
    left = total_bytes - sum(_size(path) for path in logs.glob("*.log"))
    for path in parts:
        left -= _size(path)
        if left < 0:
            path.unlink(missing_ok=True)


def _open_files() -> Iterator[str]:
    """Files that processes of this user hold open."""
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):  # it ended while it was looked at, or is another user's
            for link in folder.iterdir():
                with suppress(OSError):
                    yield os.readlink(link)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
