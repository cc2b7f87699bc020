"""Traces of several models out of one log, or out of a folder with a log for each.

All of them have one clock: they begin with the first request of any model, and end with the last.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mark.domain.errors import Misconfigured
from mark.simulator.traces.formats.bins import WHOLE_TOLERANCE, check_length
from mark.simulator.traces.formats.content import EmptyFile
from mark.simulator.traces.formats.detect import read_rows
from mark.simulator.traces.formats.filters import Labels
from mark.simulator.traces.formats.rows import Floats, Rows, TraceOptions
from mark.simulator.traces.formats.sources import Objects, find_sources, name_of
from mark.simulator.traces.trace import Trace, read_trace, trace_of_rows, without_copies

PATH, FILE = "path", "file"
IN_PATH = re.compile(
    r"/(?:models|endpoints)/([^/:]+)(?:/versions/[^/:]+)?"
    r"(?:/(?:infer|infer_stream|generate|generate_stream|invocations)|:\w+)$"
)
"""A model in the path of a request for inference: Open Inference Protocol, TF Serving and SageMaker. Health checks
and metadata of a model are none."""
WHOLE = re.compile(r"(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFrom:
    """Where a request's model stands: in the name of its file, or in a key of its row."""

    #: FILE, or a key as those of --where.
    key: str
    #: Group 1 is the model's name.
    pattern: re.Pattern[str]

    @property
    def is_file(self) -> bool:
        """True where each model has a file or a folder of its own."""
        return self.key == FILE


def parse_model_from(text: str) -> ModelFrom:
    """`path`, `file`, `KEY` or `KEY=REGEX` with one group; a bare expression with a group is of the path."""
    key, found, expression = text.partition("=")
    if not found or not re.fullmatch(r"[\w.@-]+", key):
        key, expression = (PATH, text) if "(" in text else (text, "")
    if not expression:
        return ModelFrom(key=key, pattern=IN_PATH if key == PATH else WHOLE)
    try:
        pattern = re.compile(expression)
    except re.error as error:
        raise Misconfigured(f"--model-from {text!r} is not a regular expression: {error}") from error
    if pattern.groups != 1 or key == FILE:
        raise Misconfigured(
            f"--model-from {text!r} must read path, file, KEY or KEY=REGEX with one group for the model's name, "
            "such as 'path=/models/([^/:]+)'"
        )
    return ModelFrom(key=key, pattern=pattern)


def read_by_model(
    place: str, model_from: ModelFrom, options: TraceOptions, objects: Objects | None = None
) -> dict[str, Trace]:
    """The trace of each model that the place names, by its name. Misconfigured where it names none."""
    if model_from.is_file:
        found = {name: read_trace(paths, options, objects) for name, paths in _files(place).items()}
    else:
        found = _split(place, model_from, options, objects)
    return aligned(found)


def _files(place: str) -> dict[str, list[str]]:
    """The files of each model: those of its name, whatever their ending, or in the folder of its name."""
    folder = Path(place)
    if not folder.is_dir():
        raise Misconfigured(f"--model-from file needs a folder with a log or a folder for each model, not {place}")
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.iterdir()):
        if not path.name.startswith("."):
            found[path.name if path.is_dir() else name_of(path.name)].append(str(path))
    if not found:
        raise Misconfigured(f"{place}: no file is there; check the path")
    return found


def _split(place: str, model_from: ModelFrom, options: TraceOptions, objects: Objects | None) -> dict[str, Trace]:
    """The trace of each model, by what is read of each row."""
    parts: defaultdict[str, list[Rows]] = defaultdict(list)
    unlabelled = 0
    for source in find_sources(place, objects):
        labels = Labels(key=model_from.key, pattern=model_from.pattern)
        labelled = replace(options, where=replace(options.where, labels=labels))
        try:
            rows = read_rows(source, labelled)
        except EmptyFile:
            continue
        if len(labels.taken) != len(rows.times):
            raise Misconfigured(
                f"{source.name} is {rows.format}, without a model in each row: --model-from needs a log"
            )
        unlabelled += labels.unlabelled
        names, which = np.unique(np.array(labels.taken, dtype=object).astype(str), return_inverse=True)
        for number, name in enumerate(names.tolist()):
            parts[name].append(_some(rows, which == number))
    if not parts:
        raise Misconfigured(
            f"{place}: none of its {unlabelled:,} requests names a model in its {model_from.key}; give "
            f"--model-from 'KEY=REGEX' with a group for the name, such as 'path=/models/([^/:]+)'"
        )
    left = (f"{unlabelled:,} requests name no model and are left out",) if unlabelled else ()
    return {
        name: trace_of_rows(f"{name_of(place)}-{name}", place, *_once(rows, options, left))
        for name, rows in sorted(parts.items())
    }


def _once(
    parts: Sequence[Rows], options: TraceOptions, notes: tuple[str, ...]
) -> tuple[list[Rows], TraceOptions, tuple[str, ...]]:
    kept, copies = without_copies(parts)
    return kept, options, (*copies, *notes)


def _some(rows: Rows, which: np.ndarray) -> Rows:
    """Those rows alone. which: shape (rows,)."""
    return replace(
        rows,
        times=rows.times[which],
        values=None if rows.values is None else rows.values[which],
        lines=None if rows.lines is None else rows.lines[which],
    )


def aligned(traces: Mapping[str, Trace]) -> dict[str, Trace]:
    """The traces from the first one's start to the last one's end, without load before and after their own."""
    start_at = min(trace.start_at for trace in traces.values())
    end_at = max(trace.start_at + trace.duration_s for trace in traces.values())
    return {name: _padded(trace, start_at, end_at) for name, trace in traces.items()}


def _padded(trace: Trace, start_at: float, end_at: float) -> Trace:
    before = (trace.start_at - start_at) / trace.bin_s
    if abs(before - round(before)) > WHOLE_TOLERANCE:
        raise Misconfigured(
            f"trace {trace.name} begins {trace.start_at - start_at:g} s after another model's, which is no whole "
            f"number of its bins of {trace.bin_s:g} s; give traces whose bins begin together"
        )
    bins = max(
        len(trace.rates_rps) + round(before), math.ceil((end_at - start_at) / trace.bin_s - WHOLE_TOLERANCE)
    )
    check_length(trace.name, bins, bins * trace.bin_s)
    rates: Floats = np.zeros(bins)
    rates[round(before) : round(before) + len(trace.rates_rps)] = trace.rates_rps
    arrivals_s = None if trace.arrivals_s is None else trace.arrivals_s + (trace.start_at - start_at)
    return replace(trace, start_at=start_at, rates_rps=rates, arrivals_s=arrivals_s)


def silent(like: Trace, name: str) -> Trace:
    """A trace of the same length without a request."""
    return replace(
        like, name=name, rates_rps=np.zeros(len(like.rates_rps)), arrivals_s=None, whole_counts=False, notes=()
    )


def request_count(trace: Trace) -> int:
    """Requests that the whole trace holds."""
    return round(float(trace.rates_rps.sum()) * trace.bin_s)
