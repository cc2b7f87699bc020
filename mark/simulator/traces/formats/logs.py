"""Access logs: of an Application Load Balancer, nginx's and Apache's combined format, Envoy's and HAProxy's.

Read block by block; of a request only its instant is kept. Logs are written when answers have left, and by several
nodes, so the instants are sorted later. What a request is chosen by is read only where it is asked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured
from mark.simulator.traces.formats.content import Text, rows_of
from mark.simulator.traces.formats.filters import Where
from mark.simulator.traces.formats.rows import RowKind, Rows, TraceOptions
from mark.simulator.traces.formats.times import names_zone, seconds_of

Floats = NDArray[np.float64]
Match = re.Match[str]

ALB = "an ALB access log"
ALB_LINE = re.compile(r"(?:https?|h2|grpcs|wss?) \d{4}-\d\d-\d\dT")
"""An access log line of an Application Load Balancer opens with the type and the time of the answer."""
ALB_ENTRY = re.compile(
    r"\S+ (?P<answered>\d{4}-\d\d-\d\dT\S*) (?:\S+ ){6}(?P<status>\S+) (?:\S+ ){3}"
    r'"(?P<request>[^"\\]*(?:\\.[^"\\]*)*)" "[^"\\]*(?:\\.[^"\\]*)*" \S+ \S+ (?P<group>\S+)'
    r'(?: "[^"]*" "(?P<domain>[^"]*)" "[^"]*" \S+ (?P<created>\S+))?'
)
"""Fields 2, 9, 13, 17, 19 and 22 (Elastic Load Balancing user guide, access log entries). A client chooses its
request and its name, so these two may hold escaped quotes. A line that lacks its begin may have as many fields
after it: its second one is no time."""
COMBINED = "an nginx or Apache access log"
COMBINED_ENTRY = re.compile(
    r"(?:(?P<vhost>\S+):\d+ (?=[^\s-]\S* - ))?\S+ \S+ [^\[]*"
    r"\[(?P<answered>\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "
    r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{3}|-)(?: |$)'
)
"""`remote - user [time] "request" status ...`, Apache's with the virtual host before it or without."""
ENVOY_ENTRY = re.compile(
    r'(?:\[pod/[^\]]*\] )?\[(?P<answered>\d{4}-\d\d-\d\dT[\d:.]+Z?)\] "(?P<request>[^"]*)" (?P<status>\d+)(?: |$)'
)
"""`[start] "request" status ...`, Envoy's and Istio's default, also as kubectl prints it."""
HAPROXY_ENTRY = re.compile(
    r".*?\[(?P<answered>\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d\.\d{3})\] \S+ (?P<group>\S+) [-+\d/]+ "
    r'(?P<status>-?\d+) .*"(?P<request>[^"]*)"?'
)
"""HAProxy's HTTP format, which writes the time that the request came by the machine's own clock."""
LEFT_OUT_SHARE = 1e-3
"""Lines that no pattern fits, as a share of a log's lines, that are left out and noted: scanners and programs that
write beside the log leave some in any. More of them are another format, or a broken copy."""
REMEDY = "; remove the line"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """An access log: a pattern of its entries, with groups answered, request and status, and what chooses them."""

    name: str
    entry: re.Pattern[str]
    keys: Mapping[str, Callable[[Match], str]]


def read_alb(text: Text, options: TraceOptions) -> Rows:
    """`request_creation_time` of every entry: when the load balancer received the request.

    Where an entry has none (`-`), its `time`, that of the answer, stands in.
    """
    options.where.check(ALB, ALB_KEYS)
    groups: Counter[str] = Counter()
    parts = []
    for number, entries in _entries(text, ALB_ENTRY, ALB_KEYS, options.where, ALB):
        groups.update([entry["group"] for entry in entries])
        stamps = [entry["created"] or "-" for entry in entries]
        stamps = [
            entry["answered"] if stamp == "-" else stamp for stamp, entry in zip(stamps, entries, strict=True)
        ]
        try:
            parts.append(seconds_of(stamps))
        except ValueError as error:
            bad = int(error.args[0])
            line = _line_of(text, number, entries[bad])
            raise text.wrong(line, f"{stamps[bad][:40]!r} is no ISO 8601 time; correct the entry") from error
    return Rows(
        name=text.name, format=ALB, kind=RowKind.REQUEST, times=_joined(parts),
        groups={group_name(arn): count for arn, count in groups.items()}, notes=text.notes,
    )  # fmt: skip


def read_log(text: Text, options: TraceOptions, log: LogFormat) -> Rows:
    """The time of every entry: in nginx's and Apache's a whole second, when the answer had left."""
    options.where.check(log.name, log.keys)
    known: dict[str, float] = {}
    parts = []
    stamp = ""
    for number, entries in _entries(text, log.entry, log.keys, options.where, log.name):
        seconds = np.empty(len(entries))
        for at, entry in enumerate(entries):
            stamp = entry["answered"]
            if stamp not in known:
                try:
                    known[stamp] = float(seconds_of([stamp])[0])
                except ValueError as error:
                    line = _line_of(text, number, entry)
                    raise text.wrong(line, f"{stamp!r} is not a time; correct the entry") from error
            seconds[at] = known[stamp]
        known = {stamp: known[stamp]} if entries else {}
        parts.append(seconds)
    rows = Rows(name=text.name, format=log.name, kind=RowKind.REQUEST, times=_joined(parts), notes=text.notes)
    return rows.in_zone(options.zone) if stamp and not names_zone(stamp) else rows


def group_name(arn: str) -> str:
    """A target group's name of its ARN, `...:targetgroup/NAME/ID`."""
    _, found, rest = arn.partition(":targetgroup/")
    return rest.partition("/")[0] if found else arn


def _entries(
    text: Text, pattern: re.Pattern[str], keys: Mapping[str, Callable[[Match], str]], where: Where, name: str
) -> Iterator[tuple[int, list[Match]]]:
    """The entries of each block that the filters take, and the block's first line.

    Errors: Misconfigured where more than LEFT_OUT_SHARE of the lines are no entries.
    """
    takes = where.on(keys) if where else None
    lines, odd = 0, 0
    first: tuple[int, str] | None = None
    for number, block in text.blocks():
        found = [pattern.match(row) for row in block.split("\n") if row]
        if None in found:
            rows = list(rows_of(number, block))
            found = [pattern.match(row) for _, row in rows]
            if found == [None] and number == text.unended_line and number > text.first_line:
                # a log that was copied while it was written ends in the middle of a line
                text.notes += (f"{text.name}: its last line, {number}, is cut off and left out",)
                break
            bad = [row for row, entry in zip(rows, found, strict=True) if entry is None]
            odd += len(bad)
            first = first or (bad[0] if bad else None)
        lines += len(found)
        entries = [entry for entry in found if entry is not None]
        if first is not None and not entries:
            raise _no_entry(text, first, name, REMEDY)
        yield number, entries if takes is None else [entry for entry in entries if takes(entry)]
    if first is not None:
        if odd > lines * LEFT_OUT_SHARE:
            raise _no_entry(text, first, name, REMEDY)
        text.notes += (f"{odd:,} of {lines:,} lines left out: {_no_entry(text, first, name)}",)


def _no_entry(text: Text, first: tuple[int, str], name: str, remedy: str = "") -> Misconfigured:
    line, row = first
    return text.wrong(line, f"{row[:40]!r} is not {name} entry{remedy}")


def _line_of(text: Text, number: int, entry: Match) -> int:
    """Number of the line an entry stands in: the block is read again, which is rare."""
    for first, block in Text(text.source).blocks():
        if first == number:
            return next(line for line, row in rows_of(first, block) if row == entry.string.strip())
    return number


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.empty(0)


def _method(entry: Match) -> str:
    return entry["request"].partition(" ")[0]


def _url(entry: Match) -> str:
    parts = entry["request"].split(" ")
    return parts[1] if len(parts) > 1 else ""


def _path(entry: Match) -> str:
    url = _url(entry)
    if url.startswith("/"):
        return url.partition("?")[0]
    try:
        return urlsplit(url).path or "/"
    except ValueError:  # a scanner's nonsense
        return url


def _host(entry: Match) -> str:
    url = _url(entry)
    if url.startswith("/"):
        return ""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


ALB_KEYS: Mapping[str, Callable[[Match], str]] = {
    "host": lambda entry: _host(entry) or (entry["domain"] or "").removeprefix("-"),
    "method": _method,
    "path": _path,
    "status": lambda entry: entry["status"],
    "target-group": lambda entry: group_name(entry["group"]),
}
COMBINED_KEYS: Mapping[str, Callable[[Match], str]] = {
    "host": lambda entry: entry["vhost"] or _host(entry),
    "method": _method,
    "path": _path,
    "status": lambda entry: entry["status"],
}
ENVOY_KEYS: Mapping[str, Callable[[Match], str]] = {
    "method": _method,
    "path": _path,
    "status": lambda entry: entry["status"],
}
HAPROXY_KEYS: Mapping[str, Callable[[Match], str]] = {
    **ENVOY_KEYS,
    "backend": lambda entry: entry["group"].partition("/")[0],
}
LOGS = (
    LogFormat(name=COMBINED, entry=COMBINED_ENTRY, keys=COMBINED_KEYS),
    LogFormat(name="an Envoy access log", entry=ENVOY_ENTRY, keys=ENVOY_KEYS),
    LogFormat(name="an HAProxy log", entry=HAPROXY_ENTRY, keys=HAPROXY_KEYS),
)
