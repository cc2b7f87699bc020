"""`mark logs`: what the processes of a service on this machine logged, one model's alone where it is named.

Each line names its model (`telemetry/structured_logs.py`). A line that is no JSON, as a library in C prints it, is
the model's that has the instance to itself; on a shared instance it is nobody's.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from os import SEEK_END
from pathlib import Path
from typing import Any

from mark.config.served import model_names
from mark.domain.errors import Misconfigured, unknown
from mark.live.local.log_files import KEEP_OLD
from mark.live.local.run_dir import RunFolder
from mark.report.terminal import show

POLL_S = 0.5
USUAL = frozenset({"at", "process", "level", "logger", "message", "model", "error"})


@dataclass(frozen=True, slots=True, order=True)
class LogLine:
    """One line; `at` is that of the line before it where it has none."""

    at: str
    place: int
    source: str = field(compare=False)
    document: dict[str, Any] = field(compare=False)

    @property
    def words(self) -> str:
        """For a reader: time, process, what it said."""
        told = self.document
        process = told.get("process", self.source)
        who = self.source if process == self.source else f"{self.source} {process}"
        level = told.get("level", "info")
        more = "".join(f" {key}={value}" for key, value in told.items() if key not in USUAL)
        error = f"\n{told['error']}" if "error" in told else ""
        loud = "" if level == "info" else f"{level}: "
        return f"{self.at[:23].replace('T', ' ')} {who}: {loud}{told['message']}{more}{error}"


class _File:
    """A process's log, read as far as it has come. model: whose lines are wanted; None for all."""

    def __init__(self, path: Path, model: str | None) -> None:
        self._path, self._model = path, model
        self._read_bytes, self._rest, self._place, self._at = 0, b"", 0, ""
        #: The model of an instance that is one model's alone.
        self._owner = ""

    def earlier(self) -> Iterator[LogLine]:
        """The lines of the parts that were put aside."""
        for number in range(KEEP_OLD, 0, -1):
            with (
                suppress(FileNotFoundError),
                self._path.with_name(f"{self._path.name}.{number}").open("rb") as part,
            ):
                yield from self._lines(line.rstrip(b"\n") for line in part)

    def new(self) -> Iterator[LogLine]:
        """The lines since the last call; from the beginning where the log was put aside meanwhile."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, SEEK_END) < self._read_bytes:
                    self._read_bytes, self._rest = 0, b""
                file.seek(self._read_bytes)
                *whole, self._rest = (self._rest + file.read()).split(b"\n")
                self._read_bytes = file.tell()
        except FileNotFoundError:
            return
        yield from self._lines(whole)

    def _lines(self, lines: Iterable[bytes]) -> Iterator[LogLine]:
        for line in lines:
            told = _document(line)
            self._at, self._place = told.get("at", self._at), self._place + 1
            if told.get("process") == self._path.stem:
                self._owner = told.get("model", "")
            model = told.get("model", "" if "process" in told else self._owner)
            if self._model in (None, model):
                yield LogLine(self._at, self._place, self._path.stem, told)


def _document(line: bytes) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError:
        told = None
    if isinstance(told, dict) and {"at", "process", "message"} <= told.keys() and isinstance(told["at"], str):
        return told
    return {"message": line.decode("utf-8", "replace")}


def show_logs(service: str, *, model: str | None, lines: int, follow: bool) -> None:
    """Print the last lines, and with `follow` those that come until Ctrl-C or the service's end."""
    folder = RunFolder.of(service)
    if not folder.logs.is_dir():
        raise Misconfigured(f"the service {service} has left no logs in {folder.logs}; `mark up` starts one")
    _check_model(folder, service, model)
    files: dict[Path, _File] = {}
    last: list[LogLine] = []
    for path in sorted(folder.logs.glob("*.log")):
        file = files[path] = _File(path, model)
        last += deque(chain(file.earlier(), file.new()), maxlen=lines)
    show(*(line.words for line in sorted(last)[-lines:]))
    while follow and folder.running() is not None:
        time.sleep(POLL_S)
        for path in sorted(folder.logs.glob("*.log")):
            files.setdefault(path, _File(path, model))
        show(*(line.words for line in sorted(chain.from_iterable(file.new() for file in files.values()))))


def _check_model(folder: RunFolder, service: str, model: str | None) -> None:
    """Misconfigured where the service serves no such model."""
    with suppress(OSError, ValueError):  # settings that another version wrote
        names = model_names(folder.settings())
        if model not in (None, *names):
            raise unknown(f"model of {service}", model or "", names)
