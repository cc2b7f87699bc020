"""Detection of a file's format by its beginning, and its rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson

from mark.domain.errors import Misconfigured
from mark.simulator.traces.formats.cloudwatch import is_console, read_console, read_data, read_statistics
from mark.simulator.traces.formats.content import Text
from mark.simulator.traces.formats.logs import ALB_LINE, COMBINED_ENTRY, read_alb, read_combined
from mark.simulator.traces.formats.prometheus import read_range
from mark.simulator.traces.formats.rows import Rows, TraceOptions
from mark.simulator.traces.formats.sources import Source
from mark.simulator.traces.formats.tables import find_layout, read_table

LOOKED_AT = 20
"""Lines by most of which a log is known."""
UNDERSTOOD = (
    "a CSV of rates, counts or instants, CloudWatch (CSV, get-metric-statistics, get-metric-data), Prometheus "
    "query_range, ALB, nginx and Apache access logs (docs/traces.md)"
)


def read_rows(source: Source, options: TraceOptions) -> Rows:
    """The rows of a file of any format. Misconfigured, one line, for all that is wrong with it."""
    text = Text(source)
    lines = text.lines()
    first = lines[0]
    after = lines[1 : LOOKED_AT + 1]  # a line of a log that was cut off may begin as JSON does
    if first.startswith(("{", "[")) and not any(_are_mostly(one, after) for one in (ALB_LINE, COMBINED_ENTRY)):
        return _read_document(text, options)
    if _are_mostly(ALB_LINE, lines):
        return read_alb(text, options)
    if _are_mostly(COMBINED_ENTRY, lines):
        return read_combined(text, options)
    if is_console(text):
        return read_console(text, options)
    layout = find_layout(text, options)
    if layout is None:
        raise text.wrong(text.first_line, f"{first[:60]!r} opens no known format; understood are {UNDERSTOOD}")
    return read_table(text, layout, options)


def _are_mostly(entry: re.Pattern[str], lines: Sequence[str]) -> bool:
    """True where the first line, or most of the first, are such entries: a log may begin with half a line."""
    are = [entry.match(line) is not None for line in lines[:LOOKED_AT] if line]
    return bool(are) and (are[0] or 2 * sum(are) > len(are))


def _read_document(text: Text, options: TraceOptions) -> Rows:
    try:
        document: Any = orjson.loads(text.whole())
    except orjson.JSONDecodeError as error:
        raise Misconfigured(
            f"{text.name} begins as JSON and is none ({error}); understood are {UNDERSTOOD}"
        ) from error
    if isinstance(document, dict):
        if "Datapoints" in document:
            return read_statistics(text, document, options)
        if "MetricDataResults" in document:
            return read_data(text, document, options)
        if "status" in document and ("data" in document or "error" in document):
            return read_range(text, document, options)
    seen = f"the keys {', '.join(list(document)[:5])}" if isinstance(document, dict) else "a list"
    raise Misconfigured(f"{text.name} is JSON with {seen[:80]}, no known export; understood are {UNDERSTOOD}")
