"""Logs as JSON lines: time, process, level, logger, message, and whatever was given as `extra`."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from mark.domain.documents import plain_number

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The line of one record."""
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "process": self._process,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _USUAL},
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=_shown)


def _shown(value: object) -> object:
    """Encode what JSON has no form for: numpy's numbers as numbers, anything else as text."""
    found = plain_number(value)
    return found if isinstance(found, (bool, int, float)) else str(value)


def log_json(process: str, level: int = logging.INFO) -> None:
    """Log to stderr, a JSON object a line; `process` names who speaks."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
