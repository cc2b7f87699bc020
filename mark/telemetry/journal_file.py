"""Journals as files of JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from mark.controller.hosts.placement_journal import (
    PlacementDecision,
    PlacementHeader,
    decision_line,
    placement_header_line,
)
from mark.controller.journal import Header, entry_line, header_line
from mark.controller.state import Decision, Observation
from mark.domain.errors import Misconfigured, file_errors
from mark.domain.fleet.instances import FleetView


class LineFile:
    """Writes each line to `path` as it comes, so that an interrupted run keeps what it decided."""

    def __init__(self, path: Path, first: bytes) -> None:
        self._path = path
        try:
            self._file = path.open("wb")
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            self._write(first)
        except Misconfigured:
            with suppress(OSError):  # closing tries to write once more
                self._file.close()
            raise

    def __enter__(self) -> Self:
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


class JournalFile(LineFile):
    """The journal of one model."""

    def __init__(self, path: Path, header: Header) -> None:
        super().__init__(path, header_line(header))

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        """Write one tick."""
        self._write(entry_line(before, seen, decision))


class PlacementFile(LineFile):
    """The journal of a service's placements."""

    def __init__(self, path: Path, header: PlacementHeader) -> None:
        super().__init__(path, placement_header_line(header))

    def append(self, decision: PlacementDecision) -> None:
        """Write one decision."""
        self._write(decision_line(decision))


def journal_lines(path: Path) -> Iterator[bytes]:
    """The lines of a journal file."""
    with file_errors(f"read the journal {path}"), path.open("rb") as file:
        yield from file


def whole_lines(path: Path) -> Iterator[bytes]:
    """The same without the last one where a run was killed in the middle of it."""
    return (line for line in journal_lines(path) if line.endswith(b"\n"))


def _unwritable(path: Path, error: OSError) -> Misconfigured:
    return Misconfigured(f"cannot write the journal {path}: {error.strerror}; free the disk or name another --out")
