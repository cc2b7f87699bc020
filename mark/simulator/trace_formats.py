"""From the bytes of a trace file to arrays: which format it is, its numbers, and what is wrong where.

The numbers are read in one pass in C. Only when that pass or a check fails are the lines walked in Python, to
name the first one at fault; every error is one line with the file, the line's number, and what to do.
`docs/traces.md` shows an example of each format.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured

Floats = NDArray[np.float64]

RATES_HEADER = ("timestamp_s", "rate_rps")
ARRIVALS_HEADERS = ("timestamp_s", "arrival_s")
GZIP_MAGIC = b"\x1f\x8b"
GZIP_WINDOW = 31
"""zlib's `wbits` for a gzip header and trailer."""
MAX_TIME_S = 1e11
"""The year 5138 in epoch seconds, 1973 in milliseconds: a time beyond it is in other units."""
MAX_RPS = 1e9
"""More requests a second is a column in other units."""
ALB_LINE = re.compile(r"(?:https?|h2|grpcs|wss?) \d{4}-\d\d-\d\dT")
"""An access log line of an Application Load Balancer opens with the type and the time of the answer."""
ALB_CREATED_FIELD = 21
"""`request_creation_time` is the 22nd field (Elastic Load Balancing user guide, access log entries)."""
QUOTED = re.compile(r'"[^"]*"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A trace file's lines. `header` says whether the first one names columns."""

    path: Path
    content: str
    header: bool

    @property
    def body(self) -> str:
        """All below the header."""
        return self.content.partition("\n")[2] if self.header else self.content

    def wrong(self, line: int, what: str) -> Misconfigured:
        """The error about a line, counted from 1."""
        return Misconfigured(f"{self.path}, line {line}: {what}")

    def rows(self) -> list[tuple[int, str]]:
        """Number and text of the lines below the header that are not blank."""
        lines = enumerate(self.content.split("\n"), start=1)
        return [(n, line.strip()) for n, line in lines if line.strip() and not (self.header and n == 1)]

    def line_of(self, row: int) -> int:
        """Number of the line that holds data row `row` (from 0)."""
        return self.rows()[row][0]


def read_text(path: Path) -> str:
    """The file's text, unpacked where it is gzip; blank files and what is not text are refused."""
    try:
        packed = path.read_bytes()
    except FileNotFoundError:
        raise Misconfigured(f"{path}: no such trace file; check the path") from None
    except IsADirectoryError:
        raise Misconfigured(f"{path} is a directory; name one trace file in it") from None
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror}; check its permissions") from error
    raw = _unpacked(path, packed)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise Misconfigured(f"{path} is not text; give a CSV of rates or arrivals, or an ALB access log")
    if not text.strip():
        raise Misconfigured(f"{path} is empty; give a trace with at least one arrival or two bins")
    return text.replace("\r\n", "\n")


def _unpacked(path: Path, packed: bytes) -> bytes:
    if not packed.startswith(GZIP_MAGIC):
        if packed and path.suffix == ".gz":
            raise Misconfigured(f"{path} is not gzip although its name ends in .gz; rename or compress it")
        return packed
    parts: list[bytes] = []
    while packed.startswith(GZIP_MAGIC):  # a gzip file may hold several members, as `cat a.gz b.gz` makes
        unpacker = zlib.decompressobj(GZIP_WINDOW)
        try:
            parts.append(unpacker.decompress(packed))
        except zlib.error as error:
            raise Misconfigured(f"{path} is damaged gzip ({error}); fetch it again") from error
        if not unpacker.eof:
            raise Misconfigured(f"{path} is truncated gzip; fetch it again")
        packed = unpacker.unused_data
    return b"".join(parts)


def read_columns(text: Text, columns: int) -> Floats:
    """The numbers below the header, shape (rows, columns); all finite."""
    body = text.body
    if not body.strip():
        raise Misconfigured(f"{text.path} holds a header and no rows; give at least one row")
    try:
        numbers: Floats = np.loadtxt(io.StringIO(body), delimiter=",", comments=None, ndmin=2)
    except ValueError as error:
        raise _bad_row(text, columns) from error
    if numbers.shape[1] != columns or not np.isfinite(numbers).all():
        raise _bad_row(text, columns)
    return numbers


def _bad_row(text: Text, columns: int) -> Misconfigured:
    """The error for the first row that is not `columns` finite numbers."""
    for line, row in text.rows():
        fields = [field.strip() for field in row.split(",")]
        if len(fields) != columns:
            return text.wrong(line, f"{len(fields)} columns where {columns} are expected; correct the row")
        for field in fields:
            try:
                number = float(field)
            except ValueError:
                return text.wrong(line, f"{field[:40]!r} is not a number; correct the row")
            if not np.isfinite(number):
                return text.wrong(line, f"{field} is not a finite number; correct the row")
    return Misconfigured(f"{text.path} cannot be read as {columns} columns of numbers; check its rows")


def check_rising(text: Text, times: Floats, *, ties: bool) -> None:
    """Refuse times that fall, and equal ones where `ties` are not allowed. times: shape (rows,), seconds."""
    far = np.abs(times) > MAX_TIME_S
    if far.any():
        row = int(np.argmax(far))
        raise text.wrong(text.line_of(row), f"time {times[row]:.15g} is no time in seconds; give seconds, not ms")
    steps = np.diff(times)
    bad = steps < 0 if ties else steps <= 0
    if bad.any():
        row = int(np.argmax(bad)) + 1
        if steps[row - 1] == 0:
            raise text.wrong(text.line_of(row), f"time {times[row]:.15g} stands twice; keep one row of it")
        raise text.wrong(
            text.line_of(row), f"time {times[row]:.15g} comes after {times[row - 1]:.15g}; sort the file by time"
        )


def detect(path: Path, content: str) -> tuple[Text, Callable[[Text], Floats]]:
    """The text with its header told apart, and the reader of its format.

    The reader returns shape (rows, 2) for rates (time in s, rate in rps) and shape (arrivals,) for instants
    in s, rising.
    """
    first = content.lstrip("\n").split("\n", 1)[0].strip()
    content = content.lstrip("\n") if content.startswith("\n") else content
    names = tuple(field.strip().strip('"').lower() for field in first.split(","))
    if ALB_LINE.match(first):
        return Text(path=path, content=content, header=False), read_alb
    if names == RATES_HEADER:
        return Text(path=path, content=content, header=True), read_rates
    if len(names) == 1 and names[0] in ARRIVALS_HEADERS:
        return Text(path=path, content=content, header=True), read_arrivals
    if len(names) == 1 and _is_number(first):
        return Text(path=path, content=content, header=False), read_arrivals
    raise Misconfigured(
        f"{path}, line 1: {first[:60]!r} opens no known format; use a header timestamp_s,rate_rps or arrival_s, "
        "arrival instants in seconds one a line, or an ALB access log"
    )


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def read_rates(text: Text) -> Floats:
    """Rows of `timestamp_s,rate_rps`, shape (rows, 2), times rising and rates not negative."""
    numbers = read_columns(text, 2)
    negative = numbers[:, 1] < 0
    if negative.any():
        row = int(np.argmax(negative))
        raise text.wrong(text.line_of(row), f"rate {numbers[row, 1]:.15g} is negative; rates are 0 rps or more")
    huge = numbers[:, 1] > MAX_RPS
    if huge.any():
        row = int(np.argmax(huge))
        raise text.wrong(
            text.line_of(row), f"rate {numbers[row, 1]:.6g} is above {MAX_RPS:g} requests/s; give rates per second"
        )
    check_rising(text, numbers[:, 0], ties=False)
    return numbers


def read_arrivals(text: Text) -> Floats:
    """Arrival instants in seconds, shape (arrivals,), rising; several may share an instant."""
    instants = read_columns(text, 1)[:, 0]
    check_rising(text, instants, ties=True)
    return instants


def read_alb(text: Text) -> Floats:
    """`request_creation_time` of every entry in epoch seconds, shape (arrivals,), rising.

    Entries are written when the answer has left, by several nodes, so they are sorted here. Where an entry has
    no creation time (`-`), its `time`, that of the answer, stands in.
    """
    stamps: list[str] = []
    for line, row in text.rows():
        if not ALB_LINE.match(row):
            raise text.wrong(line, f"{row[:40]!r} is no ALB access log entry; remove the line")
        fields = QUOTED.sub('""', row).split(" ")
        created = fields[ALB_CREATED_FIELD] if len(fields) > ALB_CREATED_FIELD else "-"
        stamps.append((fields[1] if created == "-" else created).removesuffix("Z"))
    try:
        instants = np.array(stamps, dtype="datetime64[us]")
    except ValueError as error:
        raise _bad_stamp(text, stamps) from error
    seconds: Floats = np.sort(instants.astype(np.int64)) / 1e6
    return seconds


def _bad_stamp(text: Text, stamps: list[str]) -> Misconfigured:
    for row, stamp in enumerate(stamps):
        try:
            np.datetime64(stamp, "us")
        except ValueError:
            return text.wrong(text.line_of(row), f"{stamp[:40]!r} is no ISO 8601 time; correct the entry")
    return Misconfigured(f"{text.path} holds times that cannot be read; check its entries")
