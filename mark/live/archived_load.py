"""The load that archived journals hold: segments as they were downloaded from the service's bucket.

A folder may hold days of a model's segments, of several lives of the service; their names sort by time. Each says
all that was seen before it in its life, so a segment that is missing leaves no gap. Where nobody looked for a
while, what came after it is what is known.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from mark.accounting.journal_stats import CountedEvents, journal_demand
from mark.accounting.load_history import joined, latest
from mark.controller.journal import Header, Tick, read_journal
from mark.domain.demand import Demand
from mark.domain.errors import Misconfigured, unknown
from mark.domain.fleet.host_spec import SHARED
from mark.domain.load.announced_events import Events
from mark.report.terminal import note

SUFFIX = ".jsonl.gz"


def archived_segments(place: Path) -> tuple[Path, ...]:
    """The segments in a folder, wherever in it, oldest first; the one file that is named; none elsewhere."""
    if place.is_dir():
        return tuple(sorted(place.rglob(f"*{SUFFIX}"), key=lambda path: path.parts[-2:]))
    return (place,) if place.is_file() and place.name.endswith(SUFFIX) else ()


def archived_load(segments: Sequence[Path], model: str | None) -> tuple[Header, Demand, Events]:
    """The last segment's header, all load that was seen, and the announced events that plans counted.

    Of `model`, or of the one model that there is. Journals of placements have no load.
    """
    segments = [path for path in segments if SHARED not in path.parts]
    if not segments:
        raise Misconfigured("these segments say who shared instances, and not what came: name a model's")
    models = {path: _opened(path)[0].model for path in segments}
    there = sorted(set(models.values()))
    if model is None and len(there) > 1:
        raise Misconfigured(f"the segments are of {', '.join(there)}: choose one of them with --model")
    chosen = there[0] if model is None else model
    if chosen not in there:
        raise unknown("model of these segments", chosen, there)
    demand: Demand | None = None
    counted = CountedEvents()
    for path in segments:
        if models[path] != chosen:
            continue
        header, ticks = _opened(path)
        try:
            own, observed_from = journal_demand(counted.watch([(header, ticks)]))
        except Misconfigured as error:
            raise Misconfigured(f"{path}: {error}") from error
        demand = joined(demand, latest(own, observed_from))
    assert demand is not None
    return header, demand, counted.events


def _opened(path: Path) -> tuple[Header, Iterator[Tick]]:
    try:
        return read_journal(segment_lines(path), skip=lambda line: note(f"{path}: {line.words}"))
    except Misconfigured as error:
        raise Misconfigured(f"{path}: {error}") from error


def segment_lines(path: Path) -> Iterator[bytes]:
    """The lines of a segment, a header first. Misconfigured where it is no whole file."""
    try:
        with gzip.open(path, "rb") as file:
            yield from file
    except (OSError, EOFError, zlib.error) as error:
        raise Misconfigured(f"it cannot be unpacked ({error}); download it again") from error
