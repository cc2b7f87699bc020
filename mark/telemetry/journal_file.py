"""The journal as a file of JSON lines, or nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from mark.controller.journal import Header, entry_line, header_line
from mark.controller.state import Decision, Observation
from mark.domain.errors import Misconfigured
from mark.domain.fleet import FleetView


class JournalFile:
    """Appends each tick to `path` as it happens, so that an interrupted run keeps what it decided."""

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        try:
            self._file = path.open("wb")
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            self._write(header_line(header))
        except Misconfigured:
            with suppress(OSError):  # closing tries to write once more
                self._file.close()
            raise

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        """Write one tick."""
        self._write(entry_line(before, seen, decision))

    def __enter__(self) -> JournalFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.close()
        except OSError as failed:
            raise _unwritable(self._path, failed) from failed

    def _write(self, line: bytes) -> None:
        try:
            self._file.write(line + b"\n")
            self._file.flush()
        except OSError as error:
            raise _unwritable(self._path, error) from error


def journal_lines(path: Path) -> Iterator[bytes]:
    """The lines of a journal file."""
    try:
        with path.open("rb") as file:
            yield from file
    except OSError as error:
        raise Misconfigured(f"cannot read the journal {path}: {error.strerror}") from error


def _unwritable(path: Path, error: OSError) -> Misconfigured:
    return Misconfigured(f"cannot write the journal {path}: {error.strerror}; free the disk or name another --out")
