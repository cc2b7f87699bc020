"""Traces: read, described, drawn and written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from mark.app.terminal import note, progress, show, show_json
from mark.domain.errors import unknown
from mark.report.wording import count_words, duration_words
from mark.simulator.generators import constant, diurnal_floods, mmpp, surge
from mark.simulator.trace_statistics import TraceStatistics, describe
from mark.simulator.traces import Trace, read_trace, write_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Generator:
    """What is drawn; each kind looks at its own parameters. `duration_s` None takes the kind's own length."""

    kind: str
    rps: float
    plus: float
    at_s: float
    rise_s: float
    rates_rps: tuple[float, ...]
    sojourns_s: tuple[float, ...]
    days: int
    duration_s: float | None
    seed: int


def import_file(
    source: Path, target: Path, *, mean_rps: float | None, start_s: float, duration_s: float | None
) -> None:
    """Write a trace of any format as rates in equal bins."""
    with progress() as report:
        report(f"reading {source.name}", 0.0)
        trace = read_trace(source)
    if mean_rps is not None:
        trace = trace.scaled(mean_rps, start_s, duration_s)
    if start_s or duration_s is not None:
        trace = trace.window(start_s, duration_s)
    _write(trace, target)


def describe_file(source: Path, *, as_json: bool) -> None:
    """Print a trace's statistics."""
    with progress() as report:
        report(f"reading {source.name}", 0.0)
        trace = read_trace(source)
        report("describing", 0.0)
        found = describe(trace)
    if as_json:
        show_json(asdict(found))
        return
    grid = Table.grid(padding=(0, 2))
    for label, value in _lines(found):
        grid.add_row(label, value)
    show(grid)
    for text in found.notes:
        note(text)


def generate_file(generator: Generator, out: Path) -> None:
    """Draw a trace and write it."""
    if generator.kind not in _KINDS:
        raise unknown("kind of trace", generator.kind, _KINDS)
    _write(_KINDS[generator.kind](generator), out)


def _write(trace: Trace, target: Path) -> None:
    with progress() as report:
        report(f"writing {target.name}", 0.0)
        write_trace(trace, target)
    for text in trace.notes:
        note(text)
    bins = len(trace.rates_rps)
    show(f"{target}: {bins:,} bins of {trace.bin_s:g} s, mean {trace.mean_rps:.4g} requests/s")


def _length(generator: Generator) -> dict[str, Any]:
    return {} if generator.duration_s is None else {"duration_s": generator.duration_s}


_KINDS: dict[str, Callable[[Generator], Trace]] = {
    "constant": lambda g: constant(g.rps, seed=g.seed, **_length(g)),
    "surge": lambda g: surge(g.rps, plus=g.plus, at_s=g.at_s, rise_s=g.rise_s, seed=g.seed, **_length(g)),
    "mmpp": lambda g: mmpp(g.rates_rps, g.sojourns_s, seed=g.seed, **_length(g)),
    "diurnal-floods": lambda g: diurnal_floods(g.seed, g.days),
}


def _lines(found: TraceStatistics) -> tuple[tuple[str, str], ...]:
    def known(value: float | None) -> str:
        return "not known" if value is None else f"{value:.3g}"

    return (
        ("trace", found.name),
        ("length", f"{duration_words(found.duration_s)} in bins of {found.bin_s:g} s"),
        ("requests", count_words(round(found.requests))),
        ("mean rate", f"{found.mean_rps:.4g} requests/s"),
        ("p50, p99, peak", f"{found.p50_rps:.4g}, {found.p99_rps:.4g}, {found.peak_rps:.4g} requests/s"),
        ("peak / mean", f"{found.peak_over_mean:.3g}"),
        ("standard deviation / mean", f"{found.cv:.3g}"),
        ("correlation with a day later", known(found.day_autocorrelation)),
        ("variance / mean of 1 s counts", f"p50 {known(found.burstiness_p50)}, p99 {known(found.burstiness_p99)}"),
    )
