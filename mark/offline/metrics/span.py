"""The span that a store of metrics is asked for, and the trace of its answer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mark.domain.errors import Misconfigured
from mark.report.formatting import format_duration
from mark.simulator.traces.formats.rows import Rows, TraceOptions
from mark.simulator.traces.formats.times import moment
from mark.simulator.traces.trace import Trace, trace_of_rows

DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Whole steps [start_at, end_at), epoch seconds, multiples of the step."""

    start_at: int
    end_at: int
    step_s: int

    @classmethod
    def until(cls, now: float, days: float, step_s: int) -> Span:
        """The last days before `now`, without the step that is not over. Misconfigured where that is none."""
        if step_s < 1:
            raise Misconfigured(f"--step-s must be 1 s or more, not {step_s}")
        if not (math.isfinite(days) and 2 * step_s <= days * DAY_S <= now):
            raise Misconfigured(
                f"--days must be two steps of {step_s} s or more, and not before 1970: not {days:g}"
            )
        end_at = math.floor(now / step_s) * step_s
        return cls(start_at=end_at - math.floor(days * DAY_S / step_s) * step_s, end_at=end_at, step_s=step_s)

    def ends(self, most: int) -> Iterator[tuple[int, int]]:
        """First and last end of a step of each page of at most so many steps, in order."""
        for first in range(self.start_at + self.step_s, self.end_at + 1, most * self.step_s):
            yield first, min(first + (most - 1) * self.step_s, self.end_at)

    def trace(self, name: str, rows: Rows, options: TraceOptions) -> Trace:
        """The trace of what was answered, with a note where that begins late or ends early."""
        trace = trace_of_rows(name, name, [rows], options)
        late_s = trace.start_at - self.start_at
        early_s = self.end_at - trace.start_at - trace.duration_s
        notes = tuple(
            f"its data {word} at {moment(at)}, {format_duration(round(missing_s))} {than} than asked for"
            for word, than, at, missing_s in (
                ("begins", "later", trace.start_at, late_s),
                ("ends", "earlier", trace.start_at + trace.duration_s, early_s),
            )
            if missing_s > self.step_s
        )
        return replace(trace, notes=(*trace.notes, *notes))
