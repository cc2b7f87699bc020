"""What nobody foresaw: an exception on a request's way is told in the log, counted, and costs that request alone.

Whoever calls the code that raised answers the request; here is only told what it was. A place that fails over and
over gives its whole traceback once a minute, and one line for each request between.
"""

from __future__ import annotations

import logging
import math
import time

INTERNAL_ERROR = "internal error; see the log for this request id"
"""What the client is told, with status 500."""
WHOLE_EVERY_S = 60.0
Place = tuple[type[BaseException], str, int]


class UnexpectedErrors:
    """The defects of one process, as its metrics count them."""

    def __init__(self, log: logging.Logger) -> None:
        self.count = 0
        self._log = log
        self._told: dict[Place, float] = {}

    def note(self, error: BaseException, **fields: object) -> None:
        """Log and count it. fields: whose request it was, as the log's line has them."""
        self.count += 1
        place, now = _place(error), time.monotonic()
        whole = now - self._told.get(place, -math.inf) >= WHOLE_EVERY_S
        if whole:
            self._told[place] = now
        text = f"{type(error).__name__}: {error}"[:500]
        self._log.error("internal error", exc_info=error if whole else None, extra={"reason": text, **fields})


def _place(error: BaseException) -> Place:
    """Where it was raised: there are only so many such places."""
    trace = error.__traceback__
    if trace is None:
        return type(error), "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return type(error), trace.tb_frame.f_code.co_filename, trace.tb_lineno
