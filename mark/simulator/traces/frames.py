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
    text = _csv(frame, options)
    rows = read_rows(Source(name=name, open=lambda: iter([text.encode()])), options)
    return trace_of_rows(name, name, [rows], options)


def _csv(frame: Frame, options: TraceOptions) -> str:
    if getattr(frame.index, "nlevels", 1) > 1:
        raise Misconfigured("the rows have an index of several levels; have one of times, or none: reset_index()")
    # numbers without a name are what pandas counts rows by, also where some were taken out
    is_time = frame.index.name is not None or not str(frame.index.dtype).startswith(("int", "uint", "float"))
    label = {"index_label": frame.index.name or "time"} if is_time else {}
    if hasattr(frame, "columns"):
        return frame.to_csv(index=is_time, **label)
    if str(getattr(frame, "dtype", "")).startswith("datetime"):
        return frame.to_csv(index=False, header=["time"])
    if not is_time:
        raise Misconfigured("a Series of numbers needs their times as its index, such as pandas.date_range gives")
    name = getattr(frame, "name", None)
    if name is None and options.rows is None:
        raise Misconfigured("a Series without a name holds counts or rates: give rows='counts' or rows='rates'")
    return frame.to_csv(header=[name or "value"], **label)
