"""Detection of a file's format by its beginning, and its rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson

from mark.domain.errors import Misconfigured
from mark.simulator.traces.formats.cloudwatch import is_console, read_console, read_data, read_statistics
from mark.simulator.traces.formats.content import Text
from mark.simulator.traces.formats.json_lines import TIME_KEYS, is_json_line, read_json_lines
from mark.simulator.traces.formats.logs import ALB_LINE, LOGS, read_alb, read_log
from mark.simulator.traces.formats.prometheus import read_range
from mark.simulator.traces.formats.rows import Rows, TraceOptions
from mark.simulator.traces.formats.sources import Source
from mark.simulator.traces.formats.tables import find_layout, read_table

LOOKED_AT = 20
"""Lines by most of which a log is known."""
EXPORT_KEYS = ('"Datapoints"', '"MetricDataResults"', '"resultType"')
"""Of a document that is an export on one line."""
UNDERSTOOD = (
    "a CSV of rates, counts or instants, JSON lines, CloudWatch (CSV, get-metric-statistics, get-metric-data), "
    "Prometheus query_range, ALB, CloudFront, nginx, Apache, Envoy and HAProxy access logs (docs/traces.md)"
)


def read_rows(source: Source, options: TraceOptions) -> Rows:
    """The rows of a file of any format. Misconfigured, one line, for all that is wrong with it."""
    text = Text(source)
    lines = text.lines()
    first = lines[0]
    after = lines[1 : LOOKED_AT + 1]  # a line of a log that was cut off may begin as JSON does
    logs = (ALB_LINE, *(log.entry for log in LOGS))
    if _is_json_lines(lines):
        return read_json_lines(text, options)
    if first.startswith(("{", "[")) and not any(_are_mostly(one, after) or one.match(first) for one in logs):
        return _read_document(text, options)
    if _are_mostly(ALB_LINE, lines):
        return read_alb(text, options)
    for log in LOGS:
        if _are_mostly(log.entry, lines):
            return read_log(text, options, log)
    if is_console(text):
        return read_console(text, options)
    layout = find_layout(text, options)
    if layout is None:
        raise text.wrong(text.first_line, f"{first[:60]!r} is in no known format; MArk reads {UNDERSTOOD}")
    return read_table(text, layout, options)


def _is_json_lines(lines: Sequence[str]) -> bool:
    """True where the first line, and most of the first, end with an object; a lone one must hold a time."""
    whole = [line for line in lines[:LOOKED_AT] if line]
    if not is_json_line(whole[0]):
        return False
    if len(whole) == 1:
        return any(f'"{key}"' in whole[0] for key in TIME_KEYS) and not any(key in whole[0] for key in EXPORT_KEYS)
    return 2 * sum(map(is_json_line, whole)) >= len(whole)


def _are_mostly(entry: re.Pattern[str], lines: Sequence[str]) -> bool:
    """True where the first line, or most of the first, are such entries: a log may begin with half a line."""
    are = [entry.match(line) is not None for line in lines[:LOOKED_AT] if line]
    return bool(are) and (are[0] or 2 * sum(are) > len(are))


def _read_document(text: Text, options: TraceOptions) -> Rows:
    try:
        document: Any = orjson.loads(text.whole())
    except orjson.JSONDecodeError as error:
        raise Misconfigured(
            f"{text.name} begins like JSON but is not valid JSON ({error}); understood are {UNDERSTOOD}"
        ) from error
    if isinstance(document, dict):
        if "Datapoints" in document:
            return read_statistics(text, document, options)
        if "MetricDataResults" in document:
            return read_data(text, document, options)
        if "status" in document and ("data" in document or "error" in document):
            return read_range(text.name, document, options)
    seen = f"the keys {', '.join(list(document)[:5])}" if isinstance(document, dict) else "a list"
    raise Misconfigured(f"{text.name} is JSON with {seen[:80]}, no known export; understood are {UNDERSTOOD}")
