"""CSVs of a trace: an instant a row, or a time and a number of each bin, with a header or without."""

from __future__ import annotations

import csv
import io
import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured, unknown
from mark.simulator.traces.formats.content import EmptyFile, Text, rows_of
from mark.simulator.traces.formats.filters import Where, parse_where
from mark.simulator.traces.formats.json_lines import ambiguous
from mark.simulator.traces.formats.rows import RowKind, Rows, TraceOptions
from mark.simulator.traces.formats.times import (
    MAX_TIME_S,
    AmbiguousDates,
    DayOrder,
    day_order,
    is_instant,
    is_number,
    names_zone,
    seconds_of,
    unit_of,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RATES_HEADER = ("timestamp_s", "rate_rps")
ARRIVALS_HEADERS = ("timestamp_s", "arrival_s")
TIME_NAMES = re.compile(
    r"@?_?((start|event|request|created|arrival|arrived|received|period)?[ _]?(time|timestamp|date|datetime|at))"
    r"([ _]?\(?(s|sec|seconds|ms|us|ns|utc)\)?)?"
    r"|ts|t|instant|(unix|epoch|arrival)([ _]?(s|ms|us|ns|time))?|bin\(.*\)"
)
COUNT_NAMES = re.compile(
    r"(sum|total|number)?[ _(]*(of)?[ _]*"
    r"(count|counts|requests?|hits|calls|invocations|arrivals|n|sum|samplecount|num_?requests|total)"
    r"[ _]*(count|total|sum)?[ _]*(\(.*\)|\))?"
)
RATE_NAMES = re.compile(
    r"rate|rate_rps|rps|qps|tps|(req|reqs|requests?|queries|calls)?[ _]*(/|per)[ _]*s(ec(ond)?)?|request[ _]rate"
)
NAMES = {RowKind.COUNT: COUNT_NAMES, RowKind.RATE: RATE_NAMES}
DAY = re.compile(r"\d{4}[-/]\d\d[-/]\d\d|\d{1,2}[./]\d{1,2}[./]\d{4}")
CLOCK = re.compile(r"\d{1,2}:\d\d(:\d\d([.,]\d{1,9})?)?")
HOUR_NAMES = ("hour", "hr", "h", "stunde", "hour of day")
FIELDS = "#Fields:"
METRIC_COLUMN = "metric_name"
"""Of k6's CSV."""
EVERY_ROW = Where()
LOCUST = {"timestamp", "user count", "type", "name", "requests/s"}
"""Columns of Locust's stats_history.csv, which has a row of all endpoints at each time, beside those of each."""
LOCUST_ALL = parse_where(["name=Aggregated"])
LOCUST_NOTE = "Locust's rows Aggregated are taken, which hold all endpoints; --where name=NAME takes one endpoint"
DECIMAL_COMMA = re.compile(r"-?\d+(\.\d{3})*,\d+|-?\d{1,3}(\.\d{3})+")
"""A number of a file whose columns semicolons part: `1.234,5`."""
THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
NEUTRAL_NAMES = ("value", "values", "v", "y", "metric", "")
"""Names of a column that say nothing of it."""
DELIMITERS = ",;\t"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvLayout:
    """Columns of a CSV and their meaning."""

    names: tuple[str, ...]
    header: bool
    delimiter: str
    columns: int
    #: Index of the column of times.
    time: int
    #: Index of the column of values; None where a row is a request.
    value: int | None
    kind: RowKind
    #: The header is MArk's own.
    own: bool
    #: Index of the column of clock times or hours, where dates stand in a column of their own.
    clock: int | None = None
    #: Lines that begin with `#` hold no row: W3C's extended logs, as CloudFront's and IIS's.
    comments: bool = False
    #: Order of dates with slashes.
    dates: DayOrder = DayOrder.MONTH_FIRST
    #: Rows to take among such as hold the same requests, where the options do not choose.
    usual: Where = EVERY_ROW
    notes: tuple[str, ...] = ()

    @property
    def format(self) -> str:
        """As messages call it."""
        return f"a CSV of {self.kind}"


def find_layout(text: Text, options: TraceOptions) -> CsvLayout | None:
    """The layout of a CSV; None where its first line is none of a trace. Misconfigured where it is ambiguous."""
    lines = text.lines()
    if lines[0].startswith("#"):
        return _extended(lines, options)
    first = lines[0]
    delimiter = next((mark for mark in DELIMITERS if mark in first), ",")
    fields = _split(first, delimiter)
    if not fields:
        return None
    if is_instant(fields[0]) or is_number(fields[0]):
        return _without_header(fields, delimiter, options)
    names = tuple(field.lower() for field in fields)
    rows = [_split(line, delimiter) for line in lines[1:] if line]
    time = _column("--time", options.time, names)
    time = _time_column(names, rows) if time is None else time
    if time is None:
        return None
    clock = _clock_column(names, rows, time)
    value, kind = _value_column(text, names, rows, (time, clock), options)
    locust = set(names) >= LOCUST and not {"name", "type"} & {clause.key for clause in options.where.clauses}
    own = names == RATES_HEADER or (len(names) == 1 and names[0] in ARRIVALS_HEADERS)
    return CsvLayout(
        names=names,
        header=True,
        delimiter=delimiter,
        columns=len(names),
        time=time,
        value=value,
        kind=kind,
        own=own,
        clock=clock,
        dates=_dates(text, rows, time, options),
        usual=LOCUST_ALL if locust else EVERY_ROW,
        notes=(LOCUST_NOTE,) if locust else (),
    )


def _extended(lines: Sequence[str], options: TraceOptions) -> CsvLayout | None:
    """A W3C extended log: a request a line, by the names of its line `#Fields:`; None where it lacks that."""
    fields = next((line for line in lines if line.startswith(FIELDS)), FIELDS)
    names = tuple(name.lower() for name in fields.removeprefix(FIELDS).split())
    if "date" not in names or "time" not in names:
        return None
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return CsvLayout(
        names=names, header=False, delimiter="\t" if "\t" in first else " ", columns=len(names),
        time=names.index("date"), value=None, kind=options.rows or RowKind.REQUEST, own=False,
        clock=names.index("time"), comments=True,
    )  # fmt: skip


def _column(flag: str, name: str | None, names: Sequence[str]) -> int | None:
    """Index of the column that a flag names. Misconfigured where there is none."""
    if name is None:
        return None
    if name.lower() not in names:
        raise unknown(f"column of {flag}", name.lower(), names)
    return names.index(name.lower())


def _dates(text: Text, rows: Sequence[Sequence[str]], time: int, options: TraceOptions) -> DayOrder:
    if options.dates is not None:
        return options.dates
    try:
        return day_order([row[time] for row in rows if len(row) > time])
    except AmbiguousDates as error:
        raise ambiguous(text.name, str(error)) from None


def _split(line: str, delimiter: str) -> list[str]:
    try:
        return [field.strip() for field in next(csv.reader([line], delimiter=delimiter), [""])]
    except csv.Error:  # a field longer than any
        return [line]


def _without_header(fields: Sequence[str], delimiter: str, options: TraceOptions) -> CsvLayout | None:
    requests = len(fields) == 1 or options.rows is RowKind.REQUEST
    if not requests and len(fields) != 2:
        return None
    kind = RowKind.REQUEST if requests else options.rows or RowKind.UNSAID
    return CsvLayout(
        names=(), header=False, delimiter=delimiter, columns=len(fields), time=0,
        value=None if requests else 1, kind=kind, own=False,
    )  # fmt: skip


def _time_column(names: Sequence[str], rows: Sequence[Sequence[str]]) -> int | None:
    """The column that is named as a time, or holds dates in the first row."""
    row = rows[0] if rows else []
    dated = [at for at, field in enumerate(row) if is_instant(field) and at < len(names)]
    named = [at for at, name in enumerate(names) if TIME_NAMES.fullmatch(name)]
    sure = [at for at in named if at in dated]
    return next(iter((*sure, *named, *dated)), None)


def _clock_column(names: Sequence[str], rows: Sequence[Sequence[str]], time: int) -> int | None:
    """The column of clock times, or of hours, where that of times holds days alone."""
    row = rows[0] if rows else []
    if len(row) != len(names) or not DAY.fullmatch(row[time]):
        return None
    clocks = [at for at, field in enumerate(row) if CLOCK.fullmatch(field)]
    hours = [at for at, name in enumerate(names) if name in HOUR_NAMES and row[at].isdigit()]
    return next(iter((*clocks, *hours)), None)


def _value_column(
    text: Text,
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    time: tuple[int | None, ...],
    options: TraceOptions,
) -> tuple[int | None, RowKind]:
    """The column of counts or rates, and which of them; none where a row is a request."""
    others = [at for at in range(len(names)) if at not in time]
    if METRIC_COLUMN in names and METRIC_COLUMN not in {clause.key for clause in options.where.clauses}:
        raise Misconfigured(
            f"{text.name} holds a row a metric, many of each request: --where {METRIC_COLUMN}=http_reqs --rows "
            "requests takes one of each"
        )
    chosen = _column("--value", options.value, names)
    if chosen is not None:
        named = next((kind for kind, pattern in NAMES.items() if pattern.fullmatch(names[chosen])), None)
        return chosen, options.rows or named or RowKind.UNSAID
    if set(names) >= LOCUST:
        if options.rows not in (None, RowKind.RATE):
            raise Misconfigured(f"{text.name} is Locust's history, whose rows hold rates; leave out --rows")
        return names.index("requests/s"), RowKind.RATE
    if not others or options.rows is RowKind.REQUEST:
        return None, RowKind.REQUEST
    found = [(at, kind) for kind, pattern in NAMES.items() for at in others if pattern.fullmatch(names[at])]
    if len(found) == 1 or (
        found and options.rows and len([at for at, kind in found if kind is options.rows]) == 1
    ):
        at, kind = next((pair for pair in found if pair[1] is options.rows), found[0])
        return at, options.rows or kind
    if len(others) == 1 and (options.rows or names[others[0]] in NEUTRAL_NAMES):
        return others[0], options.rows or RowKind.UNSAID
    raise _unsure(text, names, rows, [at for at, _ in found] or others)


def _unsure(
    text: Text, names: Sequence[str], rows: Sequence[Sequence[str]], possible: Sequence[int]
) -> Misconfigured:
    """The error about a load that several columns may hold, with what each reading would make of a row."""
    row = rows[0] if rows else []
    at = next((at for at in possible if at < len(row) and is_number(row[at])), None)
    unsaid = f"{text.name}: the columns {', '.join(names)} do not show which of them holds the load"
    if at is None:
        return Misconfigured(f"{unsaid}: --value COLUMN names it; --rows requests takes each row as one request")
    name = f"'{names[at]}'" if " " in names[at] else names[at]
    return Misconfigured(
        f"{unsaid}: --value {name} --rows counts reads the first row as {row[at]} requests a bin, --rows rates as "
        f"{row[at]} requests/s; --rows requests takes each row as one request"
    )


def read_table(text: Text, layout: CsvLayout, options: TraceOptions) -> Rows:
    """The rows of a CSV. MArk's own formats hold seconds, rising; others may be in any order."""
    keys = {} if layout.own else _keys(layout)
    options.where.check(layout.format, keys)
    where = replace(options.where, clauses=(*options.where.clauses, *layout.usual.clauses))
    takes = where.on(keys) if where else None
    parts = [_read_block(text, layout, number, block, takes) for number, block in _data_blocks(text, layout)]
    times, values, lines = (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else _NOTHING
    if not len(times) and not options.where:
        raise EmptyFile(f"{text.name} holds a header and no rows; give at least one row")
    rows = Rows(
        name=text.name,
        format=layout.format,
        kind=layout.kind,
        times=times,
        values=None if layout.value is None else values,
        lines=lines,
        notes=layout.notes,
        as_is=layout.own or (not layout.header and layout.value is None),
    )
    if layout.own:
        return _rising(rows)
    naive = not layout.comments and _is_naive(text, layout)
    return _in_seconds(rows).in_zone(options.zone) if naive else _in_seconds(rows)


def _is_naive(text: Text, layout: CsvLayout) -> bool:
    """True where the file's times are dates that name no zone."""
    rows = [line for line in text.lines()[layout.header :] if line]
    fields = _split(rows[0], layout.delimiter) if rows else []
    field = fields[layout.time] if len(fields) == layout.columns else ""
    return is_instant(field) and not names_zone(field)


_NOTHING = (np.empty(0), np.empty(0), np.empty(0, dtype=np.int64))
Columns = tuple[Floats, Floats, Ints]
Takes = Callable[[list[str]], bool]


def _keys(layout: CsvLayout) -> dict[str, Callable[[list[str]], str]]:
    """The columns beside time and load, by name."""
    others = [at for at in range(len(layout.names)) if at not in (layout.time, layout.clock, layout.value)]
    return {layout.names[at]: operator.itemgetter(at) for at in others}


def _data_blocks(text: Text, layout: CsvLayout) -> Iterator[tuple[int, str]]:
    """The blocks below the header that hold anything."""
    header = layout.header
    for number, block in text.blocks():
        first, rest = number, block
        if header:
            rest = block.partition("\n")[2]
            first, header = number + 1, False
        if rest.strip():
            yield first, rest


def _read_block(text: Text, layout: CsvLayout, number: int, block: str, takes: Takes | None) -> Columns:
    """Times, numbers (of no meaning where a row is a request) and lines of a block's rows."""
    fields = _split(next(row for _, row in rows_of(number, block)), layout.delimiter)
    numeric = len(fields) != layout.columns or is_number(fields[layout.time])
    plain = layout.time == 0 and layout.columns <= 2 and layout.delimiter == "," and '"' not in block
    if numeric and plain and takes is None and (layout.value is not None or layout.columns == 1):
        return _numbers(text, layout, number, block)
    return _fields(text, layout, number, block, takes)


def _numbers(text: Text, layout: CsvLayout, number: int, block: str) -> Columns:
    """The columns of a block that holds numbers alone, read in one pass in C."""
    try:
        numbers: Floats = np.loadtxt(io.StringIO(block), delimiter=",", comments=None, ndmin=2)
    except ValueError as error:
        raise _bad_row(text, layout, number, block) from error
    if numbers.shape[1] != layout.columns or not np.isfinite(numbers).all():
        raise _bad_row(text, layout, number, block)
    if len(numbers) == block.count("\n"):
        lines = np.arange(number, number + len(numbers), dtype=np.int64)
    else:
        lines = np.array([line for line, _ in rows_of(number, block)], dtype=np.int64)
    return numbers[:, 0], numbers[:, -1], lines


def _bad_row(text: Text, layout: CsvLayout, number: int, block: str) -> Misconfigured:
    """The error for the first row that is not numbers alone."""
    for line, row in rows_of(number, block):
        fields = [field.strip() for field in row.split(",")]
        if len(fields) != layout.columns:
            return _bad_width(text, layout, line, fields)
        for field in fields:
            try:
                _number(field)
            except ValueError as error:
                return text.wrong(line, str(error))
    return Misconfigured(f"{text.name} cannot be read as {layout.columns} columns of numbers; check its rows")


def _bad_width(text: Text, layout: CsvLayout, line: int, fields: Sequence[str]) -> Misconfigured:
    return text.wrong(line, f"{len(fields)} columns where {layout.columns} are expected; correct the row")


def _number(field: str) -> float:
    """The finite number of a field. ValueError, in words, where it is none."""
    try:
        number = float(field)
    except ValueError:
        raise ValueError(f"{field[:40]!r} is not a number; correct the row") from None
    if not math.isfinite(number):
        raise ValueError(f"{field} is not a finite number; correct the row")
    return number


def _fields(text: Text, layout: CsvLayout, number: int, block: str, takes: Takes | None) -> Columns:
    """The columns of a block whose rows are read field by field."""
    stamps, values, lines = [], [], []
    try:
        for line, fields in enumerate(csv.reader(block.split("\n"), delimiter=layout.delimiter), start=number):
            if not any(fields) or (layout.comments and fields[0].startswith("#")):
                continue
            if len(fields) != layout.columns:
                raise _bad_width(text, layout, line, fields)
            if takes is not None and not takes(fields):
                continue
            stamps.append(_stamp(fields, layout))
            values.append(0.0 if layout.value is None else _load(fields[layout.value].strip(), layout.delimiter))
            lines.append(line)
    except ValueError as error:
        raise text.wrong(line, str(error)) from None
    except csv.Error as error:
        raise text.wrong(number, f"from here on it is no CSV ({error}); correct it") from error
    try:
        times = _instants(stamps, layout.dates)
    except ValueError as error:
        bad = int(error.args[0])
        raise text.wrong(lines[bad], f"{stamps[bad][:40]!r} is not a time; correct the row") from error
    zoned = [names_zone(stamp) for stamp in stamps]
    if len({*zoned}) > 1:
        odd = zoned.index(not zoned[0])
        says = (
            "names its zone, and rows before it do not" if zoned[odd] else "names no zone, and rows before it do"
        )
        raise text.wrong(lines[odd], f"{stamps[odd]!r} {says}; write all times in one way")
    return times, np.array(values), np.array(lines, dtype=np.int64)


def _stamp(fields: Sequence[str], layout: CsvLayout) -> str:
    """The instant of a row, whose day and time may stand apart."""
    day = fields[layout.time].strip()
    if layout.clock is None:
        return day
    hour, colon, rest = fields[layout.clock].strip().partition(":")
    return f"{day} {hour.zfill(2)}:{rest if colon else '00'}"


def _load(field: str, delimiter: str) -> float:
    """The number of a field, with thousands or a decimal comma as spreadsheets write them."""
    if delimiter == ";" and DECIMAL_COMMA.fullmatch(field):
        field = field.replace(".", "").replace(",", ".")
    elif THOUSANDS.fullmatch(field):
        field = field.replace(",", "")
    return _number(field)


def _instants(stamps: Sequence[str], order: DayOrder) -> Floats:
    """Times of dates or of numbers. ValueError with the index of one that is neither."""
    if not stamps or not is_number(stamps[0]):
        return seconds_of(stamps, order)
    times = np.empty(len(stamps))
    for at, stamp in enumerate(stamps):
        try:
            times[at] = _number(stamp)
        except ValueError:
            raise ValueError(at) from None
    return times


def _rising(rows: Rows) -> Rows:
    """Refuse times of MArk's own formats that are no seconds or fall, and equal ones of bins."""
    times = rows.times
    far = np.abs(times) > MAX_TIME_S
    if far.any():
        row = int(np.argmax(far))
        raise rows.wrong(row, f"time {times[row]:.15g} is not a time in seconds; give seconds, not ms")
    steps = np.diff(times)
    bad = steps < 0
    if bad.any():
        row = int(np.argmax(bad)) + 1
        raise rows.wrong(row, f"time {times[row]:.15g} comes after {times[row - 1]:.15g}; sort the file by time")
    return rows


def _in_seconds(rows: Rows) -> Rows:
    """The rows with times in seconds, whatever the file counts in: told by how large the numbers are."""
    unit = unit_of(rows.times)
    if unit is None:
        row = int(np.argmax(np.abs(rows.times)))
        raise rows.wrong(
            row, f"time {rows.times[row]:.15g} is in no unit that fits the file's others; use one unit"
        )
    return rows if unit == 1.0 else replace(rows, times=rows.times / unit, as_is=False)
