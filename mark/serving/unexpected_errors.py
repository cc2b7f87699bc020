"""Unexpected exceptions: logged, counted, and fatal to the one request on whose way they were raised.

The caller of the code that raised answers the request (500, "internal error"). A place that fails over and over
logs its traceback once a minute, and one line for each request between.
"""

from __future__ import annotations

import logging
import math
import time

INTERNAL_ERROR = "internal error; see the log for this request id"
"""Text of the response with status 500."""
TRACEBACK_EVERY_S = 60.0
Place = tuple[type[BaseException], str, int]


class UnexpectedErrors:
    """Counter and log of one process's unexpected exceptions."""

    def __init__(self, log: logging.Logger) -> None:
        self.count = 0
        self._log = log
        self._logged_at: dict[Place, float] = {}

    def note(self, error: BaseException, **fields: object) -> None:
        """Log and count an exception. fields: of the log line, such as the request's id."""
        self.count += 1
        place, now = _place(error), time.monotonic()
        with_traceback = now - self._logged_at.get(place, -math.inf) >= TRACEBACK_EVERY_S
        if with_traceback:
            self._logged_at[place] = now
        text = f"{type(error).__name__}: {error}"[:500]
        self._log.error(
            "internal error", exc_info=error if with_traceback else None, extra={"reason": text, **fields}
        )


def _place(error: BaseException) -> Place:
    """The type and line that raised: a bounded set of keys."""
    trace = error.__traceback__
    if trace is None:
        return type(error), "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return type(error), trace.tb_frame.f_code.co_filename, trace.tb_lineno
