"""Logs as JSON lines: time, process, level, logger, message, and whatever was given as `extra`."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import Any, TextIO

from mark.domain.documents import plain_number

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


LONGEST_LINE = 64 * 1024
"""Characters that wait for their line's end."""


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, process: str, model: str) -> None:
        super().__init__()
        self._usual = {"model": model} if model else {}
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The line of one record."""
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "process": self._process,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._usual,
            **{key: value for key, value in vars(record).items() if key not in _USUAL},
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=_shown)


def _shown(value: object) -> object:
    """Encode what JSON has no form for: numpy's numbers as numbers, anything else as text."""
    found = plain_number(value)
    return found if isinstance(found, (bool, int, float)) else str(value)


def log_json(process: str, level: int = logging.INFO, *, model: str = "") -> logging.Handler:
    """Log to stderr, a JSON object a line; `process` names who speaks, `model` whose process it is, if one's."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process, model))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    return handler


class PrintedLog(io.TextIOBase):
    """A standard stream whose lines are logged: what a model prints is then known to be the model's.

    Bytes that are written to its `buffer` or its descriptor go where they always went.
    """

    def __init__(self, stream: TextIO, handler: logging.Handler) -> None:
        """handler: not by the root logger, whose handlers a model may replace by one that prints here."""
        self._stream, self._handler = stream, handler
        self._line, self._lock = "", threading.Lock()

    def __getattr__(self, name: str) -> Any:
        """All else is the stream's: `buffer`, `reconfigure`."""
        return getattr(self._stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the stream."""
        return self._stream.encoding

    def fileno(self) -> int:
        """That of the stream."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, text: str) -> int:
        """Log the lines that are whole now."""
        with self._lock:
            *whole, self._line = (self._line + text).replace("\r", "\n").split("\n")
            if len(self._line) > LONGEST_LINE:
                whole, self._line = [*whole, self._line], ""
        for line in filter(None, whole):
            self._handler.handle(logging.LogRecord("printed", logging.INFO, "", 0, line, None, None))
        return len(text)
