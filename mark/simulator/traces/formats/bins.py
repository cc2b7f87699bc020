"""From the rows of all files to one load in time order: instants, or equal bins without gaps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured
from mark.simulator.traces.formats.rows import RowKind, Rows, TraceOptions
from mark.simulator.traces.formats.times import moment

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BIN_TOLERANCE = 0.01
"""A printed timestamp may miss its bin's start by this share of the bin (57 s samples, rounded centiseconds)."""
UNEVEN, MOSTLY = 0.25, 0.9
"""An uneven grid is one where so many of the steps miss a whole number of bins by this share of a bin at most."""
MAX_RPS = 1e7
"""More requests a second is a column in other units."""
MAX_BINS = 200_000_000
"""Six years of seconds, 1.6 GB: more is a timestamp in other units."""
WHOLE_TOLERANCE = 1e-6
MS = 1000
MOST_GROUPS = 5
"""Target groups that a note names at most."""
TELLING_ROWS = 10
"""Rows of a file that its bin length is read from, even where most bins are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instants:
    """Requests, shape (requests,), rising. whole_seconds: the source keeps no finer time."""

    times: Floats
    whole_seconds: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Contiguous bins. rates_rps: shape (bins,)."""

    start_at: float
    bin_s: float
    rates_rps: Floats
    notes: tuple[str, ...]


def join(name: str, parts: Sequence[Rows], options: TraceOptions) -> Instants | Bins:
    """The load of all files, which must be of one format."""
    first = parts[0]
    other = next((part for part in parts if (part.format, part.kind) != (first.format, first.kind)), None)
    if other is not None:
        raise Misconfigured(
            f"{name} holds two formats: {first.name} is {first.format}, {other.name} is {other.format}; "
            "read one of them at a time"
        )
    if not any(len(part.times) for part in parts):
        raise Misconfigured(
            f"{name}: nothing in {first.format} fits --where {options.where}; correct the pattern or leave it out"
            if options.where
            else f"{name} holds no request; check what was exported"
        )
    notes = (*dict.fromkeys(note for part in parts for note in part.notes), *_group_notes(parts))
    if first.kind is RowKind.REQUEST:
        return _instants(parts, notes)
    return _bins(_Joined.of(name, parts), notes)


def _group_notes(parts: Sequence[Rows]) -> tuple[str, ...]:
    """A note on the target groups of a log's requests, where there are several."""
    groups: Counter[str] = Counter()
    for part in parts:
        groups.update(part.groups)
    if len(groups) < 2:
        return ()
    named = ", ".join(f"{name} {count:,}" for name, count in groups.most_common(MOST_GROUPS))
    more = f" and {len(groups) - MOST_GROUPS} more" if len(groups) > MOST_GROUPS else ""
    first = groups.most_common(1)[0][0]
    return (f"requests of {len(groups)} target groups: {named}{more}; --where target-group={first} takes one",)


def check_length(name: str, bins: int, length_s: float) -> None:
    """Refuse more bins than any load has."""
    if bins > MAX_BINS:
        raise Misconfigured(
            f"trace {name} spans {length_s / 86400:.0f} days in {bins} bins; give its times in seconds, not ms"
        )


def _instants(parts: Sequence[Rows], notes: tuple[str, ...]) -> Instants:
    times = np.concatenate([part.times for part in parts])
    if (np.diff(times) < 0).any():
        times.sort()
    whole = not parts[0].as_is and bool((times == np.floor(times)).all())
    if whole:
        notes = (*notes, "its times are whole seconds: a replay spreads the requests of a second evenly over it")
    return Instants(times=times, whole_seconds=whole, notes=notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joined:
    """Rows of all files in time order. `find` tells the file of one and its place there."""

    name: str
    parts: Sequence[Rows]
    kind: RowKind
    order: Ints
    times: Floats
    values: Floats

    @classmethod
    def of(cls, name: str, parts: Sequence[Rows]) -> _Joined:
        times = np.concatenate([part.times for part in parts])
        values = np.concatenate([part.values for part in parts if part.values is not None])
        order = np.argsort(times, kind="stable")
        found = cls(
            name=name, parts=parts, kind=parts[0].kind, order=order, times=times[order], values=values[order]
        )
        found.check()
        return found

    def wrong(self, row: int, what: str) -> Misconfigured:
        """The error about a row in time order."""
        part, at = self.find(row)
        return part.wrong(at, what)

    def find(self, row: int) -> tuple[Rows, int]:
        """The file of a row in time order, and the row's index there."""
        at = int(self.order[row])
        for part in self.parts:
            if at < len(part.times):
                return part, at
            at -= len(part.times)
        raise AssertionError(row)

    def check(self) -> None:
        """Refuse values below 0 or that are no numbers, and times that stand twice."""
        bad = ~(np.isfinite(self.values) & (self.values >= 0))
        if bad.any():
            row = int(np.argmax(bad))
            what = "count" if self.kind is RowKind.COUNT else "rate"
            number = f"{self.values[row]:.15g}"
            raise self.wrong(row, f"{what} {number} is negative; {what}s are 0 or more")
        twice = np.diff(self.times) == 0
        if twice.any():
            row = int(np.argmax(twice)) + 1
            change = next((part.clock_change for part in self.parts if part.clock_change), "")
            raise self.wrong(row, change or f"time {self.times[row]:.15g} stands twice; keep one row of it")


def _bins(rows: _Joined, notes: tuple[str, ...]) -> Bins:
    bin_s, at = _places(rows)
    _check_widths(rows, bin_s)
    kind = rows.kind
    if kind is RowKind.UNSAID:
        whole = bool((rows.values == np.floor(rows.values)).all())
        kind = RowKind.COUNT if whole else RowKind.RATE
        meaning = (
            f"requests per bin of {bin_s:g} s, as all are whole"
            if whole
            else "requests per second, as some have fractions"
        )
        notes = (
            *notes,
            f"no header names the numbers: they are taken as {meaning}; set --rows counts or rates",
        )
    lasts_s = np.full(len(rows.times), bin_s) if at is not None else _lengths_s(rows.times, bin_s)
    rates = rows.values / lasts_s if kind is RowKind.COUNT else rows.values
    huge = rates > MAX_RPS
    if huge.any():
        row = int(np.argmax(huge))
        raise rows.wrong(row, f"rate {rates[row]:.6g} is above {MAX_RPS:g} requests/s; give rates per second")
    if at is None:
        filled = spread(rows.times, lasts_s, rates, bin_s)
        notes = (*notes, _uneven_note(lasts_s, bin_s))
    else:
        filled = np.zeros(at[-1] + 1)
        filled[at] = rates
    steps = np.rint(np.diff(rows.times) / bin_s) if at is None else np.diff(at)
    missing = int(np.maximum(steps - 1, 0).sum())
    if missing:
        part, row = rows.find(int(np.argmax(steps > 1)) + 1)
        several = len(rows.parts) > 1
        place = moment(float(part.times[row])) if part.lines is None else part.name_of(row, with_file=several)
        notes = (*notes, f"{missing} missing bins became 0 rps, the first before {place}")
    return Bins(start_at=float(rows.times[0]), bin_s=bin_s, rates_rps=filled, notes=notes)


def spread(times: Floats, lasts_s: Floats, rates: Floats, bin_s: float) -> Floats:
    """Mean rates of even bins from the first time on, whose requests are those of the rows.

    times, lasts_s, rates: shape (rows,); a row's rate holds from its time for so long, and rows do not overlap.
    """
    starts = times - times[0]
    ends = starts + lasts_s
    before = np.concatenate(([0.0], np.cumsum(rates * lasts_s)))
    instants = np.stack((starts, ends), axis=1).ravel()
    counted = np.stack((before[:-1], before[1:]), axis=1).ravel()
    edges = np.arange(math.ceil(ends[-1] / bin_s - WHOLE_TOLERANCE) + 1) * bin_s
    edges[-1] = max(edges[-1], ends[-1])
    return np.asarray(np.diff(np.interp(edges, instants, counted)) / bin_s, dtype=np.float64)


def _lengths_s(times: Floats, bin_s: float) -> Floats:
    """How long each row of an uneven grid lasts: to the next one, or for a bin where rows are missing after it."""
    steps = np.append(np.diff(times), bin_s)
    return np.where(np.rint(steps / bin_s) > 1, bin_s, steps)


def _uneven_note(lasts_s: Floats, bin_s: float) -> str:
    apart = f"{lasts_s.min():.6g} to {lasts_s.max():.6g} s apart"
    return f"its rows are {apart}: their requests are spread over even bins of {bin_s:g} s"


def _places(rows: _Joined) -> tuple[float, Ints | None]:
    """Length of a bin, s, and the bin of each row; none where an export's clock was uneven.

    Misconfigured where rows are on no grid, or MArk's own are uneven.
    """
    times = rows.times
    width_s = next((part.bin_s for part in rows.parts if part.bin_s is not None), None)
    if len(times) < 2:
        if width_s is None:
            raise rows.wrong(0, "one row does not give the length of a bin; give at least two")
        return width_s, np.zeros(1, dtype=np.int64)
    steps = np.diff(times)
    widths = [width_s] if width_s is not None else [_common_s(times)] if rows.parts[0].exact else []
    widths = widths or [float(np.median(steps)), float(steps.min())]
    for bin_s in widths:
        if np.abs(steps - bin_s).max() <= BIN_TOLERANCE * bin_s:
            exact_s = round(float(times[-1] - times[0]) / len(steps), 9) or bin_s
            return exact_s, np.arange(len(times))
    for bin_s in widths:
        bins = np.rint(steps / bin_s)
        odd = (bins < 1) | (np.abs(steps / bin_s - bins) > BIN_TOLERANCE)
        if not odd.any():
            check_length(rows.name, int(bins.sum()) + 1, float(times[-1] - times[0]))
            return bin_s, np.concatenate(([0], np.cumsum(bins))).astype(np.int64)
    bin_s = widths[0]
    bins = np.rint(steps / bin_s)
    near = (bins >= 1) & (np.abs(steps / bin_s - bins) <= UNEVEN)
    if not rows.parts[0].as_is and near.mean() >= MOSTLY:
        whole_s = float(np.rint(bin_s))
        bin_s = whole_s if abs(whole_s - bin_s) <= BIN_TOLERANCE * bin_s else bin_s
        check_length(rows.name, int(bins.sum()) + 1, float(times[-1] - times[0]))
        return bin_s, None
    row = int(np.argmax((bins < 1) | (np.abs(steps / bin_s - bins) > BIN_TOLERANCE))) + 1
    raise rows.wrong(
        row, f"{steps[row - 1]:.10g} s after the row before, in bins of {bin_s:.10g} s; use bins of equal width"
    )


def _check_widths(rows: _Joined, bin_s: float) -> None:
    """Refuse files of different bins: the counts of a longer bin would be taken for those of a short one."""
    for part in rows.parts if len(rows.parts) > 1 else ():
        if len(part.times) < TELLING_ROWS:
            continue
        times = np.sort(part.times)
        steps = np.diff(times)
        own_s = _common_s(times) if part.exact else float(steps.min())
        usual_s = own_s if part.exact else float(np.median(steps))  # of an uneven grid
        if min(abs(own_s - bin_s), abs(usual_s - bin_s)) > BIN_TOLERANCE * bin_s:
            raise Misconfigured(
                f"{part.name} has bins of {own_s:g} s, other files of {rows.name} have {bin_s:g} s; "
                "export all with one period"
            )


def _common_s(times: Floats) -> float:
    """The largest step that all times are multiples of, to the millisecond."""
    return float(np.gcd.reduce(np.diff(np.rint(times * MS).astype(np.int64)))) / MS
