"""CloudWatch's exports: the answers of `get-metric-statistics` and `get-metric-data`, and the console's CSV.

A period without a request has no datapoint: it is 0. Datapoints are in no order. An answer does not say how long
its periods are, so they are the largest step that all its times are multiples of; the console's CSV may say it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured
from mark.simulator.traces.formats.content import EmptyFile, Text
from mark.simulator.traces.formats.rows import RowKind, Rows, TraceOptions
from mark.simulator.traces.formats.times import MAX_TIME_S, is_instant, seconds_of

Floats = NDArray[np.float64]

STATISTICS = "an answer of CloudWatch's get-metric-statistics"
DATA = "an answer of CloudWatch's get-metric-data"
CONSOLE = "a CSV of CloudWatch's console"
COUNTING = ("Count", "None")
"""Units whose sum is a number of requests; of another, such as seconds of latency, the samples are."""
PREAMBLE = re.compile(
    r'"?(full label|label|search expression|namespace|metric ?name|metric|period|statistic|stat|account ?id|'
    r'region|unit|dimensions?)"?',
    re.IGNORECASE,
)
"""Names of the lines above the console's rows."""
COUNTING_STATISTICS = ("sum", "samplecount", "sample count")
PERIOD_WORDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


def read_statistics(text: Text, document: Mapping[str, Any], options: TraceOptions) -> Rows:
    """Sum, or SampleCount where the metric counts no requests, of each datapoint."""
    options.where.check(STATISTICS, ())
    points = document["Datapoints"]
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        raise Misconfigured(f"{text.name}: Datapoints holds no datapoints; export it again with --output json")
    if not points:
        raise EmptyFile(f"{text.name} holds no datapoint; check the metric's dimensions and the times asked for")
    counted = all(point.get("Unit", "None") in COUNTING for point in points)
    name = next(
        (name for name in (("Sum", "SampleCount") if counted else ("SampleCount",)) if name in points[0]), None
    )
    if name is None:
        wanted = "Sum" if counted else "SampleCount"
        raise Misconfigured(
            f"{text.name} holds {', '.join(sorted(set(points[0]) - {'Timestamp', 'Unit'})) or 'no statistic'} of "
            f"{document.get('Label', 'a metric')}; export it with --statistics {wanted}"
        )
    times = _times(text, [point.get("Timestamp") for point in points])
    values = _values(text, [point.get(name) for point in points])
    return Rows(
        name=text.name,
        format=STATISTICS,
        kind=options.number_kind(RowKind.COUNT, text.name),
        times=times,
        values=values,
        exact=True,
    )


def read_data(text: Text, document: Mapping[str, Any], options: TraceOptions) -> Rows:
    """The values of the one result, or of the one that is chosen by id or label."""
    options.where.check(DATA, ("id", "label"))
    results = document["MetricDataResults"]
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise Misconfigured(f"{text.name}: MetricDataResults holds no results; export it again with --output json")
    takes = options.where.on({"id": lambda one: str(one.get("Id")), "label": lambda one: str(one.get("Label"))})
    taken = [result for result in results if takes(result)]
    if len(taken) > 1:
        listed = ", ".join(f"{result.get('Id')} ({result.get('Label')})" for result in taken)
        raise Misconfigured(
            f"{text.name} holds {len(taken)} results: {listed}; choose one with --where id={taken[0].get('Id')}"
        )
    if document.get("NextToken"):
        raise Misconfigured(f"{text.name} is the first page of several; export it without --max-items")
    stamps, values = (list(taken[0].get(key) or ()) for key in ("Timestamps", "Values")) if taken else ([], [])
    if len(stamps) != len(values):
        raise Misconfigured(
            f"{text.name} holds {len(stamps)} Timestamps and {len(values)} Values; export it again"
        )
    if not stamps and not options.where:
        raise EmptyFile(f"{text.name} holds no datapoint; check the metric's dimensions and the times asked for")
    return Rows(
        name=text.name, format=DATA, kind=options.number_kind(RowKind.COUNT, text.name),
        times=_times(text, stamps), values=_values(text, values), exact=True,
    )  # fmt: skip


def is_console(text: Text) -> bool:
    """True where lines of names such as `Full label` stand above rows of a time and numbers."""
    lines = [line for line in text.lines() if line]
    return "," in lines[0] and PREAMBLE.fullmatch(lines[0].partition(",")[0]) is not None


def read_console(text: Text, options: TraceOptions) -> Rows:
    """The one column of numbers, or the one that is chosen by its label."""
    options.where.check(CONSOLE, ("label",))
    named: dict[str, list[str]] = {}
    stamps: list[str] = []
    values: list[str] = []
    lines: list[int] = []
    column = None
    for line, fields in _rows(text):
        if not is_instant(fields[0]):
            if stamps:
                raise text.wrong(line, f"{fields[0][:40]!r} is not a time; remove the line")
            named[fields[0].lower()] = fields[1:]
            continue
        if column is None:
            column = _column(text, named, len(fields) - 1, options)
        value = fields[column] if column < len(fields) else ""
        if value:  # a period without a datapoint
            stamps.append(fields[0])
            values.append(value.replace(",", ""))
            lines.append(line)
    if not stamps:
        raise EmptyFile(f"{text.name} holds no datapoint; check the graph's times before it is downloaded")
    try:
        numbers = np.array(values, dtype=np.float64)
    except ValueError as error:
        raise Misconfigured(f"{text.name} holds a value that is not a number; download it again") from error
    return Rows(
        name=text.name,
        format=CONSOLE,
        kind=options.number_kind(RowKind.COUNT, text.name),
        times=_times(text, stamps),
        values=numbers,
        lines=np.array(lines, dtype=np.int64),
        bin_s=_period_s(named.get("period", [""])[0]),
        exact=True,
    )


def _rows(text: Text) -> Iterator[tuple[int, list[str]]]:
    """Number and fields of the lines that hold anything."""
    for number, block in text.blocks():
        try:
            for line, fields in enumerate(csv.reader(block.split("\n")), start=number):
                if any(fields):
                    yield line, [field.strip() for field in fields]
        except csv.Error as error:
            raise text.wrong(number, f"from here on it is no CSV ({error}); download it again") from error


def _column(text: Text, named: Mapping[str, Sequence[str]], count: int, options: TraceOptions) -> int:
    """Index of the field to read: the only one, or the one whose label the filters take."""
    labels = list(named.get("label") or named.get("full label") or ())[:count]
    labels += [""] * (count - len(labels))
    if not count:
        raise Misconfigured(f"{text.name} holds times without a number; download it again")
    takes = options.where.on({"label": lambda at: labels[at]})
    taken = [at for at in range(count) if takes(at)]
    if len(taken) != 1:
        listed = ", ".join(labels)
        raise Misconfigured(
            f"{text.name} holds {count} metrics: {listed}; choose one with --where label={labels[0]}"
        )
    statistics = named.get("statistic") or named.get("stat") or ()
    statistic = statistics[taken[0]] if taken[0] < len(statistics) else ""
    if statistic and statistic.lower() not in COUNTING_STATISTICS:
        raise Misconfigured(
            f"{text.name} holds the statistic {statistic}; choose Sum in the console and download it again"
        )
    return taken[0] + 1


def _period_s(text: str) -> float | None:
    """Seconds of `300`, `5 minutes` or `1 hour`; None where there is none."""
    parts = re.fullmatch(r"(\d+)\s*(second|minute|hour|day)?s?", text.strip().lower())
    return None if parts is None else float(parts[1]) * PERIOD_WORDS[parts[2] or "second"]


def _times(text: Text, stamps: Sequence[Any]) -> Floats:
    """Epoch seconds of timestamps, which are ISO 8601 or, with the CLI's other format, numbers."""
    if all(isinstance(stamp, int | float) and not isinstance(stamp, bool) for stamp in stamps):
        times = np.array(stamps, dtype=np.float64)
        if len(times) and np.abs(times).max() > MAX_TIME_S:
            raise Misconfigured(f"{text.name}: {times.max():.15g} is not an epoch second; export it again")
        return times
    try:
        return seconds_of([str(stamp) for stamp in stamps])
    except ValueError as error:
        bad = stamps[int(error.args[0])]
        raise Misconfigured(
            f"{text.name}: {str(bad)[:40]!r} is not a time of a datapoint; export it again"
        ) from error


def _values(text: Text, values: Sequence[Any]) -> Floats:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Misconfigured(
                f"{text.name}: {str(value)[:40]!r} is not a number of a datapoint; export it again"
            )
    return np.array(values, dtype=np.float64)
