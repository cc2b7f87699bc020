"""JSON lines: an object a line, a request or a number each, as API Gateway, Envoy, nginx, k6 and others write.

What stands before the object, such as kubectl's name of a pod, is left out. Keys of objects within objects are
written with dots: `data.time`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from mark.domain.errors import Misconfigured, unknown
from mark.simulator.traces.formats.content import EmptyFile, Text, rows_of
from mark.simulator.traces.formats.rows import RowKind, Rows, TraceOptions
from mark.simulator.traces.formats.times import (
    AmbiguousDates,
    day_order,
    is_instant,
    is_number,
    names_zone,
    seconds_of,
    unit_of,
)

JSON_LINES = "JSON lines"
LOOKED_AT = 20
"""Lines by whose keys the time is found."""
TIME_KEYS = (
    "requestTimeEpoch", "start_time", "startTime", "time_iso8601", "@timestamp", "timestamp", "msec", "time_local",
    "requestTime", "time", "ts", "datetime", "date", "eventTime", "asctime", "created_at", "t",
)  # fmt: skip
"""Keys of a request's time, the surest first; dotted ones count by their last part."""
METRIC_KEYS = (("type", "metric"),)
"""Keys of k6's output, of which one request is many lines."""
LEFT_OUT_SHARE = 1e-3
Flat = Mapping[str, Any]


def is_json_line(line: str) -> bool:
    """True where the line is an object of JSON, or has one at its end."""
    return _parsed(line) is not None


def read_json_lines(text: Text, options: TraceOptions) -> Rows:
    """A row a line. Misconfigured where no key holds a time, or more than a few lines hold no object."""
    first = [flat for flat in map(_parsed, text.lines()[:LOOKED_AT]) if flat is not None]
    keys = list(dict.fromkeys(key for flat in first for key in flat))
    time, value = _time_key(text, keys, first, options), _value_key(keys, options)
    _check_metrics(text, keys, options)
    options.where.check(JSON_LINES, keys)
    takes = options.where.on({key: _words_of(key) for key in keys}) if options.where else None
    stamps: list[str] = []
    values: list[float] = []
    lines: list[int] = []
    for line, flat in _objects(text):
        if takes is not None and not takes(flat):
            continue
        if time not in flat:
            raise text.wrong(line, f"it has no {time}; --time names the key of the time")
        stamps.append(_text_of(flat[time]))
        values.append(0.0 if value is None else _load(text, line, flat, value))
        lines.append(line)
    if not stamps and not options.where:
        raise EmptyFile(f"{text.name} holds no object; give at least one")
    naive, times = _times(text, stamps, lines, options)
    rows = Rows(
        name=text.name,
        format=JSON_LINES,
        kind=RowKind.REQUEST if value is None else options.rows or RowKind.UNSAID,
        times=times,
        values=None if value is None else np.array(values),
        lines=np.array(lines, dtype=np.int64),
        notes=text.notes if options.time else (*text.notes, f"{time} is taken as the time; --time names another"),
    )
    return rows.in_zone(options.zone) if naive else rows


def _parsed(line: str) -> Flat | None:
    begin = line.find("{")
    if begin < 0:
        return None
    try:
        found: Any = orjson.loads(line[begin:])
    except orjson.JSONDecodeError:
        return None
    return dict(_flat("", found)) if isinstance(found, dict) else None


def _flat(prefix: str, found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in found.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", value


def _objects(text: Text) -> Iterator[tuple[int, Flat]]:
    """Each line's object. Misconfigured where more than LEFT_OUT_SHARE of the lines hold none."""
    seen = odd = 0
    wrong: Misconfigured | None = None
    for number, block in text.blocks():
        for line, row in rows_of(number, block):
            flat = _parsed(row)
            seen += 1
            if flat is not None:
                yield line, flat
            elif line == text.unended_line and seen > 1:
                text.notes += (f"{text.name}: its last line, {line}, is cut off and left out",)
            else:
                odd += 1
                wrong = wrong or text.wrong(line, f"{row[:40]!r} is not a JSON object; remove the line")
    if wrong is not None:
        if odd > max(1, seen) * LEFT_OUT_SHARE:
            raise wrong
        text.notes += (f"{odd:,} of {seen:,} lines left out: {wrong}",)


def _time_key(text: Text, keys: Sequence[str], first: Sequence[Flat], options: TraceOptions) -> str:
    if options.time is not None:
        if options.time not in keys:
            raise unknown("key of --time", options.time, keys)
        return options.time
    for name in TIME_KEYS:
        for key in keys:
            if key.rpartition(".")[2] == name and _holds_time(key, first):
                return key
    raise Misconfigured(
        f"{text.name}: none of its keys {', '.join(keys[:12])} seems to hold a time; name it with --time"
    )


def _holds_time(key: str, first: Sequence[Flat]) -> bool:
    found = next((_text_of(flat[key]) for flat in first if key in flat), "")
    return is_instant(found) or is_number(found)


def _value_key(keys: Sequence[str], options: TraceOptions) -> str | None:
    if options.value is None or options.rows is RowKind.REQUEST:
        return None
    if options.value not in keys:
        raise unknown("key of --value", options.value, keys)
    return options.value


def _check_metrics(text: Text, keys: Sequence[str], options: TraceOptions) -> None:
    """Refuse metrics of a load generator, of which each request writes many."""
    chosen = {clause.key for clause in options.where.clauses}
    if any(set(pair) <= set(keys) and "metric" not in chosen for pair in METRIC_KEYS):
        raise Misconfigured(
            f"{text.name} holds a line a metric, many of each request: --where metric=http_reqs takes one of each"
        )


def _words_of(key: str) -> Any:
    return lambda flat: _text_of(flat.get(key, ""))


def _text_of(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value).strip()


def _load(text: Text, line: int, flat: Flat, key: str) -> float:
    found = _text_of(flat.get(key, ""))
    if not is_number(found) or not np.isfinite(float(found)):
        raise text.wrong(line, f"{key} {found[:40]!r} is not a number; correct the line")
    return float(found)


def _times(
    text: Text, stamps: Sequence[str], lines: Sequence[int], options: TraceOptions
) -> tuple[bool, np.ndarray[Any, np.dtype[np.float64]]]:
    """True where the times name no zone, and epoch seconds, shape (rows,)."""
    if stamps and all(map(is_number, stamps[:LOOKED_AT])):
        numbers = np.array([float(stamp) if is_number(stamp) else np.nan for stamp in stamps])
        if np.isnan(numbers).any():
            bad = int(np.argmax(np.isnan(numbers)))
            raise text.wrong(lines[bad], f"{stamps[bad][:40]!r} is not a time; correct the line")
        unit = unit_of(numbers)
        if unit is None:
            raise Misconfigured(f"{text.name}: its times are in no one unit; use one")
        return False, numbers / unit
    try:
        found = seconds_of(stamps, options.dates or day_order(stamps))
    except AmbiguousDates as error:
        raise ambiguous(text.name, str(error)) from None
    except ValueError as error:
        bad = int(error.args[0])
        raise text.wrong(lines[bad], f"{stamps[bad][:40]!r} is not a time; correct the line") from error
    return bool(stamps) and not names_zone(stamps[0]), found


def ambiguous(name: str, date: str) -> Misconfigured:
    """The error about dates that could be read either way."""
    return Misconfigured(
        f"{name}: {date[:30]!r} and its other dates may begin with the day or with the month; add --dates dmy or "
        "--dates mdy"
    )
