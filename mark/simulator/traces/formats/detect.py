"""Which format a file is, told by how it begins, and its rows."""

from __future__ import annotations

from typing import Any

import orjson

from mark.domain.errors import Misconfigured
from mark.simulator.traces.formats.cloudwatch import is_console, read_console, read_data, read_statistics
from mark.simulator.traces.formats.content import Text
from mark.simulator.traces.formats.logs import ALB_LINE, COMBINED_ENTRY, read_alb, read_combined
from mark.simulator.traces.formats.prometheus import read_range
from mark.simulator.traces.formats.rows import Asked, Rows
from mark.simulator.traces.formats.sources import Source
from mark.simulator.traces.formats.tables import find_layout, read_table

UNDERSTOOD = (
    "a CSV of rates, counts or instants, CloudWatch (CSV, get-metric-statistics, get-metric-data), Prometheus "
    "query_range, ALB, nginx and Apache access logs (docs/traces.md)"
)


def read_rows(source: Source, asked: Asked) -> Rows:
    """The rows of a file of any format. Misconfigured, one line, for all that is wrong with it."""
    text = Text(source)
    first = text.lines()[0]
    if first.startswith(("{", "[")):
        return _read_document(text, asked)
    if ALB_LINE.match(first):
        return read_alb(text, asked)
    if COMBINED_ENTRY.match(first):
        return read_combined(text, asked)
    if is_console(text):
        return read_console(text, asked)
    layout = find_layout(text, asked)
    if layout is None:
        raise text.wrong(text.first_line, f"{first[:60]!r} opens no known format; understood are {UNDERSTOOD}")
    return read_table(text, layout, asked)


def _read_document(text: Text, asked: Asked) -> Rows:
    try:
        document: Any = orjson.loads(text.whole())
    except orjson.JSONDecodeError as error:
        raise Misconfigured(
            f"{text.name} begins as JSON and is none ({error}); understood are {UNDERSTOOD}"
        ) from error
    if isinstance(document, dict):
        if "Datapoints" in document:
            return read_statistics(text, document, asked)
        if "MetricDataResults" in document:
            return read_data(text, document, asked)
        if "status" in document and ("data" in document or "error" in document):
            return read_range(text, document, asked)
    seen = f"the keys {', '.join(list(document)[:5])}" if isinstance(document, dict) else "a list"
    raise Misconfigured(f"{text.name} is JSON with {seen[:80]}, no known export; understood are {UNDERSTOOD}")
