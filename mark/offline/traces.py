"""Traces: read, described, drawn and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from mark.domain.errors import Misconfigured, unknown
from mark.domain.figures import figure, plural
from mark.offline.trace_source import TraceReading, read_places
from mark.report.formatting import format_count, format_duration
from mark.report.terminal import note, progress, show, show_json
from mark.simulator.traces.bursts import has_long_bins, long_bins_note
from mark.simulator.traces.generators import constant, diurnal_floods, mmpp, surge
from mark.simulator.traces.statistics import TraceStatistics, describe
from mark.simulator.traces.trace import Trace, write_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Generator:
    """Synthetic trace to draw. `parameters`: parameters of the kind that were given, by flag: `at_s` is --at-s."""

    kind: str
    parameters: Mapping[str, Any]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceKind:
    """A kind of trace: how it is drawn from its parameters and a seed, and their defaults."""

    draw: Callable[..., Trace]
    takes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Changes to an imported trace, which is written as rates: scaled to a mean, cut to a part."""

    mean_rps: float | None
    start_s: float
    duration_s: float | None


def import_places(sources: Sequence[str], target: Path, options: ImportOptions, reading: TraceReading) -> None:
    """Write a trace of any format as rates in equal bins; bursts are not drawn, the bins stay as they are."""
    if len(sources) > 1 and target.exists():
        raise Misconfigured(f"{target} exists and would be written over; name a new file after the {len(sources)}")
    trace = _read(sources, reading)
    if options.mean_rps is not None:
        trace = trace.scaled(options.mean_rps, options.start_s, options.duration_s)
    if options.start_s or options.duration_s is not None:
        trace = trace.window(options.start_s, options.duration_s)
    write_told(trace, target)


def describe_places(sources: Sequence[str], reading: TraceReading, *, as_json: bool) -> None:
    """Print a trace's statistics."""
    found = describe(_read(sources, reading))
    if as_json:
        show_json(asdict(found))
        return
    grid = Table.grid(padding=(0, 2))
    for label, value in _lines(found):
        grid.add_row(label, value)
    show(grid)
    for text in found.notes:
        note(text)


def _read(sources: Sequence[str], reading: TraceReading) -> Trace:
    """The trace, with a warning where its bins are long."""
    with progress() as report:
        report(f"reading {sources[0]}", 0.0)
        trace = read_places(sources, reading)
    if not has_long_bins(trace):
        return trace
    return replace(trace, notes=(*trace.notes, long_bins_note(trace)))


def generate_file(generator: Generator, out: Path) -> None:
    """Draw a trace and write it; what the kind does not take is Misconfigured."""
    if generator.kind not in KINDS:
        raise unknown("kind of trace", generator.kind, KINDS)
    kind = KINDS[generator.kind]
    foreign = [flag for flag in generator.parameters if flag not in kind.takes]
    if foreign:
        raise Misconfigured(f"{generator.kind} takes no {_flags(foreign)}; it takes {_flags(kind.takes)}")
    write_told(kind.draw(**{**kind.takes, **generator.parameters}, seed=generator.seed), out)


def _flags(names: Iterable[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in names)


def write_told(trace: Trace, target: Path) -> None:
    """Write a trace, and print its notes and what was written."""
    with progress() as report:
        report(f"writing {target.name}", 0.0)
        write_trace(trace, target)
    for text in trace.notes:
        note(text)
    bins = len(trace.rates_rps)
    show(f"{target}: {plural(bins, 'bin')} of {trace.bin_s:g} s, mean {figure(trace.mean_rps)} requests/s")


KINDS: Mapping[str, TraceKind] = {
    "constant": TraceKind(draw=constant, takes={"rps": 60.0, "duration_s": 3600.0}),
    "surge": TraceKind(
        draw=lambda rps, **more: surge(base_rps=rps, **more),
        takes={"rps": 60.0, "plus": 0.5, "at_s": 420.0, "rise_s": 120.0, "duration_s": 1800.0},
    ),
    "mmpp": TraceKind(
        draw=lambda rates, sojourns_s, **more: mmpp(rates, mean_sojourns_s=sojourns_s, **more),
        takes={"rates": (20.0, 80.0), "sojourns_s": (600.0, 120.0), "duration_s": 86_400.0},
    ),
    "diurnal-floods": TraceKind(draw=lambda days, seed: diurnal_floods(seed, days), takes={"days": 8}),
}


def _lines(found: TraceStatistics) -> tuple[tuple[str, str], ...]:
    def known(value: float | None) -> str:
        return "not known" if value is None else figure(value, digits=3)

    return (
        ("trace", found.name),
        ("length", f"{format_duration(found.duration_s)} in bins of {found.bin_s:g} s"),
        ("requests", format_count(round(found.requests))),
        ("mean rate", f"{figure(found.mean_rps)} requests/s"),
        (
            "p50, p99, peak",
            f"{figure(found.p50_rps)}, {figure(found.p99_rps)}, {figure(found.peak_rps)} requests/s",
        ),
        ("peak / mean", figure(found.peak_over_mean, digits=3)),
        ("standard deviation / mean", figure(found.cv, digits=3)),
        ("correlation with a day later", known(found.day_autocorrelation)),
        ("variance / mean of 1 s counts", f"p50 {known(found.burstiness_p50)}, p99 {known(found.burstiness_p99)}"),
    )
