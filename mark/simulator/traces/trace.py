"""A trace: the load that is replayed, as rates in equal bins or as raw arrivals.

A trace's clock counts seconds from the start of its first bin; `start_at` is where the source put that start
(epoch seconds in an access log, mostly 0 elsewhere). All `_s` arguments and `arrivals_s` are on that clock.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured
from mark.simulator.traces.formats.bins import MAX_RPS, WHOLE_TOLERANCE, Instants, check_length, join
from mark.simulator.traces.formats.content import EmptyFile
from mark.simulator.traces.formats.detect import read_rows
from mark.simulator.traces.formats.rows import Rows, TraceOptions
from mark.simulator.traces.formats.sources import Objects, Source, find_sources, name_of

Floats = NDArray[np.float64]

LEAST_COPIED = 10
"""Rows that two files share by chance are fewer."""
ARRIVALS_BIN_S = 1.0
AS_IT_IS = TraceOptions()
"""Nothing is left out, and the file says what its rows hold."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Contiguous equal bins of load.

    rates_rps: shape (bins,), read-only. whole_counts: the bins last at most one second and hold whole counts,
    which a replay takes exactly. arrivals_s: shape (arrivals,), rising, read-only, for traces of raw arrivals.
    notes: what was filled, moved or cut, one sentence each.
    """

    name: str
    start_at: float
    bin_s: float
    rates_rps: Floats
    whole_counts: bool
    arrivals_s: Floats | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bin_s) and self.bin_s > 0):
            raise Misconfigured(f"trace {self.name}: bins must last more than 0 s, not {self.bin_s}")
        if len(self.rates_rps) == 0:
            raise Misconfigured(f"trace {self.name} is empty; give it at least one bin")
        low, high = float(np.min(self.rates_rps)), float(np.max(self.rates_rps))
        if not (low >= 0 and high <= MAX_RPS):  # also refuses NaN
            raise Misconfigured(f"trace {self.name}: rates must be 0 to {MAX_RPS:g} rps, not {low:g} to {high:g}")
        for label in ("rates_rps", "arrivals_s"):
            values = getattr(self, label)
            if values is not None:
                view = np.asarray(values, dtype=np.float64).view()
                view.flags.writeable = False
                object.__setattr__(self, label, view)

    @property
    def duration_s(self) -> float:
        """Seconds from the first bin's start to the last one's end."""
        return len(self.rates_rps) * self.bin_s

    @property
    def mean_rps(self) -> float:
        """Mean over the whole trace."""
        return float(self.rates_rps.mean())

    def span(self, start_s: float = 0.0, duration_s: float | None = None) -> tuple[float, float, tuple[str, ...]]:
        """Start and end of the part asked for, in seconds on the trace's clock, and a note where it was cut."""
        length_s = self.duration_s
        if not (math.isfinite(start_s) and start_s >= 0):
            raise Misconfigured(f"a start must be 0 s or more, not {start_s:g}")
        if start_s >= length_s:
            raise Misconfigured(
                f"trace {self.name} is {length_s:.10g} s long; a start at {start_s:.10g} s is beyond its end"
            )
        if duration_s is None:
            return start_s, length_s, ()
        if not duration_s > 0:
            raise Misconfigured(f"a duration must be above 0 s, not {duration_s:g}")
        if start_s + duration_s > length_s:
            left_s = length_s - start_s
            note = f"the trace ends {left_s:.10g} s after the start: the {duration_s:.10g} s asked for were cut"
            return start_s, length_s, (note,)
        return start_s, start_s + duration_s, ()

    def window(self, start_s: float = 0.0, duration_s: float | None = None) -> Trace:
        """The bins that the span touches, as a trace of their own."""
        from_s, to_s, notes = self.span(start_s, duration_s)
        first = math.floor(from_s / self.bin_s + WHOLE_TOLERANCE)
        last = min(len(self.rates_rps), max(first + 1, math.ceil(to_s / self.bin_s - WHOLE_TOLERANCE)))
        edges_s = first * self.bin_s, last * self.bin_s
        if abs(edges_s[0] - from_s) + abs(edges_s[1] - to_s) > WHOLE_TOLERANCE:
            notes = (*notes, f"the window was widened to whole bins of {self.bin_s:g} s")
        arrivals_s = self.arrivals_s
        if arrivals_s is not None:
            low, high = np.searchsorted(arrivals_s, edges_s)
            arrivals_s = arrivals_s[low:high] - edges_s[0]
        return replace(
            self,
            start_at=self.start_at + edges_s[0],
            rates_rps=self.rates_rps[first:last],
            arrivals_s=arrivals_s,
            notes=(*self.notes, *notes),
        )

    def mean_between(self, from_s: float, to_s: float) -> float:
        """Mean rate of [from_s, to_s), a bin cut by an edge counted for its part."""
        edges_s = np.arange(len(self.rates_rps) + 1) * self.bin_s
        inside_s = np.diff(np.clip(edges_s, from_s, to_s))
        return float(np.dot(self.rates_rps, inside_s) / (to_s - from_s))

    def scaled(self, mean_rps: float, start_s: float = 0.0, duration_s: float | None = None) -> Trace:
        """The whole trace times the factor that makes the mean over the replayed part `mean_rps`.

        Scaled counts are means, no longer counts, and raw arrivals become rates: a replay then draws Poisson.
        """
        if not (math.isfinite(mean_rps) and mean_rps > 0):
            raise Misconfigured(f"a mean rate must be above 0 rps, not {mean_rps:g}")
        from_s, to_s, _ = self.span(start_s, duration_s)
        mean = self.mean_between(from_s, to_s)
        if mean == 0:
            raise Misconfigured(f"trace {self.name} is 0 rps from {from_s:g} to {to_s:g} s: no factor scales it")
        if mean == mean_rps:
            return self
        return self._times(mean_rps / mean, f", for a mean of {mean_rps:g} rps over the replay")

    def times(self, factor: float, *, after_rps: float | None = None) -> Trace:
        """The whole trace times a factor; as of `scaled`, a replay then draws Poisson.

        after_rps: the mean that it was scaled to before.
        """
        if factor == 1.0:
            return self
        why = "" if after_rps is None else f", which makes the mean over the replay {after_rps * factor:g} rps"
        return self._times(factor, why)

    def _times(self, factor: float, why: str) -> Trace:
        return replace(
            self,
            rates_rps=self.rates_rps * factor,
            whole_counts=False,
            arrivals_s=None,
            notes=(*self.notes, f"rates times {factor:.6g}{why}"),
        )


def read_trace(
    place: Path | str | Sequence[str], options: TraceOptions = AS_IT_IS, objects: Objects | None = None
) -> Trace:
    """The trace of a file of any format of `docs/traces.md`, gzip or not, or of many files of one format.

    `place`: a path, a folder, a pattern such as `logs/*.gz`, or `s3://BUCKET/PREFIX`, which `objects` reads; or
    several of them.
    Raises `Misconfigured`, one line with file and line, for all that is wrong with it.
    """
    places = [str(place)] if isinstance(place, Path | str) else list(place)
    shown = places[0] if len(places) == 1 else f"{places[0]} ... {places[-1]}"
    sources = [source for one in places for source in find_sources(one, objects)]
    read = _read_all(shown, sources, options)
    parts, copies = without_copies(read)
    empty = len(sources) - len(read)
    notes = (*copies, *((f"{empty} of {len(sources)} files hold nothing",) if empty else ()))
    return trace_of_rows(name_of(places[0]), shown, parts, options, notes)


def trace_of_rows(
    name: str, shown: str, parts: Sequence[Rows], options: TraceOptions, notes: tuple[str, ...] = ()
) -> Trace:
    """The trace of rows of one format. shown: their source, as messages call it."""
    load = join(shown, parts, options)
    notes = (*load.notes, *notes)
    if isinstance(load, Instants):
        return replace(trace_of_arrivals(name, load.times, keep_instants=not load.whole_seconds), notes=notes)
    return Trace(
        name=name,
        start_at=load.start_at,
        bin_s=load.bin_s,
        rates_rps=load.rates_rps,
        whole_counts=holds_whole_counts(load.rates_rps, load.bin_s),
        notes=notes,
    )


def _read_all(shown: str, sources: Sequence[Source], options: TraceOptions) -> list[Rows]:
    """The rows of each file that holds any."""
    parts = []
    for source in sources:
        try:
            parts.append(read_rows(source, options))
        except EmptyFile:
            if len(sources) == 1:
                raise
    if not parts:
        raise Misconfigured(f"{shown}: all {len(sources)} files are empty; check the path")
    return parts


def without_copies(parts: Sequence[Rows]) -> tuple[list[Rows], tuple[str, ...]]:
    """The parts, each once, and a note on those that hold the rows of another, such as a log beside its `.gz`."""
    if len(parts) == 1:
        return list(parts), ()
    first: dict[bytes, str] = {}
    kept: list[Rows] = []
    notes: list[str] = []
    for part in parts:
        key = _digest(part)
        if key in first and len(part.times) >= LEAST_COPIED:
            notes.append(f"{part.name} is a copy of {first[key]}, and counted once")
            continue
        first[key] = part.name
        kept.append(part)
    return kept, tuple(notes)


def _digest(part: Rows) -> bytes:
    """Short for the rows: a folder of logs may hold more of them than are kept twice."""
    made = hashlib.blake2b(np.ascontiguousarray(part.times).data)
    if part.values is not None:
        made.update(np.ascontiguousarray(part.values).data)
    return made.digest()


def holds_whole_counts(rates_rps: Floats, bin_s: float) -> bool:
    """True where the bins last at most one second and their rates are whole counts. rates_rps: shape (bins,)."""
    if bin_s > 1:
        return False
    counts = rates_rps * bin_s
    return bool((np.abs(counts - np.rint(counts)) <= WHOLE_TOLERANCE * np.maximum(1.0, counts)).all())


def trace_of_arrivals(name: str, instants: Floats, *, keep_instants: bool = True) -> Trace:
    """The trace of raw arrivals, its clock starting at the whole second of the first.

    instants: shape (arrivals,), seconds, rising, at least one. Where they are not kept, only how many came in each
    second is.
    """
    start_at = math.floor(instants[0])
    arrivals_s = instants - start_at
    bins = math.floor(arrivals_s[-1]) + 1
    check_length(name, bins, float(arrivals_s[-1]))
    counts = np.bincount(arrivals_s.astype(np.int64), minlength=bins)
    return Trace(
        name=name,
        start_at=float(start_at),
        bin_s=ARRIVALS_BIN_S,
        rates_rps=counts.astype(np.float64),
        whole_counts=True,
        arrivals_s=arrivals_s if keep_instants else None,
    )


def write_trace(trace: Trace, path: Path) -> None:
    """The rates as `timestamp_s,rate_rps`, gzip where the name ends in .gz; whole or not at all.

    A full disk, or a folder that is missing, is one line and leaves what stood there before.
    """
    starts = np.round(trace.start_at + np.arange(len(trace.rates_rps)) * trace.bin_s, 6)
    rows = zip(_printed(starts), _printed(trace.rates_rps), strict=True)
    content = "".join(["timestamp_s,rate_rps\n", *(f"{start},{rate}\n" for start, rate in rows)]).encode()
    if path.suffix == ".gz":
        packed = io.BytesIO()
        # No name and no time inside: the same trace gives the same bytes.
        with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, filename="", mtime=0) as file:
            file.write(content)
        content = packed.getvalue()
    if path.is_dir():
        raise Misconfigured(f"{path} is a folder; name a file in it, such as {path / 'load.csv.gz'}")
    try:
        _replace_file(path, content)
    except OSError as error:
        remedy = "free space there or name another file" if error.errno == errno.ENOSPC else "name another file"
        raise Misconfigured(f"{path} cannot be written: {error.strerror}; {remedy}") from error


def _printed(values: Floats) -> list[str]:
    """The shortest text that reads back as the same number. values: shape (n,)."""
    return [str(int(value)) if value.is_integer() else repr(value) for value in values.tolist()]


def _replace_file(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
