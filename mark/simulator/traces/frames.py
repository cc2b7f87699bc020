"""Traces of pandas' objects: each is read as the CSV that it writes, so the same rows mean the same load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mark.domain.errors import Misconfigured
from mark.simulator.traces.formats.detect import read_rows
from mark.simulator.traces.formats.rows import TraceOptions
from mark.simulator.traces.formats.sources import Source
from mark.simulator.traces.trace import Trace, trace_of_rows


class Frame(Protocol):
    """A DataFrame or a Series. What else they have is pandas' own."""

    @property
    def index(self) -> Any:
        """The labels of the rows."""

    @property
    def to_csv(self) -> Callable[..., str]:
        """Writes the rows as text."""


def trace_of_frame(frame: Frame, options: TraceOptions) -> Trace:
    """The trace of a DataFrame or a Series. Misconfigured, one line, as of a file; the header is line 1."""
    name = type(frame).__name__
    text = _csv(frame)
    rows = read_rows(Source(name=name, open=lambda: iter([text.encode()])), options)
    return trace_of_rows(name, name, [rows], options)


def _csv(frame: Frame) -> str:
    # pandas numbers rows that have no label of their own: 0, 1, 2
    numbered = getattr(frame.index, "step", None) == 1
    label = {} if numbered else {"index_label": frame.index.name or "time"}
    if hasattr(frame, "columns"):
        return frame.to_csv(index=not numbered, **label)
    if not numbered:
        return frame.to_csv(header=[getattr(frame, "name", None) or "value"], **label)
    if str(getattr(frame, "dtype", "")).startswith("datetime"):
        return frame.to_csv(index=False, header=["time"])
    raise Misconfigured("a Series of numbers needs their times as its index, such as pandas.date_range gives")
